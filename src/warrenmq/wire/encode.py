"""Encodes frames (methods, contents, heartbeats) to a `BytesWriter` that the connection reuses.

All frames of a turn to one peer go into one buffer and out with one write, so encoding a frame is a
few appends; its length is patched in once it is known. `frame_max` is the negotiated limit and
counts whole frames, so a body frame carries at most `frame_max - 8` bytes. A header frame is never
split.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from warrenmq.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from warrenmq.wire.method import Method
from warrenmq.wire.primitives import U32_MAX, patch_long, write_long, write_octet, write_short

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_CLASS_BASIC_WEIGHT_0: Final = 60 << 16


def write_method_frame(out: BytesWriter, channel: i64, method: Method) -> None:
    """Append `method` as a frame.

    Raises ValueError for an argument out of its type's range; `out` then ends in a torn frame.
    """
    write_octet(out, FRAME_METHOD)
    write_short(out, channel)
    length_at: i64 = len(out)
    write_long(out, 0)
    # Class ids are small, so the sign bit of the id is never set.
    write_i32_be(out, i32(method.id))
    method.write_arguments(out)
    patch_long(out, length_at, len(out) - length_at - 4)
    out.append(FRAME_END)


def write_content(
    out: BytesWriter, channel: i64, properties: bytes, body: bytes, frame_max: i64
) -> None:
    """Append the header frame and the body frames of a message.

    `properties` is the raw block from the flag word on. An empty body has no body frame;
    `frame_max` 0 allows one frame of any size.
    """
    write_octet(out, FRAME_HEADER)
    write_short(out, channel)
    write_long(out, 12 + len(properties))
    write_i32_be(out, i32(_CLASS_BASIC_WEIGHT_0))
    size: i64 = len(body)
    write_i64_be(out, size)
    out.write(properties)
    out.append(FRAME_END)
    limit: i64 = frame_max - FRAME_OVERHEAD if frame_max > FRAME_OVERHEAD else U32_MAX
    if size <= limit:
        if size > 0:
            _write_body_frame(out, channel, body)
        return
    at: i64 = 0
    while at < size:
        _write_body_frame(out, channel, body[at : at + limit])
        at += limit


def write_heartbeat(out: BytesWriter) -> None:
    """Append a heartbeat frame."""
    out.write(HEARTBEAT_FRAME)


def _write_body_frame(out: BytesWriter, channel: i64, payload: bytes) -> None:
    write_octet(out, FRAME_BODY)
    write_short(out, channel)
    write_long(out, len(payload))
    out.write(payload)
    out.append(FRAME_END)
