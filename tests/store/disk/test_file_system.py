"""The calls of the store, on a real directory and on the simulated disk: both answer alike."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.cached_reads import need_cached_reads
from warrenmq.store.disk import local_file_system
from warrenmq.store.disk.files import put_whole, read_whole
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.file_system import FileSystem


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalFileSystem]:
    files = LocalFileSystem(tmp_path)
    yield files
    files.release()


@pytest.fixture(params=["local", "simulated"])
def files(request: pytest.FixtureRequest, local: LocalFileSystem) -> FileSystem:
    return local if request.param == "local" else SimulatedFileSystem()


def put(files: FileSystem, path: str, data: bytes) -> None:
    handle = files.create(path)
    handle.write(0, [data])
    handle.close()


def test_cached_reads_are_whole_or_none(local: LocalFileSystem, tmp_path: Path) -> None:
    need_cached_reads(tmp_path)
    put(local, "a", bytes(range(256)) * 64)
    assert local.read_cached("a", [(0, 4), (10_000, 300), (16_384 - 1, 1)]) == [
        b"\0\1\2\3",
        (bytes(range(256)) * 64)[10_000:10_300],
        b"\xff",
    ]
    assert local.read_cached("a", [(0, 4), (16_384 - 1, 2)]) is None
    assert local.read_cached("b", [(0, 4)]) is None
    with pytest.raises(ValueError, match="no path below the root"):
        local.read_cached("../a", [(0, 4)])
    descriptor = os.open(tmp_path / "a", os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    # A file system in memory keeps it.
    assert local.read_cached("a", [(0, 4)]) in (None, [b"\0\1\2\3"])
    assert local.read("a", 0, 4) == b"\0\1\2\3"
    assert local.read_cached("a", [(0, 4)]) == [b"\0\1\2\3"]


def test_what_is_written_is_read(files: FileSystem) -> None:
    handle = files.create("a")
    handle.write(0, [b"one", b"", b"two"])
    handle.write(3, [b"TWO", b"three"])
    handle.write(20, [])
    handle.sync()
    assert files.size("a") == 11
    assert files.read("a", 0, 100) == b"oneTWOthree"
    assert files.read("a", 3, 3) == b"TWO"
    assert files.read("a", 11, 5) == b""
    assert files.read("a", 50, 5) == b""
    handle.write(13, [b"!"])
    assert files.read("a", 9, 9) == b"ee\0\0!"
    handle.close()
    handle.close()
    handle = files.open("a")
    handle.truncate(3)
    assert read_whole(files, "a") == b"one"
    handle.truncate(5)
    assert read_whole(files, "a") == b"one\0\0"
    handle.allocate(4, 100)
    assert read_whole(files, "a") == b"one\0\0".ljust(104, b"\0")
    handle.allocate(0, 10)
    assert files.size("a") == 104
    handle.close()


def test_names(files: FileSystem) -> None:
    assert files.list_names("") == []
    files.make_directories("x/y/z")
    files.make_directories("x/y/z")
    files.make_directories("")
    for name in ("10", "9", "b"):
        put(files, f"x/{name}", name.encode())
    assert files.list_names("x") == ["10", "9", "b", "y"]
    files.rename("x/10", "x/9")
    assert read_whole(files, "x/9") == b"10"
    files.link("x/9", "x/y/linked")
    assert read_whole(files, "x/y/linked") == b"10"
    with pytest.raises(FileExistsError):
        files.link("x/b", "x/9")
    files.rename("x/y", "moved")
    assert files.list_names("moved") == ["linked", "z"]
    files.unlink("x/9")
    assert read_whole(files, "moved/linked") == b"10"
    files.remove_tree("moved")
    assert files.list_names("") == ["x"]
    assert files.list_names("x") == ["b"]
    for directory in ("", "x"):
        files.sync_directory(directory)
    assert files.free_bytes("x") > 0


def test_what_is_there(files: FileSystem) -> None:
    files.make_directories("d")
    put(files, "f", b"")
    assert [files.exists(name) for name in ("d", "f", "g", "d/g")] == [True, True, False, False]
    assert [files.is_file(name) for name in ("d", "f", "g", "d/g")] == [False, True, False, False]


def test_what_is_not_there_is_said(files: FileSystem) -> None:
    files.make_directories("d")
    put(files, "f", b"kept")
    with pytest.raises(FileExistsError):
        files.create("f")
    with pytest.raises(FileExistsError):
        files.create("d")
    for call in (files.open, files.size, files.unlink, files.remove_tree, files.list_names):
        with pytest.raises(FileNotFoundError):
            call("g")
    with pytest.raises(FileNotFoundError):
        files.read("g", 0, 1)
    with pytest.raises(FileNotFoundError):
        files.rename("g", "h")
    with pytest.raises(FileNotFoundError):
        files.create("nowhere/g")
    with pytest.raises(FileNotFoundError):
        files.sync_directory("nowhere")
    with pytest.raises(OSError, match="f"):
        files.make_directories("f/g")
    with pytest.raises(IsADirectoryError):
        files.unlink("d")
    assert read_whole(files, "f") == b"kept"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "..", "../a", "a/../../b", "a/./b", "a//b", "a/", "./a", "."]
)
def test_a_path_that_leaves_the_root_is_refused(local: LocalFileSystem, path: str) -> None:
    local.make_directories("a")
    for call in (
        local.create,
        local.open,
        local.size,
        local.unlink,
        local.list_names,
        local.make_directories,
    ):
        with pytest.raises(ValueError, match="below the root"):
            call(path)
    with pytest.raises(ValueError, match="below the root"):
        local.rename("a", path)


def test_sync_all(files: FileSystem) -> None:
    put(files, "a", b"x")
    assert files.sync_all() in (True, False)


# -- the real one ----------------------------------------------------------------------------------


class ReplacedOs:
    """The module `os` with some calls replaced."""

    def __init__(self, **calls: Any) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return self.calls.get(name) or getattr(os, name)


def test_others_may_not_read(local: LocalFileSystem, tmp_path: Path) -> None:
    local.make_directories("d/e")
    put(local, "d/f", b"")
    assert (tmp_path / "d").stat().st_mode & 0o027 == 0
    assert (tmp_path / "d" / "f").stat().st_mode & 0o137 == 0


def test_no_descriptor_is_inherited(local: LocalFileSystem) -> None:
    before = set(os.listdir("/proc/self/fd"))
    handles = [local.create("a"), local.open("a")]
    opened = set(os.listdir("/proc/self/fd")) - before
    inheritable = [
        number
        for number in opened
        if os.path.exists(f"/proc/self/fd/{number}") and os.get_inheritable(int(number))
    ]
    assert len(opened) >= 2
    assert inheritable == []
    for handle in handles:
        handle.close()


def test_thousands_of_parts_and_short_writes(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def write_little(descriptor: int, parts: Sequence[bytes], offset: int, flags: int) -> int:
        # The short write ends inside a part or between two parts.
        assert len(parts) <= 1024
        data = b"".join(parts)[: 1 + len(sizes) * 997]
        sizes.append(len(data))
        return os.pwrite(descriptor, data, offset)

    monkeypatch.setattr(local_file_system, "os", ReplacedOs(pwritev=write_little))
    parts = [bytes([number % 251]) * (number % 90) for number in range(5000)]
    handle = local.create("a")
    handle.write(7, parts)
    handle.close()
    assert len(sizes) > 10
    assert read_whole(local, "a") == bytes(7) + b"".join(parts)


def test_thousands_of_parts_are_written_in_a_few_calls(local: LocalFileSystem) -> None:
    parts = [bytes([number % 251]) * 100 for number in range(5000)]
    handle = local.create("a")
    handle.write(0, parts)
    handle.close()
    assert read_whole(local, "a") == b"".join(parts)


@pytest.mark.parametrize(
    ("count", "refuses", "calls"),
    [
        (1000, False, [os.RWF_DSYNC]),
        (1000, True, [os.RWF_DSYNC, 0, "sync"]),
        # They take two writes, and a synced write syncs its own bytes only.
        (2000, False, [0, 0, "sync"]),
    ],
)
def test_what_is_written_synced_takes_one_call_where_the_system_can(
    local: LocalFileSystem,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    refuses: bool,
    calls: list[int | str],
) -> None:
    made: list[int | str] = []

    def write(descriptor: int, parts: Sequence[bytes], offset: int, flags: int) -> int:
        made.append(flags)
        if refuses and flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag")
        return os.pwritev(descriptor, parts, offset, flags)

    def sync(descriptor: int) -> None:
        made.append("sync")

    monkeypatch.setattr(local_file_system, "os", ReplacedOs(pwritev=write, fdatasync=sync))
    handle = local.create("a")
    handle.write_synced(3, [b"ab"] * count)
    handle.close()
    assert made == calls
    assert read_whole(local, "a") == bytes(3) + b"ab" * count


def test_a_synced_write_that_fails_is_not_tried_in_another_way(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(local_file_system, "os", ReplacedOs(pwritev=fail))
    handle = local.create("a")
    with pytest.raises(OSError, match="broken"):
        handle.write_synced(0, [b"x"])
    handle.close()


def test_a_disk_that_takes_nothing_is_an_error(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_file_system, "os", ReplacedOs(pwritev=lambda *_: 0))
    handle = local.create("a")
    handle.write(0, [b"", b""])
    with pytest.raises(OSError, match="takes no bytes"):
        handle.write(0, [b"x"])
    handle.close()


def test_short_reads_are_continued(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    put(local, "a", bytes(range(200)))

    def read_little(descriptor: int, size: int, offset: int) -> bytes:
        return os.pread(descriptor, min(size, 7), offset)

    monkeypatch.setattr(local_file_system, "os", ReplacedOs(pread=read_little))
    assert local.read("a", 10, 100) == bytes(range(10, 110))
    assert local.read("a", 190, 100) == bytes(range(190, 200))


def test_links_that_lead_nowhere_are_there(local: LocalFileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert local.exists("link")
    assert not local.is_file("link")
    with pytest.raises(FileExistsError):
        local.make_directories("link/d")


@pytest.mark.parametrize(
    ("number", "answer"), [(errno.ENOSYS, False), (errno.EIO, errno.EIO), (errno.EINTR, True)]
)
def test_what_syncfs_says(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch, number: int, answer: int
) -> None:
    results = [-1, 0]
    monkeypatch.setattr(local_file_system, "_syncfs", lambda _descriptor: results.pop(0))
    monkeypatch.setattr("ctypes.get_errno", lambda: number)
    if answer == errno.EIO:
        with pytest.raises(OSError, match="Input/output") as failure:
            local.sync_all()
        assert failure.value.errno == errno.EIO
    else:
        assert local.sync_all() is bool(answer)


def test_what_is_written_back_is_there_and_a_failure_is_said(
    files: FileSystem, local: LocalFileSystem
) -> None:
    handle = files.create("a")
    handle.write(0, [b"x" * 10_000])
    handle.write_back(0, 10_000)
    assert files.read("a", 0, 20_000) == b"x" * 10_000
    handle.close()
    handle = local.create("b")
    handle.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        handle.write_back(0, 1)


def test_without_a_call_for_it_nothing_is_written_back(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_file_system, "_sync_file_range", None)
    handle = local.create("a")
    handle.write_back(0, 1)
    handle.close()


def test_without_a_trustworthy_syncfs_there_is_none(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_file_system, "_syncfs", None)
    assert not local.sync_all()


@pytest.mark.parametrize(
    ("release", "tells"),
    [
        ("6.18.44-x", True),
        ("5.8.0", True),
        ("5.7.19", False),
        ("4.19", False),
        ("10.0", True),
        ("strange", False),
    ],
)
def test_syncfs_tells_of_failures_since_linux_5_8(release: str, tells: bool) -> None:
    assert local_file_system.syncfs_tells_errors(release) is tells


def test_calls_from_many_threads(local: LocalFileSystem) -> None:
    def work(name: str) -> None:
        for _ in range(50):
            put_whole(local, name, name.encode() * 100)
            assert read_whole(local, name) == name.encode() * 100

    threads = [threading.Thread(target=work, args=(f"file{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert local.list_names("") == sorted(f"file{number}" for number in range(8))
