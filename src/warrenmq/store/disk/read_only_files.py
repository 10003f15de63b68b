"""A read-only file system: it remembers changes of names and changes nothing on the disk.

A tool that inspects a store reads it with the code of a start (`store_reader.py`), which moves
files aside, copies damaged bytes and creates directories. On top of this file system, the tool
finds what a start would find and leaves the disk as it is.
"""

import errno
import os

from warrenmq.store.file_system import FileHandle, FileSystem


class _NoHandle:
    """The handle of a file that is not to be changed; it ignores all writes."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Ignore the bytes."""

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        """Write without a sync: nothing that is written outlives the tool."""
        self.write(offset, parts)

    def sync(self) -> None:
        """Nothing was written."""

    def descriptor(self) -> int:
        """No file is open."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write_back(self, offset: int, length: int) -> None:
        """Nothing was written."""

    def truncate(self, size: int) -> None:
        """Ignore the new size."""

    def allocate(self, offset: int, length: int) -> None:
        """Ignore the request."""

    def is_named(self) -> bool:
        """Always True: nothing can delete it."""
        return True

    def close(self) -> None:
        """Nothing is open."""


class _MadeHandle(_NoHandle):
    """The handle of a file that was created, which is in memory only."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def write(self, offset: int, parts: list[bytes]) -> None:
        """See FileHandle."""
        for part in parts:
            self._content[offset : offset + len(part)] = part
            offset += len(part)


class ReadOnlyFiles:
    """The file system `files`, without the names that the caller has removed or moved away.

    Files that the caller creates are in memory. A start writes few: copies of damaged bytes, and
    segments of which it has found lost entries again.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        # Names that were removed or moved; all names below them are hidden too.
        self._hidden: set[str] = set()
        # Names that were created.
        self._made: set[str] = set()
        # The bytes of created files.
        self._contents: dict[str, bytearray] = {}

    def create(self, path: str) -> FileHandle:
        """See FileSystem."""
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "it is there", path)
        self._made.add(path)
        content = self._contents[path] = bytearray()
        return _MadeHandle(content)

    def open(self, path: str) -> FileHandle:
        """See FileSystem."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        return _NoHandle()

    def read(self, path: str, offset: int, size: int) -> bytes:
        """See FileSystem."""
        content = self._contents.get(path)
        if content is not None:
            return bytes(content[offset : offset + size])
        self._must_be_there(path)
        return self._files.read(path, offset, size)

    def will_read(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """Ignored: a tool reads whole files."""

    def read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        """See FileSystem."""
        return [self.read(path, offset, size) for offset, size in pieces]

    def read_cached(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """See FileSystem: a tool has a thread to wait with."""

    def size(self, path: str) -> int:
        """See FileSystem."""
        content = self._contents.get(path)
        if content is not None:
            return len(content)
        self._must_be_there(path)
        return self._files.size(path)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._made or (not self._is_hidden(path) and self._files.exists(path))

    def is_file(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._contents or (not self._is_hidden(path) and self._files.is_file(path))

    def list_names(self, path: str) -> list[str]:
        """See FileSystem; a directory that exists only by `make_directories` is empty."""
        if self._is_hidden(path) or not self._files.exists(path):
            return []
        prefix = f"{path}/" if path else ""
        return [name for name in self._files.list_names(path) if prefix + name not in self._hidden]

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """See FileSystem."""

    def is_made(self, path: str) -> bool:
        """Whether the caller has created the file, so that its bytes are in memory only."""
        return path in self._contents

    def rename(self, path: str, target: str) -> None:
        """See FileSystem."""
        content = self._contents.pop(path, None)
        self._take(path)
        self._made.add(target)
        if content is not None:
            self._contents[target] = content

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
        self._contents.pop(path, None)
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
