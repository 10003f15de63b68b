"""Space that is given back when the disk is full, so that what frees space still fits (W21).

Acks, checkpoints and the deletions that follow them need some bytes of disk before they give any back. A file of real
bytes stands for them: it is cut to nothing when a write finds no space, and made again when there is plenty.
"""

import contextlib
import errno
import logging
import threading
from typing import Final

from warrenmq.store.change_sets import DefinitionsError
from warrenmq.store.file_system import FileSystem

logger = logging.getLogger("warren.reserve")

RESERVE_PATH: Final = "msg_stores/reserve"
RESERVE_BYTES: Final = 33554432
# It is made again when this many times its size is free: not at the price of the next commit.
_PLENTY: Final = 4


class SpaceReserve:
    """The file at `path`, in a directory that exists. `on_error` may be called from any thread."""

    def __init__(
        self, files: FileSystem, path: str = RESERVE_PATH, size_bytes: int = RESERVE_BYTES
    ) -> None:
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self.is_held = False

    def on_error(self, error: Exception) -> None:
        """Release the reserve if a write failed for want of space; what failed may be tried again then."""
        if is_want_of_space(error):
            self.release()

    def release(self) -> None:
        """Give the space back."""
        with self._lock:
            if not self.is_held:
                return
            self.is_held = False
            try:
                self._resize(0)
            except OSError as failure:
                logger.error("the disk is full, and the reserve cannot be released: %s", failure)
                return
        logger.error("the disk is full: %d bytes of reserve are released", self._size_bytes)

    def keep(self) -> bool:
        """Have the reserve if the disk has room for it; to be called now and then. Is it there?"""
        with self._lock:
            if not self.is_held:
                with contextlib.suppress(OSError):
                    self.is_held = self._take()
            return self.is_held

    def _take(self) -> bool:
        directory = self._path.rpartition("/")[0]
        if not self._files.exists(self._path):
            self._files.create(self._path).close()
        elif self._files.size(self._path) == self._size_bytes:
            return True
        if self._files.free_bytes(directory) < _PLENTY * self._size_bytes:
            return False
        try:
            self._resize(self._size_bytes)
        except OSError:
            # Half a reserve is not worth its bytes on a disk that has none.
            self._resize(0)
            return False
        return True

    def _resize(self, size: int) -> None:
        handle = self._files.open(self._path)
        try:
            if size > 0:
                handle.allocate(0, size)
            else:
                handle.truncate(0)
            # Also a truncation gives its bytes back when it is on disk, and not before.
            handle.sync()
        finally:
            handle.close()


def is_want_of_space(error: Exception) -> bool:
    """May the error be that of a full disk, or of a quota? SQLite does not tell a quota from other failures of a write."""
    if isinstance(error, DefinitionsError):
        return error.may_be_full
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
