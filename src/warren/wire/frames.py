"""Frames out of a byte stream, at any chunk boundary (AMQP 0-9-1 section 4.2.3).

`FrameBuffer` owns the bytes that have arrived and hands out one frame at a time as positions into them, so that a
publish costs no intermediate objects: the caller slices only what it keeps. A frame's size is checked against
`frame_max` on its 7-byte header, before the payload is waited for, so a peer cannot make us hold more than one
frame. Bytes of an unfinished frame are gathered in a list and joined once, so a peer that sends byte by byte costs
linear, not quadratic, work.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from warren.wire.errors import FRAME_ERROR, ConnectionException

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
# type u8, channel u16, size u32, end octet u8.
FRAME_OVERHEAD: Final = 8
FRAME_MIN_SIZE: Final = 4096

NEED_DATA: Final = -1


class FrameBuffer:
    """Incremental frame reader; `next_frame` returns a frame type or NEED_DATA.

    After a frame type was returned, `channel` is its channel number and `data[start:end]` its payload; these stay
    valid until the next call of `feed`. `frame_max` (bytes of payload, 0 = no limit) may be changed between frames.
    """

    def __init__(self, frame_max: i64) -> None:
        self.data: bytes = b""
        self.frame_max: i64 = frame_max
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self._position: i64 = 0
        # Bytes of a frame that is not whole yet, and how many are needed before another look is worth while.
        self._parts: list[bytes] = []
        self._parts_bytes: i64 = 0
        self._needed_bytes: i64 = 0

    def feed(self, data: bytes) -> None:
        """Append `data`, the next bytes of the stream. Positions of earlier frames become invalid."""
        if self._parts_bytes > 0:
            self._parts.append(data)
            self._parts_bytes += len(data)
            if self._parts_bytes < self._needed_bytes:
                return
            self.data = b"".join(self._parts)
            self._parts.clear()
            self._parts_bytes = 0
        elif self._position < len(self.data):
            # The caller stopped between two frames (back-pressure): what it has not taken comes first.
            self.data = self.data[self._position :] + data
        else:
            self.data = data
        self._position = 0

    def next_frame(self) -> i64:
        """Step to the next whole frame: its type, or NEED_DATA when the rest has not arrived.

        Raises ConnectionException 501 for a frame over `frame_max` or without its end octet.
        """
        if self._parts_bytes > 0:
            return NEED_DATA
        data = self.data
        position = self._position
        available: i64 = len(data) - position
        if available < 7:
            self._keep_rest(available, 7)
            return NEED_DATA
        kind: i64 = i64(data[position])
        size: i64 = i64(read_i32_be(data, position + 3)) & 0xFFFFFFFF
        if self.frame_max != 0 and size > self.frame_max:
            raise ConnectionException(
                FRAME_ERROR,
                f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{self.frame_max - FRAME_OVERHEAD}}}",
            )
        if available < size + FRAME_OVERHEAD:
            self._keep_rest(available, size + FRAME_OVERHEAD)
            return NEED_DATA
        end: i64 = position + 7 + size
        if data[end] != FRAME_END:
            raise ConnectionException(FRAME_ERROR, self._bad_end_text(kind, position + 7, end))
        self.channel = i64(read_i16_be(data, position + 1)) & 0xFFFF
        self.start = position + 7
        self.end = end
        self._position = end + 1
        return kind

    def rest(self) -> bytes:
        """The bytes behind the last frame handed out (for a switch of protocol); the buffer is empty afterwards."""
        rest = b"".join(self._parts) if self._parts_bytes > 0 else self.data[self._position :]
        self._parts.clear()
        self._parts_bytes = 0
        self.data = b""
        self._position = 0
        return rest

    def _keep_rest(self, available: i64, needed: i64) -> None:
        if available > 0:
            self._parts.append(self.data[self._position :])
            self._parts_bytes = available
            self._needed_bytes = needed
        # The caller has taken what it wants of this chunk; a reference would hold up to 256 KiB per idle connection.
        self.data = b""
        self._position = 0

    def _bad_end_text(self, kind: i64, start: i64, end: i64) -> str:
        size = end - start
        shown = self.data[start : min(end, start + 16)]
        octets = ",".join([str(octet) for octet in shown])
        label = "all" if size <= 16 else "first 16"
        return f"type {kind}, {label} octets = <<{octets}>>: {{invalid_frame_end_marker,{self.data[end]}}}"
