"""A file system for looking only: what would be changed is noted, and nothing is done.

A tool that looks at a store reads it with the code of a start (`store_reader.py`), which moves things aside, copies what
is damaged and makes directories. With this beneath it, it finds what a start would find and leaves the disk as it is.
"""

import errno

from warrenmq.store.file_system import FileHandle, FileSystem


class _NoHandle:
    """A file that is not there."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Forget it."""

    def sync(self) -> None:
        """Nothing was written."""

    def write_back(self, offset: int, length: int) -> None:
        """Nothing was written."""

    def truncate(self, size: int) -> None:
        """Forget it."""

    def allocate(self, offset: int, length: int) -> None:
        """Forget it."""

    def is_named(self) -> bool:
        """Nobody misses it."""
        return True

    def close(self) -> None:
        """Nothing is open."""


class ReadOnlyFiles:
    """`files` as it is, but for the names that were taken away or moved."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        # Names that are gone, with all below them, and names that were made.
        self._hidden: set[str] = set()
        self._made: set[str] = set()

    def create(self, path: str) -> FileHandle:
        """See FileSystem."""
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "it is there", path)
        self._made.add(path)
        return _NoHandle()

    def open(self, path: str) -> FileHandle:
        """See FileSystem."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        return _NoHandle()

    def read(self, path: str, offset: int, size: int) -> bytes:
        """See FileSystem."""
        self._must_be_there(path)
        return self._files.read(path, offset, size)

    def size(self, path: str) -> int:
        """See FileSystem."""
        self._must_be_there(path)
        return self._files.size(path)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._made or (not self._is_hidden(path) and self._files.exists(path))

    def is_file(self, path: str) -> bool:
        """See FileSystem."""
        return not self._is_hidden(path) and self._files.is_file(path)

    def list_names(self, path: str) -> list[str]:
        """See FileSystem; a directory that was to be made is empty."""
        if self._is_hidden(path) or not self._files.exists(path):
            return []
        prefix = f"{path}/" if path else ""
        return [name for name in self._files.list_names(path) if prefix + name not in self._hidden]

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """See FileSystem."""

    def rename(self, path: str, target: str) -> None:
        """See FileSystem."""
        self._take(path)
        self._made.add(target)

    def link(self, path: str, target: str) -> None:
        """See FileSystem."""
        self._made.add(target)

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        self._take(path)

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        self.unlink(path)

    def sync_directory(self, path: str) -> None:
        """See FileSystem."""

    def sync_all(self) -> bool:
        """See FileSystem."""
        return True

    def free_bytes(self, path: str) -> int:
        """See FileSystem."""
        return self._files.free_bytes(path)

    def _take(self, path: str) -> None:
        if path in self._made:
            self._made.discard(path)
        else:
            self._hidden.add(path)

    def _must_be_there(self, path: str) -> None:
        if self._is_hidden(path):
            raise FileNotFoundError(errno.ENOENT, "there is none", path)

    def _is_hidden(self, path: str) -> bool:
        while path:
            if path in self._hidden:
                return True
            path = path.rpartition("/")[0]
        return False
