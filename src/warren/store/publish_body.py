"""Decoding the body of a PUBLISH record, which a CONTENT record holds as well. Layout: `record.py`."""

from mypy_extensions import i64

from warren.store.message import Message
from warren.store.record import FLAG_PERSISTENT, POSITION_BYTES, read_u32, read_u64


def decode_message(data: bytes, start: i64, end: i64) -> Message | None:
    """The message of the PUBLISH body in data[start:end], or None when its parts do not add up.

    Its positions follow the count at `start`, POSITION_BYTES each.
    """
    if end - start < 4:
        return None
    at = start + 4 + read_u32(data, start) * POSITION_BYTES
    # Behind the positions: timestamp 8, flags 1, two short strings of at least 1 each.
    if end - at < 11:
        return None
    address_start = at + 9
    key_start = address_start + 1 + i64(data[address_start])
    if key_start >= end:
        return None
    properties_start = key_start + 1 + i64(data[key_start])
    if properties_start + 4 > end:
        return None
    body_start = properties_start + 4 + read_u32(data, properties_start)
    if body_start + 4 > end or body_start + 4 + read_u32(data, body_start) != end:
        return None
    return Message(
        data[address_start:properties_start],
        data[properties_start + 4 : body_start],
        data[body_start + 4 : end],
        (data[at + 8] & FLAG_PERSISTENT) != 0,
        read_u64(data, at),
    )
