"""A file system whose calls fail on command: before, after or in the middle of their work."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from warrenmq.store.file_system import FileHandle, FileSystem

NOT_DONE: Final = "not done"
# A part of the write is done; another call is not done at all.
IN_PART: Final = "in part"
DONE: Final = "done"
HOWS: Final = (NOT_DONE, IN_PART, DONE)

T = TypeVar("T")


class FailingHandle:
    """An open file of FailingFiles."""

    def __init__(self, files: "FailingFiles", inner: FileHandle) -> None:
        self._files = files
        self.inner = inner

    def write(self, offset: int, parts: list[bytes]) -> None:
        data = b"".join(parts)
        self._files.call(
            "write",
            lambda: self.inner.write(offset, parts),
            lambda: self.inner.write(offset, [data[: len(data) // 2]]),
        )

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        self.write(offset, parts)
        self.sync()

    def sync(self) -> None:
        self._files.call("sync", self.inner.sync)

    def descriptor(self) -> int:
        return self.inner.descriptor()

    def write_back(self, offset: int, length: int) -> None:
        self._files.call("write_back", lambda: self.inner.write_back(offset, length))

    def truncate(self, size: int) -> None:
        self._files.call("truncate", lambda: self.inner.truncate(size))

    def allocate(self, offset: int, length: int) -> None:
        self._files.call("allocate", lambda: self.inner.allocate(offset, length))

    def is_named(self) -> bool:
        return self.inner.is_named()

    def close(self) -> None:
        self._files.open_handles.discard(self)
        self._files.call("close", self.inner.close)


class FailingFiles:
    """`inner` with faults; `calls` lists the names of all calls so far."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.open_handles: set[FailingHandle] = set()
        # (error number, how) by name of call, each used once; the empty name is any call.
        self._faults: dict[str, list[tuple[int, str]]] = {}
        self._fail_at = -1

    def fail(self, name: str, number: int, how: str = NOT_DONE, times: int = 1) -> None:
        """Make the next `times` calls `name` fail."""
        self._faults.setdefault(name, []).extend([(number, how)] * times)

    def fail_at(self, index: int, number: int, how: str = NOT_DONE) -> None:
        """Make the call after `index` others fail."""
        self._fail_at = len(self.calls) + index
        self._faults[""] = [(number, how)]

    def heal(self) -> bool:
        """End all faults; returns True if some had not struck yet."""
        left = any(self._faults.values())
        self._faults.clear()
        self._fail_at = -1
        return left

    def call(self, name: str, do: Callable[[], T], do_part: Callable[[], None] | None = None) -> T:
        """Make the call `name`, or fail it as planned."""
        self.calls.append(name)
        faults = self._faults.get(name)
        if not faults and len(self.calls) - 1 == self._fail_at:
            faults = self._faults[""]
        if not faults:
            return do()
        number, how = faults.pop(0)
        # A failed close closes the handle all the same.
        if how == DONE or name == "close":
            result = do()
            if isinstance(result, FailingHandle):
                # The call may have made the file, but the caller gets no handle.
                self.open_handles.discard(result)
                result.inner.close()
        elif how == IN_PART and do_part is not None:
            do_part()
        raise OSError(number, os.strerror(number))

    def create(self, path: str) -> FailingHandle:
        return self.call("create", lambda: self._opened(self.inner.create(path)))

    def open(self, path: str) -> FailingHandle:
        return self.call("open", lambda: self._opened(self.inner.open(path)))

    def _opened(self, inner: FileHandle) -> FailingHandle:
        handle = FailingHandle(self, inner)
        self.open_handles.add(handle)
        return handle

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self.call("read", lambda: self.inner.read(path, offset, size))

    def will_read(self, path: str, pieces: list[tuple[int, int]]) -> None:
        self.inner.will_read(path, pieces)

    def read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        return self.call("read", lambda: self.inner.read_pieces(path, pieces))

    def read_cached(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """Nothing: every read goes through `read_pieces`, and may fail there."""

    def size(self, path: str) -> int:
        return self.call("size", lambda: self.inner.size(path))

    def exists(self, path: str) -> bool:
        return self.call("exists", lambda: self.inner.exists(path))

    def is_file(self, path: str) -> bool:
        return self.call("is_file", lambda: self.inner.is_file(path))

    def list_names(self, path: str) -> list[str]:
        return self.call("list_names", lambda: self.inner.list_names(path))

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        self.call("make_directories", lambda: self.inner.make_directories(path, is_durable))

    def rename(self, path: str, target: str) -> None:
        self.call("rename", lambda: self.inner.rename(path, target))

    def link(self, path: str, target: str) -> None:
        self.call("link", lambda: self.inner.link(path, target))

    def unlink(self, path: str) -> None:
        self.call("unlink", lambda: self.inner.unlink(path))

    def remove_tree(self, path: str) -> None:
        self.call("remove_tree", lambda: self.inner.remove_tree(path))

    def sync_directory(self, path: str) -> None:
        self.call("sync_directory", lambda: self.inner.sync_directory(path))

    def sync_all(self) -> bool:
        return self.call("sync_all", self.inner.sync_all)

    def free_bytes(self, path: str) -> int:
        return self.call("free_bytes", lambda: self.inner.free_bytes(path))
