"""Sizes of directories, and as people read them."""

import contextlib
import os
from pathlib import Path


def size_text(size: int) -> str:
    """`1536` bytes are `1.5 KiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def tree_bytes(path: Path) -> int:
    """Size of all files below `path`, as far as they can be seen."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(directory, name)).st_size
    return total
