"""Gives back the pages of code that only the start of a node runs.

Half of the code that a node has mapped once it is ready runs never again: what sets up modules,
reads the configuration and recovers. Its pages are those of files, so they can leave this process
and cost nothing but a look into the page cache when they are needed after all.
"""

import ctypes
import mmap
import re
from pathlib import Path
from typing import Final

# First and last address, permissions and file of a mapping.
_HEAD: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ +(/.*)")


def code_mappings(smaps: str) -> list[tuple[int, int]]:
    """Start and length (bytes) of the mappings that can be read again from their files.

    `smaps`: the text of /proc/PID/smaps. A mapping that can be written, or has a page that was (as
    the linker does before it takes the permission away), is none of them.
    """
    found: list[tuple[int, int]] = []
    for block in re.split(r"^(?=[0-9a-f]+-)", smaps, flags=re.MULTILINE):
        head = _HEAD.match(block)
        if head is None or "w" in head[3] or not re.search(r"^Anonymous: +0 kB", block, re.M):
            continue
        first = int(head[1], 16)
        found.append((first, int(head[2], 16) - first))
    return found


def release_code() -> None:
    """Give back the pages of all code of this process; what runs again is mapped again.

    Without /proc nothing happens.
    """
    try:
        smaps = Path("/proc/self/smaps").read_text()
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for first, length in code_mappings(smaps):
        madvise(first, length, mmap.MADV_DONTNEED)
