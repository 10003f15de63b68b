"""Frames of a ring: what is encoded is decoded again, and other bytes are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.cluster.ring.frames import (
    ACTIVITY,
    ASK,
    CATCHUP,
    MalformedRingFrame,
    RingEntry,
    decode,
    encode_ask,
    encode_entries,
)
from warrenmq.cluster.ring.view import MemberId

A = MemberId(1, b"a@one")
B = MemberId(7, b"b@two")

numbers = st.integers(0, (1 << 62) - 1)
members = st.builds(MemberId, numbers, st.binary(max_size=255))
entries = st.builds(
    lambda sender, first, behind, pubs: RingEntry(sender, first, pubs, max(first - behind, -1)),
    members,
    numbers,
    st.integers(1, 9),
    st.lists(st.binary(max_size=20), max_size=4),
)


def fields(entry: RingEntry) -> tuple[MemberId, int, list[bytes], int]:
    return entry.sender, entry.first, entry.pubs, entry.acked


@given(
    st.sampled_from((ACTIVITY, CATCHUP)),
    numbers,
    st.lists(entries, max_size=4, unique_by=lambda entry: entry.sender),
)
def test_entries_are_decoded_as_they_were(kind: int, version: int, sent: list[RingEntry]) -> None:
    frame = decode(encode_entries(kind, version, sent))
    assert (frame.kind, frame.version, frame.members) == (kind, version, [])
    assert [fields(entry) for entry in frame.entries] == [fields(entry) for entry in sent]


@given(numbers, st.lists(members, max_size=4))
def test_a_question_is_decoded_as_it_was(version: int, sent: list[MemberId]) -> None:
    frame = decode(encode_ask(version, sent))
    assert (frame.kind, frame.version, frame.entries) == (ASK, version, [])
    assert frame.members == sent


def test_the_bytes_of_a_frame() -> None:
    entry = RingEntry(A, 5, [b"xyz", b""], 3)
    assert encode_entries(ACTIVITY, 9, [entry]) == bytes.fromhex(
        "01 0000000000000009"
        "0000000000000001 05 6140 6f6e65"
        "0000000000000005 0000000000000003 00000002"
        "00000003 78797a 00000000"
    )
    assert encode_ask(9, [B]) == bytes.fromhex(
        "03 0000000000000009 0000000000000007 05 6240 74776f"
    )


def test_the_last_number_of_an_entry() -> None:
    assert RingEntry(A, 5, [b"x", b"y"], 3).last == 6
    assert RingEntry(A, 0, [], -1).last == -1


def test_a_frame_that_ends_early_is_refused() -> None:
    whole = encode_entries(CATCHUP, 9, [RingEntry(A, 5, [b"xyz"], 3), RingEntry(B, 0, [], -1)])
    # After the version and after each entry a frame may end.
    ends = {9, len(encode_entries(CATCHUP, 9, [RingEntry(A, 5, [b"xyz"], 3)])), len(whole)}
    for end in range(len(whole) + 1):
        if end in ends:
            decode(whole[:end])
        else:
            with pytest.raises(MalformedRingFrame):
                decode(whole[:end])


@pytest.mark.parametrize(
    "payload",
    [
        encode_entries(4, 9, []),
        encode_entries(0, 9, []),
        encode_entries(ACTIVITY, -1, []),
        encode_entries(ACTIVITY, 1 << 62, []),
        encode_entries(ACTIVITY, 9, [RingEntry(A, -1, [], -2)]),
        encode_entries(ACTIVITY, 9, [RingEntry(A, 1 << 62, [], 0)]),
        encode_entries(ACTIVITY, 9, [RingEntry(A, 5, [b"x"], 5)]),
        encode_entries(ACTIVITY, 9, [RingEntry(A, 5, [b"x"], -2)]),
        encode_entries(ACTIVITY, 9, [RingEntry(MemberId(-1, b"a"), 5, [b"x"], 4)]),
        encode_entries(ACTIVITY, 9, [RingEntry(A, 5, [], 4), RingEntry(A, 5, [], 4)]),
        encode_ask(9, [MemberId(1 << 62, b"a")]),
    ],
)
def test_impossible_values_are_refused(payload: bytes) -> None:
    with pytest.raises(MalformedRingFrame):
        decode(payload)


@given(st.sampled_from((ACTIVITY, CATCHUP, ASK, 9)), st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(kind: int, rest: bytes) -> None:
    for payload in (rest, bytes([kind]) + bytes(8) + rest):
        with suppress(MalformedRingFrame):
            decode(payload)
