"""Records between replicas arrive as they were sent; anything else is refused by one error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.cluster.mirrors.records import (
    DURABLE,
    FAILED,
    NEWBORN,
    NEWER,
    RING,
    SYNC_FIRST,
    SYNC_LAST,
    UNKNOWN,
    DurableRecord,
    FailedRecord,
    Heard,
    MalformedMirrorRecord,
    MirrorRecord,
    NewerRecord,
    RingRecord,
    SyncRecord,
    decode_message,
    decode_record,
    encode_message,
    encode_record,
    key_of,
)

NUMBERS = st.integers(0, (1 << 63) - 1)
RECORDS: st.SearchStrategy[MirrorRecord] = st.one_of(
    st.builds(RingRecord, st.binary(max_size=40)),
    st.builds(DurableRecord, NUMBERS, NUMBERS),
    st.builds(FailedRecord, NUMBERS),
    st.builds(NewerRecord, NUMBERS),
    st.builds(SyncRecord, st.integers(SYNC_FIRST, SYNC_LAST), st.binary(max_size=40)),
)


@given(NUMBERS, RECORDS)
def test_a_record_arrives_as_it_was_sent(key: int, record: MirrorRecord) -> None:
    payload = encode_record(key, record)
    assert key_of(payload) == key
    assert decode_record(payload) == record


@given(st.binary(max_size=40))
def test_no_bytes_do_more_than_be_refused(payload: bytes) -> None:
    try:
        record = decode_record(payload)
    except MalformedMirrorRecord:
        return
    assert encode_record(key_of(payload), record) == payload


@pytest.mark.parametrize("kind", [DURABLE, FAILED, NEWER])
def test_numbers_are_whole_and_not_negative(kind: int) -> None:
    whole: dict[int, MirrorRecord] = {
        DURABLE: DurableRecord(1, 1),
        FAILED: FailedRecord(1),
        NEWER: NewerRecord(1),
    }
    payload = encode_record(7, whole[kind])
    for broken in (payload[:-1], payload + b"\x00", payload[:9] + b"\xff" * (len(payload) - 9)):
        with pytest.raises(MalformedMirrorRecord):
            decode_record(broken)


@pytest.mark.parametrize("kind", [0, 5, SYNC_FIRST - 1, SYNC_LAST + 1, 255])
def test_unknown_kinds_are_refused(kind: int) -> None:
    payload = encode_record(7, RingRecord(b""))
    assert payload[8] == RING
    with pytest.raises(MalformedMirrorRecord):
        decode_record(payload[:8] + bytes([kind]) + b"rest")


def test_a_ring_message_has_its_number() -> None:
    assert decode_message(encode_message(3, b"operations")) == (3, NEWBORN, b"operations")
    heard = Heard(4, 5)
    assert decode_message(encode_message(1, b"operations", heard)) == (1, heard, b"operations")
    never = decode_message(encode_message(1, b"", UNKNOWN))[1]
    assert never > Heard(1 << 40, 1 << 40), "no mirror can have heard as much"
    for broken in (b"", b"\x00" * 7, encode_message(0, b"x"), b"\xff" * 8, b"\x00" * 7 + b"\x01"):
        with pytest.raises(MalformedMirrorRecord):
            decode_message(broken)
