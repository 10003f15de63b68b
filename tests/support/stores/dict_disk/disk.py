"""The simulated disk under a journal or a content store that has no file system: a dict from a file's name to its bytes.

A write that a failure or a crash interrupts has left a first part of its bytes. Nothing else is lost: writes reach this
disk in order, and count as synced. `warrenmq.testing.simulated.file_system` forgets and reorders as a real disk does.
"""

from collections.abc import Iterable
from typing import TypeVar

Name = TypeVar("Name", int, str)


class DictDisk(dict[Name, bytes]):
    """Files by number or path."""

    def write(self, writes: Iterable[tuple[Name, int, bytes]], kept: float = 1.0) -> None:
        """Write bytes at an offset of a file, for each of `writes`; the file ends behind them.

        Of all these bytes only the first `kept` (0 to 1) reach the disk. A file begins to exist with a byte at offset 0;
        a write elsewhere in a file that does not exist is lost.
        """
        writes = list(writes)
        left = int(kept * sum(len(data) for _, _, data in writes))
        for name, offset, data in writes:
            written = data[:left]
            left -= len(written)
            if written and (offset == 0 or name in self):
                self[name] = self.get(name, b"")[:offset].ljust(offset, b"\0") + written
