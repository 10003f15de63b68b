"""Directories of format 2 turn over to the format of today; those of a later one are refused."""

from pathlib import Path

import pytest
from crc32c import crc32c

from tests.golden.reading import SETTINGS, unpack
from tests.support.brokers.process import BrokerProcess
from warrenmq.store.disk.format_version import NewerFormatError, refuse_newer_formats
from warrenmq.store.records.record import FILE_HEADER_BYTES, FORMAT_VERSION

HERE = Path(__file__).parent
FORMAT_2 = "74f060a"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped data directory of format 2."""
    return unpack(HERE / f"{FORMAT_2}-stopped.tar.xz", tmp_path)


def version_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[8:12], "big")


def files_of(data: Path, pattern: str) -> list[Path]:
    return sorted((data / "msg_stores" / "vhosts").glob(f"*/{pattern}"))


def everything(data: Path) -> dict[str, bytes]:
    return {
        path.relative_to(data).as_posix(): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file()
    }


def make_newer(path: Path) -> None:
    """Give a whole header of the next format version to a file."""
    content = path.read_bytes()
    header = content[:8] + (FORMAT_VERSION + 1).to_bytes(4, "big") + content[12:36]
    path.write_bytes(header + crc32c(header).to_bytes(4, "big") + content[FILE_HEADER_BYTES:])


def test_every_format_has_golden_directories(tmp_path: Path) -> None:
    """Those of a format are made before the next one, when a node of it can still be run."""
    found = {}
    for archive in sorted(HERE.glob("*-stopped.tar.xz")):
        directory = tmp_path / archive.name
        checkpoints = files_of(unpack(archive, directory), "checkpoint")
        found[archive.name] = max(version_of(path) for path in checkpoints)
    assert set(found.values()) == set(range(1, FORMAT_VERSION + 1)), found


def test_the_golden_directory_is_of_format_2(data: Path) -> None:
    found = files_of(data, "journal/*.wal") + files_of(data, "queues/*/*.idx")
    assert {version_of(path) for path in found + files_of(data, "checkpoint")} == {2}


@pytest.mark.parametrize("pattern", ["checkpoint", "checkpoint.previous", "journal/*.wal"])
def test_a_later_format_is_refused_and_nothing_is_changed(data: Path, pattern: str) -> None:
    make_newer(files_of(data, pattern)[-1])
    before = everything(data)
    with pytest.raises(NewerFormatError, match=f"format version {FORMAT_VERSION + 1}"):
        refuse_newer_formats(data / "msg_stores" / "vhosts")
    assert everything(data) == before


@pytest.mark.kill
def test_a_node_refuses_a_later_format(data: Path) -> None:
    make_newer(files_of(data, "checkpoint")[-1])
    before = everything(data)
    node = BrokerProcess(data.parent, *SETTINGS)
    assert node.refused() != 0
    assert f"format version {FORMAT_VERSION + 1}" in node.log_path.read_text()
    after = everything(data)
    assert {name: after[name] for name in before} == before
    assert not any("lost+found" in name for name in after)


@pytest.mark.kill
def test_an_old_directory_turns_over(data: Path) -> None:
    """Checkpoints and the journal are new after two starts; old segments stay as they are."""
    segments = {
        path: path.read_bytes()[:FILE_HEADER_BYTES] for path in files_of(data, "queues/*/*.idx")
    }
    for _ in range(2):
        node = BrokerProcess(data.parent, *SETTINGS)
        node.start()
        assert node.stop() == 0
    assert {version_of(path) for path in files_of(data, "checkpoint*")} == {FORMAT_VERSION}
    assert version_of(max(files_of(data, "journal/*.wal"), key=lambda path: int(path.stem))) == (
        FORMAT_VERSION
    )
    kept = [path for path in segments if path.exists()]
    assert kept
    assert {path.read_bytes()[:FILE_HEADER_BYTES] == segments[path] for path in kept} == {True}
