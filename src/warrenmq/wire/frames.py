"""Reads frames from a byte stream that is cut at any point (AMQP 0-9-1 section 4.2.3).

`FrameBuffer` owns the bytes that have arrived and returns one frame at a time, as positions in
these bytes, so that a publish costs no intermediate objects: the caller slices only the bytes it
keeps. A frame's size is checked against `frame_max` as soon as its 7-byte header is here, before
the payload has arrived, so a peer cannot make the broker buffer more than one frame. Bytes of a
partial frame are gathered in a list and joined once, with only the missing bytes of the chunk that
completes it. So a peer that sends byte by byte costs linear work, and of a large chunk only one
frame is copied.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from warrenmq.wire.errors import FRAME_ERROR, ConnectionException

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
# Bytes of a frame besides its payload: type u8, channel u16, size u32, end octet u8.
FRAME_OVERHEAD: Final = 8
FRAME_MIN_SIZE: Final = 4096

NEED_DATA: Final = -1


class FrameBuffer:
    """An incremental frame reader; `next_frame` returns a frame type or NEED_DATA.

    When `next_frame` has returned a type, `channel` is the frame's channel number and
    `data[start:end]` its payload; these stay valid until the next call of `next_frame` or `feed`.
    `frame_max` (bytes of payload, 0 = no limit) may be changed between frames.
    """

    def __init__(self, frame_max: i64) -> None:
        self.data: bytes = b""
        self.frame_max: i64 = frame_max
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self._position: i64 = 0
        # The chunk that completed the frame in `data`. Its bytes from `_later_position` on follow
        # `data`.
        self._later: bytes = b""
        self._later_position: i64 = 0
        # Pieces of the partial frame.
        self._parts: list[bytes] = []
        # Bytes of all pieces in `_parts`.
        self._parts_bytes: i64 = 0
        # Bytes that the partial frame needs before `next_frame` can make progress.
        self._needed_bytes: i64 = 0

    def feed(self, data: bytes) -> None:
        """Append `data`, the next bytes of the stream; earlier frame positions become invalid."""
        if self._parts_bytes > 0:
            missing = self._needed_bytes - self._parts_bytes
            if len(data) < missing:
                self._parts.append(data)
                self._parts_bytes += len(data)
                return
            self._parts.append(data[:missing])
            self.data = b"".join(self._parts)
            self._parts.clear()
            self._parts_bytes = 0
            self._later = data
            self._later_position = missing
        elif self._position < len(self.data) or self._later_position < len(self._later):
            # The caller stopped between two frames: the bytes it has not taken come first.
            self.data = self.data[self._position :] + self._later[self._later_position :] + data
            self._forget_later()
        else:
            self.data = data
            self._forget_later()
        self._position = 0

    def partial_bytes(self) -> i64:
        """Bytes of the partial frame that have arrived; 0 when there is none."""
        return self._parts_bytes

    def next_frame(self) -> i64:
        """Step to the next complete frame; returns its type, or NEED_DATA if it is incomplete.

        Raises ConnectionException 501 for a frame over `frame_max` or without its end octet.
        """
        if self._parts_bytes > 0:
            return NEED_DATA
        if self._position == len(self.data) and self._later_position < len(self._later):
            self.data = self._later
            self._position = self._later_position
            self._forget_later()
        if len(self.data) - self._position < 7 and not self._gather(7):
            return NEED_DATA
        data = self.data
        position = self._position
        kind: i64 = i64(data[position])
        size: i64 = i64(read_i32_be(data, position + 3)) & 0xFFFFFFFF
        if self.frame_max != 0 and size > self.frame_max:
            raise ConnectionException(
                FRAME_ERROR,
                f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{self.frame_max - FRAME_OVERHEAD}}}",
            )
        if len(data) - position < size + FRAME_OVERHEAD:
            if not self._gather(size + FRAME_OVERHEAD):
                return NEED_DATA
            data = self.data
            position = 0
        end: i64 = position + 7 + size
        if data[end] != FRAME_END:
            raise ConnectionException(FRAME_ERROR, self._bad_end_text(kind, position + 7, end))
        self.channel = i64(read_i16_be(data, position + 1)) & 0xFFFF
        self.start = position + 7
        self.end = end
        self._position = end + 1
        return kind

    def _gather(self, needed: i64) -> bool:
        """Put the next `needed` bytes at the front of `data`; False when they have not arrived."""
        rest = self.data[self._position :]
        missing = needed - len(rest)
        later = self._later
        if missing <= len(later) - self._later_position:
            self.data = rest + later[self._later_position : self._later_position + missing]
            self._position = 0
            self._later_position += missing
            return True
        rest += later[self._later_position :]
        if len(rest) > 0:
            self._parts.append(rest)
            self._parts_bytes = len(rest)
            self._needed_bytes = needed
        # The caller has copied the bytes it needs from these chunks. A reference to them would keep
        # up to 256 KiB per idle connection in memory.
        self.data = b""
        self._position = 0
        self._forget_later()
        return False

    def _forget_later(self) -> None:
        self._later = b""
        self._later_position = 0

    def _bad_end_text(self, kind: i64, start: i64, end: i64) -> str:
        size = end - start
        shown = self.data[start : min(end, start + 16)]
        octets = ",".join([str(octet) for octet in shown])
        label = "all" if size <= 16 else "first 16"
        return f"type {kind}, {label} octets = <<{octets}>>: {{invalid_frame_end_marker,{self.data[end]}}}"
