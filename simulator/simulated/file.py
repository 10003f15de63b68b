"""One file of the simulated disk: bytes the process sees, durable bytes, changes in between."""

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
        # End (bytes) of the allocated space, which reads as zeros. A number is enough, since most
        # of that space is never written.
        self.allocated = 0
        # End (bytes) of the allocated space after a power failure.
        self.durable_allocated = 0
        # Changes since the last sync, oldest first: (kind, offset or size, content).
        self.unsynced: list[tuple[int, int, bytes]] = []

    @property
    def size(self) -> int:
        """Size of the file in bytes, as stat reports it."""
        return max(len(self.data), self.allocated)

    def content(self, zeros_max: int) -> bytes:
        """The bytes written, and of the allocated space behind them at most `zeros_max` bytes."""
        return bytes(self.data).ljust(min(self.size, len(self.data) + zeros_max), b"\0")

    def apply(self, kind: int, offset: int, content: bytes) -> None:
        """Apply a change to the bytes that the process sees, and list it as unsynced."""
        self.allocated = _apply(self.data, self.allocated, kind, offset, content)
        self.unsynced.append((kind, offset, content))

    def sync(self) -> None:
        """Make every unsynced change durable."""
        for kind, offset, content in self.unsynced:
            self.durable_allocated = _apply(
                self.durable, self.durable_allocated, kind, offset, content
            )
        self.unsynced.clear()

    def lose(self, rng: Random) -> None:
        """Fail a sync: drop unsynced changes for good, or make them durable 1 in 5 times."""
        if rng.random() < 0.2:
            self.sync()
        self.unsynced.clear()

    def crash(self, rng: Random) -> None:
        """Lose power: keep, drop or tear each unsynced change; the rest is durable."""
        for kind, offset, content in self.unsynced:
            fate = rng.random()
            if kind == TRUNCATE:
                if fate < 0.5:
                    # Sizes change in order: later writes are in blocks that the file does not own.
                    break
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
                # Drop the content, but let the file grow (T9).
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
        """An equal file for another disk; every change must be synced."""
        twin = SimulatedFile()
        twin.data = self.data[:]
        twin.durable = self.durable[:]
        twin.allocated = self.allocated
        twin.durable_allocated = self.durable_allocated
        return twin


def _apply(data: bytearray, allocated: int, kind: int, offset: int, content: bytes) -> int:
    """Apply one change to `data`; returns the new end of the allocated space, in bytes."""
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
