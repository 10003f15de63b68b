"""A simulated disk for a journal or a content store without a file system: file name -> bytes.

A write that a failure or a crash interrupts leaves a first part of its bytes. Nothing else is lost:
writes reach this disk in order and count as synced. `simulator.simulated.file_system` loses
and reorders writes as a real disk does.
"""

from collections.abc import Iterable
from typing import TypeVar

Name = TypeVar("Name", int, str)


class DictDisk(dict[Name, bytes]):
    """Files by number or path."""

    def write(self, writes: Iterable[tuple[Name, int, bytes]], kept: float = 1.0) -> None:
        """Write bytes at an offset of a file, for each of `writes`; the file ends after them.

        Only the first `kept` (0 to 1) of all these bytes reach the disk. A byte at offset 0 creates
        a file; a write elsewhere in a file that does not exist is lost.
        """
        writes = list(writes)
        left = int(kept * sum(len(data) for _, _, data in writes))
        for name, offset, data in writes:
            written = data[:left]
            left -= len(written)
            if written and (offset == 0 or name in self):
                self[name] = self.get(name, b"")[:offset].ljust(offset, b"\0") + written
