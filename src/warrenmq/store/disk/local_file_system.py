"""The real file system below one directory; `warrenmq.store.file_system` has the promises.

Python itself retries interrupted calls (PEP 475); this module continues short writes and reads.
`sync_all` is syncfs(2) on a descriptor that stays open as long as the store: the kernel reports a
failed write-back only to descriptors that were open when it failed.
"""

import contextlib
import ctypes
import errno
import os
import re
import shutil
from pathlib import Path
from typing import Final

# The most buffers that one pwritev takes (POSIX guarantees 16, Linux has 1024).
_IOV_MAX: Final = 1024
# The flag of a read that fails where it would wait for the disk; 0: the system has none.
_READ_CACHED: Final = getattr(os, "RWF_NOWAIT", 0)
# The flag of a write that is synced as fdatasync would do; 0: the system has none.
_WRITE_SYNCED: Final = getattr(os, "RWF_DSYNC", 0)
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750


def syncfs_tells_errors(release: str) -> bool:
    """Whether syncfs(2) of Linux kernel `release` reports a failed write-back: from 5.8 on."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match.group(1)), int(match.group(2))) >= (5, 8)


_libc = ctypes.CDLL(None, use_errno=True)
_syncfs = getattr(_libc, "syncfs", None) if syncfs_tells_errors(os.uname().release) else None
_sync_file_range = getattr(_libc, "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
# SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
_WRITE_AND_WAIT: Final = 7


class LocalFileHandle:
    """A FileHandle over a file descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, offset: int, parts: list[bytes]) -> None:
        """See FileHandle; a short write continues where it stopped."""
        self._write(offset, parts, 0)

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        """See FileHandle; one call of the system where it can, since a thread waits for each."""
        if _WRITE_SYNCED and len(parts) <= _IOV_MAX:
            try:
                self._write(offset, parts, _WRITE_SYNCED)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
            else:
                return
        self.write(offset, parts)
        self.sync()

    def _write(self, offset: int, parts: list[bytes], flags: int) -> None:
        pending: list[bytes | memoryview] = [part for part in parts if part]
        start = 0
        while start < len(pending):
            window = pending[start : start + _IOV_MAX]
            written = os.pwritev(self._descriptor, window, offset, flags)
            if written <= 0:
                raise OSError(errno.EIO, "the disk takes no bytes and gives no reason")
            offset += written
            for part in window:
                if written < len(part):
                    pending[start] = memoryview(part)[written:]
                    break
                written -= len(part)
                start += 1

    def sync(self) -> None:
        """See FileHandle."""
        os.fdatasync(self._descriptor)

    def descriptor(self) -> int:
        """See FileHandle."""
        return self._descriptor

    def write_back(self, offset: int, length: int) -> None:
        """See FileHandle; elsewhere than on Linux it does nothing."""
        if _sync_file_range is None:
            return
        if _sync_file_range(self._descriptor, offset, length, _WRITE_AND_WAIT) != 0:
            # The next sync would not report this failure again.
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    def truncate(self, size: int) -> None:
        """See FileHandle."""
        os.ftruncate(self._descriptor, size)

    def allocate(self, offset: int, length: int) -> None:
        """See FileHandle."""
        os.posix_fallocate(self._descriptor, offset, length)

    def is_named(self) -> bool:
        """See FileHandle."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """See FileHandle."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    found = os.pread(descriptor, size, offset)
    if not found or len(found) == size:
        return found
    parts = [found]
    left = size - len(found)
    while left > 0 and (part := os.pread(descriptor, left, offset + size - left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _will_need(descriptor: int, pieces: list[tuple[int, int]]) -> None:
    for offset, size in pieces:
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)


class LocalFileSystem:
    """The tree below the existing directory `root`; the administrator's symbolic links work."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # What `read_cached` reads into: memory that the processor's cache has.
        self._buffer = bytearray()

    def release(self) -> None:
        """Close the descriptor of the root; `sync_all` cannot be called any more."""
        os.close(self._descriptor)

    def create(self, path: str) -> LocalFileHandle:
        """See FileSystem."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return LocalFileHandle(os.open(self._resolve(path), flags, _FILE_MODE))

    def open(self, path: str) -> LocalFileHandle:
        """See FileSystem."""
        return LocalFileHandle(os.open(self._resolve(path), os.O_WRONLY | os.O_CLOEXEC))

    def read(self, path: str, offset: int, size: int) -> bytes:
        """See FileSystem."""
        return self.read_pieces(path, [(offset, size)])[0]

    def read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        """See FileSystem."""
        descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if len(pieces) > 1:
                _will_need(descriptor, pieces)
            return [_read_all(descriptor, offset, size) for offset, size in pieces]
        finally:
            os.close(descriptor)

    def read_cached(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes] | None:
        """See FileSystem."""
        if not _READ_CACHED:
            return None
        longest = max(size for _, size in pieces)
        if len(self._buffer) < longest:
            self._buffer = bytearray(longest)
        found: list[bytes] = []
        try:
            descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                with memoryview(self._buffer) as buffer:
                    for offset, size in pieces:
                        part = buffer[:size]
                        if os.preadv(descriptor, [part], offset, _READ_CACHED) != size:
                            return None
                        found.append(bytes(part))
            finally:
                os.close(descriptor)
        except OSError:
            # Not in memory, no such flag, or a failure that `read_pieces` will report.
            return None
        return found

    def will_read(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """See FileSystem."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                _will_need(descriptor, pieces)
            finally:
                os.close(descriptor)

    def size(self, path: str) -> int:
        """See FileSystem."""
        return os.stat(self._resolve(path)).st_size

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return os.path.lexists(self._resolve(path))

    def is_file(self, path: str) -> bool:
        """See FileSystem."""
        return os.path.isfile(self._resolve(path))

    def list_names(self, path: str) -> list[str]:
        """See FileSystem."""
        return sorted(os.listdir(self._resolve(path)))

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """See FileSystem."""
        self._resolve(path)
        above = ""
        for name in path.split("/") if path else []:
            directory = f"{above}/{name}" if above else name
            try:
                os.mkdir(self._resolve(directory), _DIRECTORY_MODE)
            except FileExistsError:
                if not os.path.isdir(self._resolve(directory)):
                    raise
            else:
                if is_durable:
                    self.sync_directory(above)
            above = directory

    def rename(self, path: str, target: str) -> None:
        """See FileSystem."""
        os.rename(self._resolve(path), self._resolve(target))

    def link(self, path: str, target: str) -> None:
        """See FileSystem."""
        os.link(self._resolve(path), self._resolve(target))

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        os.unlink(self._resolve(path))

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        shutil.rmtree(self._resolve(path))

    def sync_directory(self, path: str) -> None:
        """See FileSystem."""
        descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_all(self) -> bool:
        """See FileSystem; syncs the whole file system that holds the root."""
        if _syncfs is None:
            return False
        while _syncfs(self._descriptor) != 0:
            number = ctypes.get_errno()
            if number == errno.ENOSYS:
                return False
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), self._root)
        return True

    def free_bytes(self, path: str) -> int:
        """See FileSystem; counts the space that an unprivileged process may use."""
        status = os.statvfs(self._resolve(path))
        return status.f_bavail * status.f_frsize

    def _resolve(self, path: str) -> str:
        if not path:
            return self._root
        for name in path.split("/"):
            if name in ("", ".", ".."):
                raise ValueError(f"{path!r} is no path below the root")
        return f"{self._root}/{path}"
