"""The record of a group: what it tells, and that its text is checked when it is read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cluster.groups.copies import copy, made, master_of, member, new_group, nodes_of
from warrenmq.broker.definitions.metadata import MetadataDamaged
from warrenmq.cluster.groups.group import EpochStart, Group, decode_group, encode_group, fault_of
from warrenmq.cluster.groups.transitions import died, join, out_of_sync, rejoin
from warrenmq.cluster.ring.view import MemberId

TEXT = encode_group(made(died(new_group(b"a", b"b", b"c"), MemberId(2, b"b"))))


def test_a_group_tells_who_is_who() -> None:
    group = made(join(new_group(b"a", b"b"), copy(b"c")))
    assert (group.master_node, group.is_down) == (b"a", False)
    assert nodes_of(group.living) == [b"a", b"c", b"b"]
    assert nodes_of(group.mirrors) == [b"b", b"c"]
    assert nodes_of(group.synced_mirrors) == [b"b"]
    assert group.master_member == member(group, b"a")
    assert group.member(MemberId(9, b"a")) is None
    assert group.member_of(b"d") is None
    assert group.recoverable == (b"a", b"b", b"c")


def test_a_dead_member_is_on_no_node() -> None:
    group = made(died(new_group(b"a", b"b"), MemberId(2, b"b")))
    assert group.member_of(b"b") is None
    assert group.member(MemberId(2, b"b")) is not None


def test_a_restarted_node_is_in_sync_with_its_directory_only() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"b", "2")))
    assert group.synced_copy(b"b", "disk of b") == copy(b"b", "1")
    assert group.is_synced(b"b", "disk of b")
    assert not group.is_synced(b"b", "another disk")
    assert group.synced_mirrors == ()
    group = made(out_of_sync(group, master_of(group), copy(b"b", "1")))
    assert not group.is_synced(b"b", "disk of b")


def test_a_group_comes_back_from_its_text() -> None:
    group = decode_group(TEXT)
    assert encode_group(group) == TEXT
    assert fault_of(group) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":4', b'"version":"4"'),
        (b'"version":4', b'"version":2'),
        (b'"version":4', b'"version":' + b"9" * 4000),
        (b'"version":4', b'"version":' + b"9" * 5000),
        (b'"version":4', b'"version":true'),
        (b'"version":4', b'"colour":4'),
        (b'"version":4', b'"version":4,"colour":4'),
        (b'"is_alive":false', b'"is_alive":true'),
        (b'[1,"YQ=="]', b'[1,"YQ==",1]'),
        (b'[1,"YQ=="]', b'[1,"Y"]'),
        (b'[1,"YQ=="]', b'["YQ==",1]'),
        (b'"first_seq":0', b'"first_seq":-1'),
        (b'"first_seq":0', b'"first_seq":' + b"9" * 30),
        (b'"declared"', b'"\xff"'),
        (b'"declared"', b"null"),
        (b"{", b"["),
    ],
)
def test_a_wrong_text_is_damage(old: bytes, new: bytes) -> None:
    assert old in TEXT
    with pytest.raises(MetadataDamaged, match=r"^the group of a mirrored queue: [^\n]*$"):
        decode_group(TEXT.replace(old, new, 1))


@given(st.integers(0, len(TEXT)), st.binary(max_size=3), st.integers(0, 3))
def test_any_text_is_a_group_or_damage(start: int, insertion: bytes, removed: int) -> None:
    text = TEXT[:start] + insertion + TEXT[start + removed :]
    try:
        group = decode_group(text)
    except MetadataDamaged:
        return
    assert decode_group(encode_group(group)) == group


FAULTS: list[Callable[[Group], Group]] = [
    lambda group: replace(group, version=0),
    lambda group: replace(group, epoch=0),
    lambda group: replace(group, epoch=group.version + 1),
    lambda group: replace(group, version=1 << 63),
    lambda group: replace(group, prev=()),
    lambda group: replace(group, prev=(EpochStart(2, 0),)),
    lambda group: replace(group, prev=(EpochStart(0, 0), EpochStart(1, 0))),
    lambda group: replace(group, prev=(EpochStart(1, 5), EpochStart(1, 6))),
    lambda group: replace(group, epoch=2, prev=(EpochStart(1, 5), EpochStart(2, 4))),
    lambda group: replace(group, members=(*group.members, group.members[0])),
    lambda group: replace(group, members=tuple(replace(group.members[0], id=MemberId(n, b"a")) for n in (1, 2))),
    lambda group: replace(group, master=MemberId(4, b"a")),
    lambda group: replace(group, slaves=()),
    lambda group: replace(group, slaves=group.slaves[::-1]),
    lambda group: replace(group, sync=(*group.sync, copy(b"b", "2"))),
    lambda group: replace(group, sync=group.sync[1:]),
    lambda group: replace(group, sync=(copy(b"a", "2"), *group.sync[1:])),
    lambda group: replace(group, sync=(*group.sync, copy(b"d"))),
    lambda group: replace(group, recoverable=group.recoverable[1:]),
    lambda group: replace(group, recoverable=(*group.recoverable, b"a")),
    lambda group: replace(group, members=group.members[1:], sync=group.sync[1:]),
]  # fmt: skip


@pytest.mark.parametrize("damage", FAULTS)
def test_a_group_that_no_transition_makes_is_damage(damage: Callable[[Group], Group]) -> None:
    group = new_group(b"a", b"b", b"c")
    assert fault_of(group) == ""
    with pytest.raises(MetadataDamaged):
        decode_group(encode_group(damage(group)))
