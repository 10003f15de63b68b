"""Frames of a node link: how payloads become bytes, and bytes payloads again.

A frame is the length of its payload (u32, big-endian), a kind (u8) and the payload. Kinds below
FIRST_KIND are the link's own; handlers choose theirs from FIRST_KIND up.

A payload above CHUNK_BYTES travels in chunks, so that urgent frames can go between them:

    CHUNK_START  kind u8 · length of the whole payload u32
    CHUNK        the next bytes of that payload, at least one; repeated until it is complete

Frames wait in two lanes. CONTROL frames, and the link's own, go before all DATA frames that wait;
within a lane the order of sending is kept. One `FrameQueue.take` returns at most CHUNK_BYTES of
DATA, so a sender that takes no more before the socket wants more makes a CONTROL frame wait for one
chunk at most. Only DATA payloads are chunked, and they leave one after the other: a reader has at
most one unfinished payload.

Every length is checked on its header, against `FrameReader.payload_max`, before a byte of payload
is kept. Memory is used only for bytes that have arrived.
"""

from collections import deque
from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64, mypyc_attr

# Kinds of the link itself.
HELLO: Final = 1
CHALLENGE: Final = 2
PROOF: Final = 3
WELCOME: Final = 4
REFUSE: Final = 5
PING: Final = 6
CHUNK_START: Final = 7
CHUNK: Final = 8
# First kind for handlers, and the last one.
FIRST_KIND: Final = 16
LAST_KIND: Final = 255

# Lanes.
CONTROL: Final = 0
DATA: Final = 1

HEADER_BYTES: Final = 5
# Largest payload of one frame; a larger payload is chunked.
CHUNK_BYTES: Final = 131072
# Largest payload that a handler may send: a message of the largest max_message_size (512 MiB), with
# room for what travels beside it.
PAYLOAD_BYTES_MAX: Final = 1 << 30

# Results of `FrameReader.next_frame` besides kinds.
NEED_DATA: Final = -1
BAD_FRAME: Final = -2

_CHUNK_START_BYTES: Final = 5
# DATA payloads of at least this size are sent by reference; smaller ones are cheaper to copy.
_BY_REFERENCE_BYTES: Final = 4096
# No header has been read: the length of the payload is not known.
_NO_FRAME: Final = -1


@mypyc_attr(native_class=True)
class FrameReader:
    """Cuts a byte stream into frames; `next_frame` returns a kind, NEED_DATA or BAD_FRAME.

    After a kind, `payload` is the whole payload of that frame; chunks have been joined. After
    BAD_FRAME, `fault` says what is wrong with the stream, and no call reads any more of it.
    `payload_max` (bytes) may be changed between frames.
    """

    def __init__(self, payload_max: i64) -> None:
        self.payload_max: i64 = payload_max
        self.payload: bytes = b""
        self.fault: str = ""
        self._data: bytes = b""
        self._position: i64 = 0
        # Bytes of a header that is not complete.
        self._header: bytes = b""
        self._kind: i64 = 0
        # Bytes that the payload of the current frame lacks; _NO_FRAME between two frames.
        self._missing_bytes: i64 = _NO_FRAME
        # Pieces of a payload that is no chunk and has not arrived whole.
        self._pieces: list[bytes] = []
        # Kind of the chunked payload that is arriving; 0: none is.
        self._chunked_kind: i64 = 0
        self._chunked_missing_bytes: i64 = 0
        self._chunked_pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Add `data`, the next bytes of the stream."""
        if self._position < len(self._data):
            # The caller stopped between two frames: the bytes it has not taken come first.
            self._data = self._data[self._position :] + data
        else:
            self._data = data
        self._position = 0

    def next_frame(self) -> i64:
        """Step to the next whole frame and return its kind; NEED_DATA if it has not arrived."""
        while self.fault == "":
            if self._missing_bytes == _NO_FRAME and not self._read_header():
                break
            piece = self._take_piece()
            if self._kind == CHUNK:
                # Pieces of chunks are gathered as they arrive, and joined once.
                self._chunked_missing_bytes -= len(piece)
                _append(self._chunked_pieces, piece)
                if self._missing_bytes > 0:
                    return NEED_DATA
                self._missing_bytes = _NO_FRAME
                if self._chunked_missing_bytes == 0:
                    return self._finish_chunked()
                continue
            if self._missing_bytes > 0:
                _append(self._pieces, piece)
                return NEED_DATA
            self._missing_bytes = _NO_FRAME
            if len(self._pieces) > 0:
                self._pieces.append(piece)
                piece = b"".join(self._pieces)
                self._pieces.clear()
            if self._kind != CHUNK_START:
                self.payload = piece
                return self._kind
            self._start_chunked(piece)
        return NEED_DATA if self.fault == "" else BAD_FRAME

    def _read_header(self) -> bool:
        """Read and check the next header; False when it has not arrived, or has a fault."""
        data = self._data
        position = self._position
        header = self._header
        if len(header) > 0 or len(data) - position < HEADER_BYTES:
            lacking: i64 = HEADER_BYTES - len(header)
            header += data[position : position + lacking]
            if len(header) < HEADER_BYTES:
                self._header = header
                self._forget_data()
                return False
            self._header = b""
            self._position = position + lacking
            data = header
            position = 0
        else:
            self._position = position + HEADER_BYTES
        size: i64 = i64(read_i32_be(data, position)) & 0xFFFFFFFF
        kind: i64 = i64(data[position + 4])
        self.fault = self._header_fault(kind, size)
        self._kind = kind
        self._missing_bytes = size
        return self.fault == ""

    def _header_fault(self, kind: i64, size: i64) -> str:
        if size > CHUNK_BYTES or size > self.payload_max:
            return f"a frame of kind {kind} has {size} bytes"
        if kind == CHUNK:
            if self._chunked_kind == 0:
                return "a chunk belongs to no payload"
            if size == 0 or size > self._chunked_missing_bytes:
                return (
                    f"a chunk has {size} bytes, and its payload lacks {self._chunked_missing_bytes}"
                )
        elif kind == CHUNK_START and self._chunked_kind != 0:
            return "a chunked payload begins before the last one has ended"
        return ""

    def _take_piece(self) -> bytes:
        """The bytes of the current payload that are here."""
        start = self._position
        end: i64 = start + self._missing_bytes
        if end >= len(self._data):
            end = len(self._data)
        self._position = end
        self._missing_bytes -= end - start
        piece = self._data[start:end]
        if end == len(self._data):
            self._forget_data()
        return piece

    def _forget_data(self) -> None:
        # A reference would keep up to 256 KiB for each idle link in memory.
        self._data = b""
        self._position = 0

    def _start_chunked(self, payload: bytes) -> None:
        if len(payload) != _CHUNK_START_BYTES:
            self.fault = f"the start of a chunked payload has {len(payload)} bytes"
            return
        kind: i64 = i64(payload[0])
        size: i64 = i64(read_i32_be(payload, 1)) & 0xFFFFFFFF
        if kind < FIRST_KIND or size == 0 or size > self.payload_max:
            self.fault = f"a chunked payload of kind {kind} has {size} bytes"
            return
        self._chunked_kind = kind
        self._chunked_missing_bytes = size

    def _finish_chunked(self) -> i64:
        kind = self._chunked_kind
        self.payload = b"".join(self._chunked_pieces)
        self._chunked_pieces.clear()
        self._chunked_kind = 0
        return kind


@mypyc_attr(native_class=True, acyclic=True)
class _WaitingFrame:
    """A frame in the DATA lane."""

    def __init__(self, kind: i64, payload: bytes) -> None:
        self.kind: i64 = kind
        self.payload: bytes = payload


@mypyc_attr(native_class=True)
class FrameQueue:
    """Frames on their way to a socket, by lane."""

    def __init__(self) -> None:
        # CONTROL frames, and those of the link itself, encoded.
        self._first: BytesWriter = BytesWriter()
        self._data: deque[_WaitingFrame] = deque()
        # Payload bytes of `_data` that have not been taken, and a header for each frame.
        self._data_bytes: i64 = 0
        # Bytes of the first frame of `_data` that were taken as chunks.
        self._taken_bytes: i64 = 0

    @property
    def size_bytes(self) -> i64:
        """Bytes that wait here; the headers of chunks are not counted."""
        return len(self._first) + self._data_bytes

    def add_first(self, kind: i64, payload: bytes) -> None:
        """Add a frame that goes before all DATA; its payload has at most CHUNK_BYTES."""
        _write_header(self._first, kind, len(payload))
        self._first.write(payload)

    def add_data(self, kind: i64, payload: bytes) -> None:
        """Add a frame to the DATA lane."""
        self._data.append(_WaitingFrame(kind, payload))
        self._data_bytes += HEADER_BYTES + len(payload)

    def clear(self) -> None:
        """Drop all frames."""
        self._first.truncate(0)
        self._data.clear()
        self._data_bytes = 0
        self._taken_bytes = 0

    def take(self) -> list[bytes | memoryview]:
        """Remove the next bytes to send: all first frames, then at most CHUNK_BYTES of DATA.

        Headers are not counted. The caller sends the parts in this order. Empty when nothing waits.
        """
        parts: list[bytes | memoryview] = []
        out = self._first
        room: i64 = CHUNK_BYTES
        while room > 0 and len(self._data) > 0:
            frame = self._data[0]
            payload = frame.payload
            size: i64 = len(payload)
            if size > CHUNK_BYTES:
                piece = self._take_chunk(out, frame, size, room)
                room -= len(piece)
                self._refer_to(parts, piece)
                continue
            if size > room:
                break
            self._data.popleft()
            self._data_bytes -= HEADER_BYTES + size
            room -= size
            _write_header(out, frame.kind, size)
            if size < _BY_REFERENCE_BYTES:
                out.write(payload)
            else:
                self._refer_to(parts, payload)
        self._flush(parts)
        return parts

    def _take_chunk(
        self, out: BytesWriter, frame: _WaitingFrame, size: i64, room: i64
    ) -> memoryview:
        start = self._taken_bytes
        if start == 0:
            _write_header(out, CHUNK_START, _CHUNK_START_BYTES)
            out.append(frame.kind)
            write_i32_be(out, i32(size))
        end: i64 = start + room if size - start > room else size
        _write_header(out, CHUNK, end - start)
        self._data_bytes -= end - start
        if end == size:
            self._data.popleft()
            self._data_bytes -= HEADER_BYTES
            self._taken_bytes = 0
        else:
            self._taken_bytes = end
        return memoryview(frame.payload)[start:end]

    def _refer_to(self, parts: list[bytes | memoryview], piece: bytes | memoryview) -> None:
        self._flush(parts)
        parts.append(piece)

    def _flush(self, parts: list[bytes | memoryview]) -> None:
        if len(self._first) > 0:
            parts.append(self._first.getvalue())
            self._first.truncate(0)


def _append(pieces: list[bytes], piece: bytes) -> None:
    if len(piece) > 0:
        pieces.append(piece)


def _write_header(out: BytesWriter, kind: i64, size: i64) -> None:
    write_i32_be(out, i32(size))
    out.append(kind)
