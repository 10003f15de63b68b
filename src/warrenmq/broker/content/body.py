"""The body of one message while its frames arrive.

Its memory grows with the bytes that have arrived, not with the size that was announced.

Pieces wait in a list and are joined once: a small body takes its own size and, during the join, the
same amount again. From BLOCK_BYTES on the pieces move to a `BytesIO` block by block. The buffer of
a `BytesIO` grows in place (the system moves pages, not bytes) and becomes the body without a copy,
so a body of 128 MiB never takes much more than 128 MiB.
"""

from io import BytesIO
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# Pieces below this size (bytes) are gathered in one buffer: a body in frames of a few octets must
# not cost an object for each frame.
SMALL_PIECE_BYTES: Final = 1024
# Pieces move to the buffer when they have this many bytes together, or a quarter of the buffer's
# size if that is more: even if growing means a copy, a buffer is copied only a bounded number of
# times.
BLOCK_BYTES: Final = 4194304


class Body:
    """A body of `announced_bytes`, of which `received_bytes` have arrived."""

    def __init__(self, announced_bytes: i64) -> None:
        self.announced_bytes: i64 = announced_bytes
        self.received_bytes: i64 = 0
        # Bytes that `Throttle` counts as kept.
        self.kept_bytes: i64 = 0
        # Time that the node has waited for the next piece (ms); `Throttle` advances it.
        self.idle_ms: i64 = 0
        self._parts: list[bytes] = []
        self._tail: BytesWriter = BytesWriter()
        self._buffer: BytesIO | None = None
        # Bytes of pieces that are not in the buffer yet.
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
        """Take the last piece and return the whole body; this object must not be used again."""
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
