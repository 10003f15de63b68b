"""The file system calls of the store: few enough to run on a real disk and on a simulated one.

Every caller keeps three grades of durability apart:

    written   other processes see the bytes; a power failure may lose them, or keep any part of them
    synced    the bytes and the size survive a power failure (`FileHandle.sync`, `write_synced`,
              `sync_all`)
    named     the name survives as well (`sync_directory`)

A new file must be synced and named. A failed sync has lost the bytes it was for: a second sync that
succeeds proves nothing, the bytes must be written again (W27).

A path is a str relative to a root, with `/` between names; `""` is the root. An absolute path, and
one with `.`, `..` or nothing between two slashes, is refused with ValueError. Every call may be
made from any thread. It does all it was asked to do or fails with OSError. A failed call may still
have taken effect; where it concerns more than one byte or one name, in part.
"""

from typing import Protocol


class FileHandle(Protocol):
    """A file open for writing. Offsets, lengths and sizes in bytes."""

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts` one after the other from `offset` on: written on return, not synced."""

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts` as `write` does, and sync them with the file's size before returning."""

    def sync(self) -> None:
        """Sync the file's size and all bytes written to it, by any handle."""

    def descriptor(self) -> int:
        """The system's number of the open file; OSError where the system does not know the file."""

    def write_back(self, offset: int, length: int) -> None:
        """Have the disk write these bytes and wait: a shorter next sync, but no promise."""

    def truncate(self, size: int) -> None:
        """Cut off the bytes behind `size`, or extend with zeros up to it; not synced."""

    def allocate(self, offset: int, length: int) -> None:
        """Allocate disk space for a range, which grows the file to its end; not synced.

        The range reads as zeros where nothing was written.
        """

    def is_named(self) -> bool:
        """Whether the file still has a name; the bytes of a deleted file go with the handle."""

    def close(self) -> None:
        """Close the handle, even on error; syncs nothing. A second call does nothing."""


class FileSystem(Protocol):
    """A directory tree. Offsets and sizes in bytes."""

    def create(self, path: str) -> FileHandle:
        """Create an empty file; FileExistsError when the name is taken; the name is not durable."""

    def open(self, path: str) -> FileHandle:
        """Open an existing file for writing; FileNotFoundError when there is no such file."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read `size` bytes at `offset`; fewer only where the file ends."""

    def read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        """Read pieces of one file, (offset, size) in bytes; the disk may read them together.

        Each is as `read` would return it; when one cannot be read, the call fails.
        """

    def read_cached(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes] | None:
        """Read whole pieces, (offset, size), without a wait for the disk; for one thread only.

        None: they are not all in the system's memory, or it cannot tell; `read_pieces` may wait.
        """

    def will_read(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """Let the disk read pieces, (offset, size), ahead: a shorter `read`, but no promise.

        Returns at once. Does nothing where there is no such file or piece.
        """

    def size(self, path: str) -> int:
        """The file's size, allocated space included; FileNotFoundError when there is no file."""

    def exists(self, path: str) -> bool:
        """Whether anything has this name, even a link that leads nowhere."""

    def is_file(self, path: str) -> bool:
        """Whether the name is that of a file, or of a link to a file."""

    def list_names(self, path: str) -> list[str]:
        """The names of all entries of a directory, sorted as text."""

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """Create a directory and its missing parents, each name durable with `is_durable`."""

    def rename(self, path: str, target: str) -> None:
        """Move a file or directory in one step, replacing a file at `target`; not durable."""

    def link(self, path: str, target: str) -> None:
        """Give a file the second name `target`; FileExistsError when it is taken; not durable."""

    def unlink(self, path: str) -> None:
        """Remove a file's name; FileNotFoundError when there is no such file; not durable."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it, in many steps; not durable.

        FileNotFoundError when there is no such directory.
        """

    def sync_directory(self, path: str) -> None:
        """Make the names created, moved and removed in this directory (not below it) durable."""

    def sync_all(self) -> bool:
        """Sync all bytes and names of earlier calls; False: the file system has no such call."""

    def free_bytes(self, path: str) -> int:
        """Bytes of space left for files in a directory."""
