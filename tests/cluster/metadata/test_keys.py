"""Definitions become keys and values of etcd, and are the same definitions again."""

import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warrenmq.broker.definitions.metadata import (
    NO_ID,
    NO_LIMIT,
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    MetadataDamaged,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutReaderGroup,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.metadata.keys import (
    change_of,
    deletion_of,
    key_of,
    parts_of,
    prefix_of,
    record_key,
)
from warrenmq.cluster.metadata.values import FORMAT, NewerFormat, value_of

names = st.binary(max_size=8) | st.sampled_from([b"", b"/", b"%2F", b".", b"a/b", b"\0\xff", b"q"])
texts = st.text(max_size=8)
births = st.integers(0, 1 << 62)
limits = st.integers(NO_LIMIT, 1 << 40)
flags = st.booleans()
tags = st.lists(texts, max_size=3)
# Every Put... that a cluster shares; id, birth and revision are not in the value.
puts: st.SearchStrategy[Change] = st.one_of(
    st.builds(PutVhost, names, st.just(NO_ID), texts, tags, texts, flags, births),
    st.builds(PutUser, names, names, texts, tags, limits, limits),
    st.builds(PutPermission, names, names, texts, texts, texts),
    st.builds(PutTopicPermission, names, names, names, texts, texts),
    st.builds(PutParameter, names, st.text(min_size=1, max_size=8), texts, texts),
    st.builds(PutParameter, st.just(b""), st.just(""), texts, texts),
    st.builds(PutExchange, names, names, names, flags, flags, names, flags, births),
    st.builds(
        PutQueue,
        names,
        st.just(NO_ID),
        names,
        flags,
        flags,
        names,
        births,
        names,
        flags,
        names,
        births,
    ),
    st.builds(PutBinding, names, names, names, flags, names, names, births, births),
)
deletions: st.SearchStrategy[Change] = st.one_of(
    st.builds(DeleteVhost, names),
    st.builds(DeleteUser, names),
    st.builds(DeletePermission, names, names),
    st.builds(DeleteTopicPermission, names, names, names),
    st.builds(DeleteParameter, names, st.text(min_size=1, max_size=8), texts),
    st.builds(DeleteParameter, st.just(b""), st.just(""), texts),
    st.builds(DeleteExchange, names, names),
    st.builds(DeleteQueue, names, st.just(NO_ID), names.filter(len)),
    st.builds(DeleteBinding, names, names, names, flags, names, names),
)


def attributes(change: Change) -> dict[str, object]:
    found = {name: getattr(change, name) for name in dir(change) if not name.startswith("_")}
    return {"class": type(change).__name__, **found}


@given(cluster=texts, change=puts)
@example(
    cluster="/",
    change=PutQueue(b"/", NO_ID, b"a/b", True, False, b"", node=b"n@h", is_exclusive=True, birth=7),
)
def test_written_definition_is_read_as_it_was(cluster: str, change: Change) -> None:
    birth, revision = getattr(change, "birth", 0), getattr(change, "revision", 0)
    read = change_of(key_of(cluster, change), value_of(change), birth, revision)
    assert read is not None
    assert attributes(read) == attributes(change)


@given(cluster=texts, change=deletions)
def test_deletion_is_known_by_its_key(cluster: str, change: Change) -> None:
    deletion = deletion_of(key_of(cluster, change))
    assert deletion is not None
    assert attributes(deletion) == attributes(change)


@given(cluster=texts, change=puts, other=puts | deletions)
def test_changes_have_one_key_if_they_are_of_one_definition(
    cluster: str, change: Change, other: Change
) -> None:
    """A key belongs to one kind and one name, and lies below the prefixes of both."""
    key, other_key = key_of(cluster, change), key_of(cluster, other)
    assert (key == other_key) == (parts_of(key) == parts_of(other_key))
    kind, parts = parts_of(key)
    assert key.startswith(prefix_of(cluster, kind, *parts[:-1]))
    assert key.startswith(prefix_of(cluster, kind))
    assert re.fullmatch(rb"[A-Za-z0-9_.~%/-]+", key)


def test_prefix_covers_what_is_below_it_only() -> None:
    """A vhost's keys do not begin with the prefix of one with a shorter name."""
    key = key_of("c", PutQueue(b"ab", NO_ID, b"q", True, False, b""))
    assert key == b"/warren/c/q/ab/q"
    assert key.startswith(prefix_of("c", "q", b"ab"))
    assert not key.startswith(prefix_of("c", "q", b"a"))
    assert record_key("c/d", "nodes", b"n@h") == b"/warren/c%2Fd/nodes/n%40h"
    assert record_key("c", "meta") == b"/warren/c/meta"


def test_record_is_no_definition() -> None:
    assert change_of(record_key("c", "nodes", b"n"), b"not json", 1, 1) is None
    assert deletion_of(record_key("c", "meta")) is None


def test_value_of_a_later_warren_is_refused() -> None:
    """The text says which format this warren reads, so an operator knows which node is old."""
    value = msgspec.json.encode({"format": FORMAT + 1, "unheard": "of"})
    with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}.*up to format {FORMAT}"):
        change_of(b"/warren/c/q/v/q", value, 1, 1)


@pytest.mark.parametrize(
    ("group", "value"),
    [
        (b"", b'{"format":1,"node":"bkBo","durable":true}'),
        (
            b'{"version":1}',
            b'{"format":2,"node":"bkBo","durable":true,"group":"eyJ2ZXJzaW9uIjoxfQ=="}',
        ),
    ],
)
def test_value_of_a_queue_stays_as_it_was_published(group: bytes, value: bytes) -> None:
    """Only a mirrored queue needs format 2: an older warren reads all others."""
    queue = PutQueue(b"v", NO_ID, b"q", True, False, b"", node=b"n@h", group=group)
    assert value_of(queue) == value
    read = change_of(b"/warren/c/q/v/q", value, 5, 7)
    assert isinstance(read, PutQueue)
    assert (read.group, read.birth, read.revision) == (group, 5, 7)


def test_only_a_group_is_of_a_later_format() -> None:
    """Other definitions are written as before there were groups."""
    for change in (
        PutVhost(b"v", NO_ID),
        PutExchange(b"v", b"x", b"fanout", False, False, b""),
        PutParameter(b"v", "policy", "p", "{}"),
        PutBinding(b"v", b"x", b"q", True, b"k", b""),
    ):
        assert value_of(change).startswith(b'{"format":1')


def test_value_with_fields_of_the_same_format_that_are_unknown_is_read() -> None:
    value = msgspec.json.encode({"format": FORMAT, "durable": True, "unheard": "of"})
    queue = change_of(b"/warren/c/q/v/q", value, 3, 4)
    assert isinstance(queue, PutQueue)
    assert queue.durable and (queue.birth, queue.revision) == (3, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"/warren/c/q/v/q", b""),
        (b"/warren/c/q/v/q", b"{}"),
        (b"/warren/c/q/v/q", b'{"format":1,"durable":3}'),
        (b"/warren/c/q/v", b'{"format":1}'),
        (b"/warren/c/b/v/x/q/d/k", b'{"format":1}'),
        (b"/warren/c/params/v/%FF/n", b'{"format":1,"value":""}'),
    ],
)
def test_damaged_definition_is_named(key: bytes, value: bytes) -> None:
    with pytest.raises(MetadataDamaged, match=re.escape(key.decode())) as damaged:
        change_of(key, value, 1, 1)
    assert "\n" not in str(damaged.value)


def test_what_a_cluster_does_not_share_has_no_key() -> None:
    with pytest.raises(TypeError, match="PutReaderGroup"):
        key_of("c", PutReaderGroup(b"v", b"g", 1, ""))
    with pytest.raises(ValueError, match="name"):
        key_of("c", DeleteQueue(b"v", 7))
    with pytest.raises(TypeError, match="DeleteVhost"):
        value_of(DeleteVhost(b"v"))
