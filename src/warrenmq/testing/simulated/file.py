"""One file of the simulated disk: its bytes as the process sees them, as they are durable, and changes in between."""

from __future__ import annotations

from random import Random
from typing import Final

SECTOR_BYTES: Final = 512

# Kinds of unsynced changes.
WRITE: Final = 0
TRUNCATE: Final = 1
ALLOCATE: Final = 2


class SimulatedFile:
    """One inode."""

    __slots__ = ("allocated", "data", "durable", "durable_allocated", "unsynced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # Sizes in bytes up to which there is space, as zeros: kept as numbers, since most of it is never written.
        self.allocated = 0
        self.durable_allocated = 0
        self.unsynced: list[tuple[int, int, bytes]] = []

    @property
    def size(self) -> int:
        """As stat tells it, in bytes."""
        return max(len(self.data), self.allocated)

    def apply(self, kind: int, offset: int, content: bytes) -> None:
        """Change what the process sees, and remember that it is not synced."""
        self.allocated = _apply(self.data, self.allocated, kind, offset, content)
        self.unsynced.append((kind, offset, content))

    def sync(self) -> None:
        """Everything unsynced is on the platter."""
        for kind, offset, content in self.unsynced:
            self.durable_allocated = _apply(
                self.durable, self.durable_allocated, kind, offset, content
            )
        self.unsynced.clear()

    def lose(self, rng: Random) -> None:
        """A sync failed: unsynced writes are clean pages now that never reach the platter, or reached it by luck."""
        if rng.random() < 0.2:
            self.sync()
        self.unsynced.clear()

    def crash(self, rng: Random) -> None:
        """Lose power: keep, drop or tear each unsynced change, and reduce the file to its durable bytes."""
        for kind, offset, content in self.unsynced:
            fate = rng.random()
            if kind == TRUNCATE:
                if fate < 0.5:
                    break  # Sizes are changed in order: what was written behind it is in blocks nobody points at.
                self.durable_allocated = _apply(
                    self.durable, self.durable_allocated, kind, offset, b""
                )
            elif kind == ALLOCATE or fate < 0.45:
                self.durable_allocated = _apply(
                    self.durable, self.durable_allocated, kind, offset, content
                )
            elif fate < 0.7:
                self._tear(rng, offset, content)
            elif fate < 0.85:
                # Dropped, but the file has grown (T9).
                self.durable_allocated = max(self.durable_allocated, offset + len(content))
        self.unsynced.clear()
        self.data[:] = self.durable
        self.allocated = self.durable_allocated

    def _tear(self, rng: Random, offset: int, content: bytes) -> None:
        if rng.random() < 0.5:
            kept = content[: rng.randrange(len(content) + 1)]
            _apply(self.durable, 0, WRITE, offset, kept)
            if rng.random() < 0.5:
                self.durable_allocated = max(self.durable_allocated, offset + len(content))
            return
        end = offset + len(content)
        start = offset
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                _apply(self.durable, 0, WRITE, start, content[start - offset : stop - offset])
            start = stop
        self.durable_allocated = max(self.durable_allocated, end)

    def copy(self) -> SimulatedFile:
        """An equal one, for a disk of its own; everything must be synced."""
        twin = SimulatedFile()
        twin.data = self.data[:]
        twin.durable = self.durable[:]
        twin.allocated = self.allocated
        twin.durable_allocated = self.durable_allocated
        return twin


def _apply(data: bytearray, allocated: int, kind: int, offset: int, content: bytes) -> int:
    """Apply one change to `data`; returns up to where there is space now."""
    if kind == WRITE:
        if offset > len(data):
            data.extend(bytes(offset - len(data)))
        data[offset : offset + len(content)] = content
        return allocated
    if kind == TRUNCATE:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return min(allocated, offset)
    return max(allocated, offset)
