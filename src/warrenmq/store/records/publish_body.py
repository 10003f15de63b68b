"""Decoding the body of a PUBLISH record, which a CONTENT record contains too.

The layout is in `record.py`.
"""

from mypy_extensions import i64

from warrenmq.store.model.message import Message
from warrenmq.store.records.record import FLAG_PERSISTENT, POSITION_BYTES, read_u32, read_u64

# Offsets of the parts of a PUBLISH body: timestamp, address (two short strings), properties, body.
# Address and properties each end four bytes before the next part begins: there its length is.
Bounds = tuple[i64, i64, i64, i64]


def message_bounds(data: bytes, start: i64, end: i64, has_body: bool = True) -> Bounds:
    """Offsets in `data` of timestamp, address, properties and body; first is -1 for a bad layout.

    The PUBLISH body is data[start:end]; the layout is bad when its parts do not add up. Without
    `has_body` it is the body of a PUBLISH_HEAD, which ends where the message's body would begin.

    The positions follow the count at `start`, POSITION_BYTES each; a byte of flags is between
    timestamp and address.
    """
    nothing: Bounds = (-1, -1, -1, -1)
    if end - start < 4:
        return nothing
    at = start + 4 + read_u32(data, start) * POSITION_BYTES
    # Behind the positions: timestamp 8, flags 1, two short strings of at least 1 byte each.
    if end - at < 11:
        return nothing
    address_start = at + 9
    key_start = address_start + 1 + i64(data[address_start])
    if key_start >= end:
        return nothing
    properties_start = key_start + 1 + i64(data[key_start])
    if properties_start + 4 > end:
        return nothing
    body_start = properties_start + 4 + read_u32(data, properties_start)
    if body_start + 4 > end:
        return nothing
    if body_start + 4 + (read_u32(data, body_start) if has_body else 0) != end:
        return nothing
    return at, address_start, properties_start + 4, body_start + 4


def decode_message(data: bytes, start: i64, end: i64) -> Message | None:
    """The message of the PUBLISH body in data[start:end], or None when its parts do not add up."""
    at, address_start, properties_start, body_start = message_bounds(data, start, end)
    if at < 0:
        return None
    return Message(
        data[address_start : properties_start - 4],
        data[properties_start : body_start - 4],
        data[body_start:end],
        (data[at + 8] & FLAG_PERSISTENT) != 0,
        read_u64(data, at),
    )
