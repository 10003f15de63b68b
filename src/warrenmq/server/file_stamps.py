"""Stamps of files of certificates, which tell that a file was written or replaced."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

# How often files of certificates are looked at (s).
WATCH_INTERVAL_S: Final = 2.0

# One for each file: time of its last change (ns), size (bytes), inode; None for one that is gone.
Stamps = tuple[tuple[int, int, int] | None, ...]


def stamps(paths: Sequence[Path]) -> Stamps:
    """The stamps of `paths`, in their order."""
    return tuple([_stamp(path) for path in paths])


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
