"""A file that is written anew keeps its room, and is whole whenever a write is cut short."""

import errno
import os
from pathlib import Path

import pytest

from tests.support.stores.small_disk import mounted_disk
from warrenmq.store.disk.roomy_file import read_roomy, remove_roomy, write_roomy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f"


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def test_versions_take_turns(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_roomy(path)
    for data in (b"one", b"second", b"3"):
        write_roomy(path, data, 0o600)
        assert read_roomy(path) == data
    assert names(path) == ["f", "f.room"]
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}


def test_a_removed_file_leaves_its_room(path: Path) -> None:
    remove_roomy(path)
    write_roomy(path, b"one")
    remove_roomy(path)
    assert names(path) == ["f.room"]
    with pytest.raises(FileNotFoundError):
        read_roomy(path)
    write_roomy(path, b"two")
    assert names(path) == ["f"]


@pytest.mark.parametrize("calls", range(4))
def test_a_write_that_is_cut_short(path: Path, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node dies before one of the steps: the old version or the new one is there."""
    write_roomy(path, b"one")
    write_roomy(path, b"two")
    left = calls
    rename = Path.rename

    def dying(self: Path, target: Path) -> Path:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        if calls == 3:
            write_roomy(path, b"three")
        else:
            with pytest.raises(KeyboardInterrupt):
                write_roomy(path, b"three")
    assert read_roomy(path) == (b"two" if calls < 2 else b"three")
    write_roomy(path, b"four")
    assert read_roomy(path) == b"four"
    assert names(path) == ["f", "f.room"]


def test_no_byte_is_free(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        for name in ("known", "young"):
            write_roomy(disk.path / name, b"one")
        write_roomy(disk.path / "known", b"two")
        disk.fill()
        for data in (b"three", b"four"):
            write_roomy(disk.path / "known", data)
            assert read_roomy(disk.path / "known") == data
        for name in ("young", "new"):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                write_roomy(disk.path / name, b"two")
        assert read_roomy(disk.path / "young") == b"one"
        assert sorted(each.name for each in disk.path.iterdir() if each.is_file()) == [
            "filler", "known", "known.room", "young",
        ]  # fmt: skip
