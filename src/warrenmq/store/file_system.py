"""What the store needs of a file system: a small set of calls, so that it runs on a real disk and on a simulated one.

Three grades, which every caller keeps apart: written (another process sees it, a power failure may lose it, and may
keep any part of it), synced (`FileHandle.sync`, `sync_all`: the bytes and the size survive), named (`sync_directory`:
so does the name). A new file needs the last two. A sync that fails has lost what it was about: to sync again and
succeed proves nothing, the bytes must be written again (W27).

A path is a str relative to a root, with `/` between names; `""` is the root. An absolute path, and one with `.`, `..`
or nothing between two slashes, is refused with ValueError. Every call may be made from any thread, fails with OSError,
and writes all it was asked to write or fails. A failed call may have been done, or, for more than one byte or one
name, in part.
"""

from typing import Protocol


class FileHandle(Protocol):
    """A file that is open for writing. Offsets, lengths and sizes in bytes."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts` one behind the other from `offset` on: written when it returns, not synced."""

    def sync(self) -> None:
        """Everything written to the file, by whichever handle, and its size are synced when it returns."""

    def write_back(self, offset: int, length: int) -> None:
        """Let the disk have these bytes now, and wait for it, so that the next sync has less to do; it promises nothing."""

    def truncate(self, size: int) -> None:
        """Cut off what lies behind `size`, or extend with zeros up to it; not synced."""

    def allocate(self, offset: int, length: int) -> None:
        """Have real space for these bytes, zeros where nothing was written; the file grows to their end; not synced."""

    def is_named(self) -> bool:
        """Has the file still a name? Where somebody has deleted it, what is written is gone with the handle."""

    def close(self) -> None:
        """Give the handle back, also when that fails; it syncs nothing. A second time it does nothing."""


class FileSystem(Protocol):
    """A directory tree. Offsets and sizes in bytes."""

    def create(self, path: str) -> FileHandle:
        """Make a new, empty file; FileExistsError when there is anything of that name; the name is not durable."""

    def open(self, path: str) -> FileHandle:
        """Open an existing file for writing; FileNotFoundError when there is none."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """What was written there, at most `size` bytes; fewer only where the file ends."""

    def size(self, path: str) -> int:
        """The size of a file, with what was allocated; FileNotFoundError when there is none."""

    def exists(self, path: str) -> bool:
        """Is there anything of that name, a link that leads nowhere too?"""

    def is_file(self, path: str) -> bool:
        """Is there a file of that name, or a link to one?"""

    def list_names(self, path: str) -> list[str]:
        """Names of all that is in a directory, sorted as text."""

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """Make a directory and those missing above it; each new name is durable when it returns, if that is wanted."""

    def rename(self, path: str, target: str) -> None:
        """Move a file or directory, in one step: a file at `target` is replaced; not durable."""

    def link(self, path: str, target: str) -> None:
        """Give a file a second name; FileExistsError when it is taken; not durable."""

    def unlink(self, path: str) -> None:
        """Take a file's name away; FileNotFoundError when there is none; not durable."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it, not in one step; FileNotFoundError when there is none; not durable."""

    def sync_directory(self, path: str) -> None:
        """Names made, moved and taken away in this directory (not below it) are durable when it returns."""

    def sync_all(self) -> bool:
        """Everything written and named before the call is synced when it returns True; False: there is no such call."""

    def free_bytes(self, path: str) -> int:
        """Space that is left for files in a directory."""
