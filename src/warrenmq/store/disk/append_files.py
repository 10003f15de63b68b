"""Keeps the files that are appended to open while they are in use: the segments of busy queues."""

import contextlib
import errno
from collections import OrderedDict
from typing import Final

from warrenmq.store.file_system import FileHandle, FileSystem

# Files open at the same time.
OPEN_MAX: Final = 64


class FileGoneError(FileNotFoundError):
    """The file is gone or shorter than it was: `found_bytes` of it are left."""

    def __init__(self, path: str, found_bytes: int, offset: int) -> None:
        cause = "an append before has failed, or " if found_bytes > 0 else ""
        super().__init__(
            errno.ENOENT,
            f"{found_bytes} bytes are left of {offset}, {cause}somebody has deleted it",
            path,
        )
        self.found_bytes = found_bytes


class _OpenFile:
    __slots__ = ("end", "handle", "is_dirty")

    def __init__(self, handle: FileHandle, end: int) -> None:
        self.handle = handle
        # Size in bytes.
        self.end = end
        self.is_dirty = False


class AppendFiles:
    """The open files of a vhost, at most OPEN_MAX; the least recently used one is closed first."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        # Open files by path; the file used last is at the end.
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        # A file was closed without a sync: if its write-back fails, only `sync_all` reports that.
        self.has_closed_dirty = False

    def append(
        self, path: str, offset: int, parts: list[bytes], is_new: bool, may_fill: bool = False
    ) -> None:
        """Write `parts` at `offset`, after cutting off the bytes behind it.

        `is_new`: create the file if it does not exist. `may_fill`: fill a file that is shorter than
        `offset` with zeros. FileGoneError when the file is gone, or shorter without `may_fill`.
        """
        file = self._open.get(path)
        if file is None or file.end != offset:
            if file is not None:
                self._close_unsynced(path)
            file = _OpenFile(self._reopen(path, offset, is_new, may_fill), offset)
            self._open[path] = file
            self._close_oldest()
        file.is_dirty = True
        try:
            file.handle.write(offset, parts)
        except OSError:
            # The file's size is unknown after a failed write: the next append opens it and checks.
            self._close_unsynced(path)
            raise
        if not file.handle.is_named():
            self.close(path)
            raise FileGoneError(path, 0, offset)
        file.end = offset + sum(map(len, parts))
        self._open.move_to_end(path)

    def handle_to_sync(self, path: str) -> tuple[FileHandle, bool]:
        """A handle of the file, and whether the caller must close it; FileNotFoundError if gone."""
        file = self._open.get(path)
        if file is not None:
            return file.handle, False
        return self._files.open(path), True

    def is_gone(self, path: str) -> bool:
        """Whether the file is open but its name was deleted."""
        file = self._open.get(path)
        return file is not None and not file.handle.is_named()

    def on_synced(self, path: str) -> None:
        """Note that all bytes of the file are synced."""
        file = self._open.get(path)
        if file is not None:
            file.is_dirty = False

    def on_all_synced(self) -> None:
        """Note that all bytes of every file are synced."""
        self.has_closed_dirty = False
        for file in self._open.values():
            file.is_dirty = False

    def close(self, path: str) -> None:
        """Close the file if it is open: its bytes or its name are about to change or go."""
        file = self._open.pop(path, None)
        if file is not None:
            with contextlib.suppress(OSError):
                file.handle.close()

    def close_all(self) -> None:
        """Close all files: no append follows."""
        for path in list(self._open):
            self._close_unsynced(path)

    def _close_unsynced(self, path: str) -> None:
        self.has_closed_dirty = self.has_closed_dirty or self._open[path].is_dirty
        self.close(path)

    def _close_oldest(self) -> None:
        if len(self._open) > OPEN_MAX:
            self._close_unsynced(next(iter(self._open)))

    def _reopen(self, path: str, offset: int, is_new: bool, may_fill: bool) -> FileHandle:
        try:
            handle = self._create(path) if is_new else self._files.open(path)
        except FileNotFoundError:
            if is_new:
                raise
            raise FileGoneError(path, 0, offset) from None
        try:
            size = self._files.size(path)
            if size < offset and not may_fill:
                raise FileGoneError(path, size, offset)
            if size != offset:
                handle.truncate(offset)
        except OSError:
            with contextlib.suppress(OSError):
                handle.close()
            raise
        return handle

    def _create(self, path: str) -> FileHandle:
        try:
            return self._files.create(path)
        except FileExistsError:
            # An append before a failure or a crash has created it.
            return self._files.open(path)
        except FileNotFoundError:
            # The file counts only once a checkpoint has synced it and the two names that lead to
            # it. So the names need no sync here, and many queues that write for the first time need
            # not wait for a sync each.
            directory = path.rpartition("/")[0]
            self._files.make_directories(directory.rpartition("/")[0])
            self._files.make_directories(directory, is_durable=False)
            return self._files.create(path)
