"""A file system in memory that loses, tears and reorders unsynced changes, and fails calls.

Each file has two versions: the bytes that the process sees and the durable bytes. The writes,
truncations and allocations in between are kept in order until a sync. Each directory has two
versions of its names in the same way. `crash` decides what happens to each unsynced change:

    kill     only the process ends; its writes are in the page cache and survive
    power    each unsynced change is kept, dropped or torn on its own: a later write may survive
             without an earlier one (zeros fill the hole), a file may have grown by zeros (T9), a
             name may survive without its neighbour
    ordered  as power for data; names and sizes as on a file system with a journal: all changes
             up to some moment survive

A failed sync drops its changes for good: the process goes on seeing them, and a later sync that
succeeds does not bring them back (W27). Calls are counted, so a crash or a fault can hit any of
them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from simulator.simulated.file import ALLOCATE, TRUNCATE, WRITE, SimulatedFile

# An allocation beyond this size fails in part. Space ahead of need is optional, and reading it back
# would take most of the time of a history.
ALLOCATE_MAX_BYTES: Final = 2048
# `free_bytes` of a disk without a limit.
PLENTY: Final = 1 << 50

KILL: Final = "kill"
POWER: Final = "power"
ORDERED: Final = "ordered"


class Crash(BaseException):
    """The process ends inside a call; a BaseException, so `except Exception` cannot stop it."""


@dataclass
class Fault:
    """Skips `after` calls of `kinds` (empty: any), then fails `times` calls with errno `number`."""

    kinds: tuple[str, ...]
    after: int
    number: int
    times: int = 1

    def strikes(self, kind: str) -> bool:
        """Count a call of `kind`; returns True when the call must fail."""
        if self.times == 0 or (self.kinds and kind not in self.kinds):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        return True


@dataclass(eq=False)
class SimulatedDirectory:
    """One directory: names as the process sees them, and durable names."""

    names: dict[str, SimulatedFile | SimulatedDirectory] = field(default_factory=dict)
    durable: dict[str, SimulatedFile | SimulatedDirectory] = field(default_factory=dict)

    def copy(self) -> SimulatedDirectory:
        """The whole tree, for another disk; every change must be synced."""
        twin = SimulatedDirectory()
        twins: dict[int, SimulatedFile | SimulatedDirectory] = {}
        for name, node in self.names.items():
            twin.names[name] = twins.setdefault(id(node), node.copy())
        twin.durable = dict(twin.names)
        return twin


@dataclass(eq=False)
class NameChange:
    """Names that appear and disappear in one step."""

    removes: list[tuple[SimulatedDirectory, str, SimulatedFile | SimulatedDirectory]]
    adds: list[tuple[SimulatedDirectory, str, SimulatedFile | SimulatedDirectory]]

    def concerns(self, directory: SimulatedDirectory) -> bool:
        """Whether one of the names is in `directory`."""
        return any(entry[0] is directory for entry in self.removes + self.adds)

    def apply(self) -> None:
        """Make the change durable."""
        for directory, name, node in self.removes:
            if directory.durable.get(name) is node:
                del directory.durable[name]
        for directory, name, node in self.adds:
            directory.durable[name] = node


class SimulatedFileHandle:
    """An open file; the calls are those of FileHandle."""

    def __init__(self, system: SimulatedFileSystem, path: str, file: SimulatedFile) -> None:
        self._system = system
        self._path = path
        self.file = file
        self._is_open = True
        system.open_handles += 1

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts`, one after another, from `offset` on."""
        self._system.write(self._path, self.file, offset, b"".join(parts))

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts` and make them durable, in two steps: the system may fail between them."""
        self.write(offset, parts)
        self.sync()

    def sync(self) -> None:
        """Make every write to the file durable."""
        self._system.sync(self._path, self.file)

    def descriptor(self) -> int:
        """The machine knows no such file."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write_back(self, offset: int, length: int) -> None:
        """Start to write pages to disk; may fail, and makes nothing durable."""
        self._system.step("write_back", self._path)

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        self._system.step("truncate", self._path)
        self._system.change(self.file, TRUNCATE, size, b"")

    def allocate(self, offset: int, length: int) -> None:
        """Allocate space for `length` bytes from `offset` on; ENOSPC when it grants only a part."""
        self._system.step("allocate", self._path)
        granted = min(length, ALLOCATE_MAX_BYTES)
        self._system.make_room(max(0, offset + granted - self.file.size))
        self._system.change(self.file, ALLOCATE, offset + granted, b"")
        if granted < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def is_named(self) -> bool:
        """Whether the path still leads to this file."""
        return self._system.has_file(self._path, self.file)

    def close(self) -> None:
        """Close the file; never fails on account of its data."""
        if self._is_open:
            self._is_open = False
            self._system.open_handles -= 1


class SimulatedFileSystem:
    """See the module docstring; the calls are those of `warrenmq.store.file_system.FileSystem`."""

    def __init__(self, root: SimulatedDirectory | None = None) -> None:
        self.root = root or SimulatedDirectory()
        self._changes: list[NameChange] = []
        self.calls = 0
        self.open_handles = 0
        # Bytes that all files may have together; 0: no limit.
        self.capacity = 0
        self.faults: list[Fault] = []
        # Calls that failed, by a fault or for lack of space.
        self.failed_calls = 0
        # Calls until the crash, which strikes inside the next one; -1: no crash is planned.
        self.crash_after = -1
        self.is_crashed = False
        # Calls until `interrupt` runs inside the next one, in place of another thread; -1: not
        # planned.
        self.interrupt_after = -1
        self.interrupt: Callable[[], None] | None = None
        # Path whose calls are never interrupted: the caller holds a lock that the other thread
        # would wait for.
        self.locked_path = ""
        # Decides what a fault or a crash inside a call leaves behind.
        self.rng = Random(0)
        # Faults and crashes as lines for the story of a history; None: no story is wanted.
        self.log: list[str] | None = None

    # -- faults ------------------------------------------------------------------------------------

    def step(self, kind: str, path: str) -> None:
        """Begin a call: count it, and crash or fail if that is planned."""
        if self.is_crashed:
            raise Crash
        self.calls += 1
        if self.interrupt_after >= 0 and path != self.locked_path:
            self.interrupt_after -= 1
            if self.interrupt_after < 0 and self.interrupt is not None:
                self.interrupt()
        if self.crash_after >= 0:
            if self.crash_after == 0:
                self._note(f"crash in {kind} {path}")
                self.is_crashed = True
                raise Crash
            self.crash_after -= 1
        for fault in self.faults:
            if fault.strikes(kind):
                self.failed_calls += 1
                self._note(f"{errno.errorcode[fault.number]} in {kind} {path}")
                raise OSError(fault.number, os.strerror(fault.number), path)

    def used_bytes(self) -> int:
        """Bytes of all files that have a name."""
        return sum(file.size for _, file in self.files())

    def make_room(self, size: int) -> None:
        """Raise ENOSPC when there is no space for `size` more bytes."""
        if self.capacity and size > 0 and self.used_bytes() + size > self.capacity:
            self.failed_calls += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _note(self, text: str) -> None:
        if self.log is not None:
            self.log.append(text)

    # -- files -------------------------------------------------------------------------------------

    def create(self, path: str) -> SimulatedFileHandle:
        """Create a file; FileExistsError when the name exists."""
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        file = SimulatedFile()
        self._step_names("create", path, NameChange([], [(directory, name, file)]))
        return SimulatedFileHandle(self, path, file)

    def open(self, path: str) -> SimulatedFileHandle:
        """Open an existing file for writing."""
        self.step("open", path)
        return SimulatedFileHandle(self, path, self._file(path))

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read at most `size` bytes from `offset` on; fewer at the end of the file."""
        self.step("read", path)
        file = self._file(path)
        end = min(offset + size, file.size)
        found = bytes(file.data[offset:end])
        return found + bytes(max(0, end - offset - len(found)))

    def will_read(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """Ignored: it changes nothing that a caller can see."""

    def read_cached(self, path: str, pieces: list[tuple[int, int]]) -> None:
        """See FileSystem: a lane's random order has reads at once, too."""

    def read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        """See FileSystem; each piece is a call that may fail."""
        return [self.read(path, offset, size) for offset, size in pieces]

    def write(self, path: str, file: SimulatedFile, offset: int, content: bytes) -> None:
        """Write all of `content`, or raise with a part of it written."""
        try:
            self.step("write", path)
            self.make_room(offset + len(content) - file.size)
        except (OSError, Crash):
            # A call that fails or crashes may have written a part before.
            kept = content[: self.rng.randrange(len(content) + 1)] if content else b""
            if self.capacity:
                kept = kept[: max(0, self.capacity - self.used_bytes())]
            if kept:
                file.apply(WRITE, offset, kept)
            raise
        if content:
            file.apply(WRITE, offset, content)

    def change(self, file: SimulatedFile, kind: int, offset: int, content: bytes) -> None:
        """Apply a change to an open file."""
        file.apply(kind, offset, content)

    def sync(self, path: str, file: SimulatedFile) -> None:
        """Make the changes of `file` durable; a failed sync loses them (W27)."""
        try:
            self.step("sync", path)
        except OSError:
            file.lose(self.rng)
            raise
        file.sync()

    def size(self, path: str) -> int:
        """Size of the file in bytes."""
        self.step("stat", path)
        return self._file(path).size

    def exists(self, path: str) -> bool:
        """Whether a file or a directory has that name."""
        self.step("stat", path)
        return self._find(path) is not None

    def is_file(self, path: str) -> bool:
        """Whether a file has that name."""
        self.step("stat", path)
        return isinstance(self._find(path), SimulatedFile)

    # -- names -------------------------------------------------------------------------------------

    def has_file(self, path: str, file: SimulatedFile) -> bool:
        """Whether the path leads to this very file."""
        return self._find(path) is file

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in an order without meaning."""
        self.step("list", path)
        return sorted(self._directory(path).names)

    def make_directories(self, path: str, is_durable: bool = True) -> None:
        """Make a directory and its parents; `is_durable`: sync each new name."""
        directory = self.root
        for name in _parts(path):
            node = directory.names.get(name)
            if node is None:
                node = SimulatedDirectory()
                self._step_names("mkdir", path, NameChange([], [(directory, name, node)]))
                if is_durable:
                    self._sync_names(directory, path)
            if not isinstance(node, SimulatedDirectory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = node

    def rename(self, path: str, target: str) -> None:
        """Rename a file atomically; it replaces a file that has the name `target`."""
        directory, name = self._parent(path)
        node = self._node(path)
        self._step_names(
            "rename", path, NameChange([(directory, name, node)], [(*self._parent(target), node)])
        )

    def link(self, path: str, target: str) -> None:
        """Give a file a second name."""
        directory, name = self._parent(target)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._step_names("link", path, NameChange([], [(directory, name, self._file(path))]))

    def linked(self, path: str) -> SimulatedFile:
        """The file itself, for a backup that links it: both names share bytes and durability."""
        self.step("link", path)
        return self._file(path)

    def unlink(self, path: str) -> None:
        """Remove the name of a file."""
        file = self._file(path)
        self._step_names("unlink", path, NameChange([(*self._parent(path), file)], []))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content, name by name."""
        directory = self._directory(path)
        for name in sorted(directory.names):
            if isinstance(directory.names[name], SimulatedDirectory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self._step_names("rmdir", path, NameChange([(*self._parent(path), directory)], []))

    def sync_directory(self, path: str) -> None:
        """Make the changed names of a directory durable."""
        self._sync_names(self._directory(path), path)

    def sync_all(self) -> bool:
        """Make every change of names and files durable."""
        self.step("sync_all", "")
        for change in self._changes:
            change.apply()
        self._changes.clear()
        for file in self._all_files():
            file.sync()
        return True

    def free_bytes(self, path: str) -> int:
        """Free space in bytes; PLENTY without a limit."""
        self.step("statfs", path)
        return max(0, self.capacity - self.used_bytes()) if self.capacity else PLENTY

    # -- for the simulation ------------------------------------------------------------------------

    def crash(self, rng: Random, rule: str) -> None:
        """End the process or lose power by `rule` (KILL, POWER, ORDERED), as the module says.

        Afterwards everything that remains is durable, and no fault is planned.
        """
        changes = self._changes
        self._changes = []
        if rule == ORDERED:
            changes = changes[: rng.randrange(len(changes) + 1)]
        elif rule == POWER:
            changes = [change for change in changes if rng.random() < 0.5]
        for change in changes:
            change.apply()
        for file in self._all_files():
            if rule == KILL:
                file.sync()
            file.crash(rng)
        self._settle_names(self.root)
        self.faults.clear()
        self.crash_after = -1
        self.interrupt_after = -1
        self.is_crashed = False
        self.open_handles = 0

    def fork(self) -> SimulatedFileSystem:
        """A disk with the same content; only directly after a crash, while nothing is unsynced."""
        return SimulatedFileSystem(self.root.copy())

    def files(self) -> list[tuple[str, SimulatedFile]]:
        """Every file as the process sees it, with its path, in the order of paths."""
        found: list[tuple[str, SimulatedFile]] = []
        _walk(self.root, "", found)
        return found

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Flip a bit for good, also in unsynced writes."""
        file = self._file(path)
        file.data[offset] ^= 1 << bit
        if offset < len(file.durable):
            file.durable[offset] ^= 1 << bit
        for index, (kind, start, content) in enumerate(file.unsynced):
            if kind == WRITE and start <= offset < start + len(content):
                damaged = bytearray(content)
                damaged[offset - start] ^= 1 << bit
                file.unsynced[index] = (kind, start, bytes(damaged))

    # -- inside ------------------------------------------------------------------------------------

    def _step_names(self, kind: str, path: str, change: NameChange) -> None:
        """Run a call that changes names; a failed call changes them all the same 1 in 5 times."""
        try:
            self.step(kind, path)
        except OSError:
            if self.rng.random() < 0.2:
                self._change_names(change)
            raise
        self._change_names(change)

    def _change_names(self, change: NameChange) -> None:
        for directory, name, _ in change.removes:
            del directory.names[name]
        for directory, name, node in change.adds:
            directory.names[name] = node
        self._changes.append(change)

    def _sync_names(self, directory: SimulatedDirectory, path: str) -> None:
        self.step("sync_directory", path)
        kept: list[NameChange] = []
        for change in self._changes:
            if change.concerns(directory):
                change.apply()
            else:
                kept.append(change)
        self._changes = kept

    def _settle_names(self, directory: SimulatedDirectory) -> None:
        directory.names = dict(directory.durable)
        for node in directory.names.values():
            if isinstance(node, SimulatedDirectory):
                self._settle_names(node)

    def _all_files(self) -> list[SimulatedFile]:
        """Files with a durable name, each once, in the order of paths."""
        found: list[SimulatedFile] = []
        known: set[int] = set()

        def visit(directory: SimulatedDirectory) -> None:
            for name in sorted(directory.durable):
                node = directory.durable[name]
                if isinstance(node, SimulatedDirectory):
                    visit(node)
                elif id(node) not in known:
                    known.add(id(node))
                    found.append(node)

        visit(self.root)
        return found

    def _find(self, path: str) -> SimulatedFile | SimulatedDirectory | None:
        node: SimulatedFile | SimulatedDirectory | None = self.root
        for name in _parts(path):
            if not isinstance(node, SimulatedDirectory):
                return None
            node = node.names.get(name)
        return node

    def _node(self, path: str) -> SimulatedFile | SimulatedDirectory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _file(self, path: str) -> SimulatedFile:
        node = self._node(path)
        if isinstance(node, SimulatedDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> SimulatedDirectory:
        node = self._node(path)
        if not isinstance(node, SimulatedDirectory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[SimulatedDirectory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory(above), name


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _walk(
    directory: SimulatedDirectory, prefix: str, found: list[tuple[str, SimulatedFile]]
) -> None:
    for name in sorted(directory.names):
        node = directory.names[name]
        if isinstance(node, SimulatedDirectory):
            _walk(node, f"{prefix}/{name}", found)
        else:
            found.append((f"{prefix}/{name}", node))
