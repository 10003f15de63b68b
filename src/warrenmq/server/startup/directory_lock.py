"""The lock of a data directory, which the system frees when the process that holds it ends."""

import fcntl
import os
from pathlib import Path

from warrenmq.server.startup.definitions_file import DataDirectoryError


def lock_directory(directory: Path, in_use: str) -> int:
    """Lock `directory` by the file `lock` in it; returns the descriptor, which holds the lock.

    Raises OSError, and DataDirectoryError with the text `in_use` when another process holds it.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataDirectoryError(in_use) from None
    return descriptor
