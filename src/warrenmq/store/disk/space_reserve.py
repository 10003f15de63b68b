"""The space reserve: disk space released when the disk is full, for writes that free space (W21).

Acks, checkpoints and the deletions that follow them need some bytes of disk before they free any. A
file of allocated bytes reserves these: it is truncated when a write finds no space, and allocated
again when there is plenty.
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from warrenmq.store.file_system import FileSystem
from warrenmq.store.journal.change_sets import DefinitionsError

logger = logging.getLogger("warren.reserve")

RESERVE_PATH: Final = "msg_stores/reserve"
RESERVE_BYTES: Final = 33554432
# The reserve is allocated again when this many times its size is free, so that the next commit does
# not lack the space.
_PLENTY: Final = 4

_Result = TypeVar("_Result")


class SpaceReserve:
    """The reserve file at `path`, in an existing directory. Any thread may call `on_error`."""

    def __init__(
        self, files: FileSystem, path: str = RESERVE_PATH, size_bytes: int = RESERVE_BYTES
    ) -> None:
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self.is_held = False

    def on_error(self, error: Exception) -> None:
        """Release the reserve if `error` means that space is short; a retry may then succeed."""
        if is_want_of_space(error):
            self.release()

    def helps(self, write: Callable[[], _Result]) -> _Result:
        """The result of `write`, which finds the space of the reserve if it lacks space.

        `write` is then called once more. Raises what it raises.
        """
        try:
            return write()
        except (OSError, DefinitionsError) as error:
            if not is_want_of_space(error):
                raise
        self.release()
        return write()

    def release(self) -> None:
        """Free the space of the reserve."""
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
        """Allocate the reserve if the disk has room; call it now and then. True: it is there."""
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
            # Half a reserve is not worth its bytes on a full disk.
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
            # A truncation too frees its bytes only when it is synced.
            handle.sync()
        finally:
            handle.close()


def is_want_of_space(error: Exception) -> bool:
    """Whether a full disk or a quota may have caused the error.

    SQLite reports an exceeded quota like any other failed write.
    """
    if isinstance(error, DefinitionsError):
        return error.may_be_full
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
