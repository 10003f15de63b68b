"""Sizes of directories, and sizes as text for people."""

import contextlib
import os
from pathlib import Path


def size_text(size: int) -> str:
    """A size in bytes as text for people: 1536 gives `1.5 KiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def tree_bytes(path: Path) -> int:
    """Bytes of all files below `path` that this process can see."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(directory, name)).st_size
    return total


def writes_text(written_bytes: int, published_bytes: int, amplification: float) -> str:
    """Bytes written and published, and the write amplification, as text for people."""
    return (
        f"{size_text(written_bytes)} written for {size_text(published_bytes)} published: "
        f"write amplification {amplification:.2f}"
    )
