"""The body of one message while its frames arrive, in memory that grows with what has arrived and not with what was
announced.

Pieces wait in a list and are joined once: a small body takes its own size and, for the moment of the join, as much again.
From BLOCK_BYTES on they move to a `BytesIO` block by block. Its buffer grows in place (the system moves pages, not
bytes) and becomes the body without a copy, so a body of 128 MiB takes little more than 128 MiB at any moment.
"""

from io import BytesIO
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# Pieces below this size are gathered in one buffer: a body in frames of a few octets must not cost an object for each.
SMALL_PIECE_BYTES: Final = 1024
# Pieces of so many bytes together move to the buffer, or of a quarter of what is there if that is more: a buffer that
# must be copied to grow is copied a bounded number of times.
BLOCK_BYTES: Final = 4194304


class Body:
    """A body of `announced_bytes`, of which `received_bytes` have come."""

    def __init__(self, announced_bytes: i64) -> None:
        self.announced_bytes: i64 = announced_bytes
        self.received_bytes: i64 = 0
        # For `Throttle`: bytes that count as kept, and for how long (ms) the node has waited for the next piece.
        self.kept_bytes: i64 = 0
        self.idle_ms: i64 = 0
        self._parts: list[bytes] = []
        self._tail: BytesWriter = BytesWriter()
        self._buffer: BytesIO | None = None
        # Bytes that are not in the buffer yet.
        self._loose_bytes: i64 = 0

    def add(self, piece: bytes) -> None:
        """Take a piece that is not the last one."""
        size: i64 = len(piece)
        self.received_bytes += size
        self.idle_ms = 0
        self._loose_bytes += size
        if size < SMALL_PIECE_BYTES:
            self._tail.write(piece)
        else:
            self._flush_tail()
            self._parts.append(piece)
        loose = self._loose_bytes
        if loose >= BLOCK_BYTES and loose >= (self.received_bytes - loose) // 4:
            self._move()

    def finish(self, piece: bytes) -> bytes:
        """The whole body, now that its last piece is here; this object is of no more use."""
        self._flush_tail()
        self._parts.append(piece)
        if self._buffer is None:
            body = b"".join(self._parts)
            self._parts = []
            return body
        self._move()
        return self._buffer.getvalue()

    def _move(self) -> None:
        self._flush_tail()
        if self._buffer is None:
            self._buffer = BytesIO()
        self._buffer.writelines(self._parts)
        self._parts = []
        self._loose_bytes = 0

    def _flush_tail(self) -> None:
        if len(self._tail) > 0:
            self._parts.append(self._tail.getvalue())
            self._tail = BytesWriter()
