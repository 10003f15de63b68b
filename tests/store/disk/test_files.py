"""A start sorts a vhost's directory: our files, strange files, remains (T22, T33)."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from simulator.simulated.file_system import POWER, SimulatedFileSystem
from tests.store.test_recovery import bodies_of, record_file
from tests.support.stores.dict_disk.journal_driver import SEGMENT_ENTRIES, content_of
from tests.support.stores.made_files import STORE_ID
from warrenmq.store.disk.files import (
    keep_orphans,
    load_store_id,
    make_directories,
    read_whole,
)
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.store_reader import read_store
from warrenmq.store.records.record import FILE_MAGIC, FORMAT_VERSION, RecordWriter
from warrenmq.store.recovery import JournalReplay
from warrenmq.store.settings import StoreSettings


class Directory:
    """The directory of a vhost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.lost = path / "lost+found"
        self.journal.mkdir()
        self.files = LocalFileSystem(path)

    def put(self, number: int, *bodies: bytes, store_id: bytes = STORE_ID) -> Path:
        """Write a valid journal file."""
        target = self.journal / f"{number}.wal"
        target.write_bytes(record_file(*bodies, number=number, store_id=store_id)[0])
        return target

    def read(self) -> tuple[JournalReplay, list[str]]:
        """Replay the directory; also return where quarantined and unfinished files went."""
        _, replay, report = read_store(self.files, STORE_ID, StoreSettings(1 << 20))
        return replay, [line.split(" -> ")[1] for line in report.quarantined + report.unfinished]

    def kept(self) -> list[bytes]:
        """The contents of all files in lost+found."""
        return (
            [path.read_bytes() for path in sorted(self.lost.iterdir())]
            if self.lost.exists()
            else []
        )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path)
    yield directory
    directory.files.release()


def test_files_are_read_in_the_order_of_their_numbers(directory: Directory) -> None:
    directory.put(9, b"nine")
    directory.put(10, b"ten")
    directory.put(100, b"hundred")
    replay, quarantined = directory.read()
    # All three files claim seq 1 of queue 1: the youngest counts.
    assert bodies_of(replay) == [b"hundred"]
    assert [file.number for file in replay.files] == [9, 10, 100]
    assert quarantined == []
    assert not directory.lost.exists()


def with_header(data: bytes) -> bytes:
    """The file's bytes with a valid checksum in its header."""
    return data[:36] + crc32c(data[:36]).to_bytes(4, "big") + data[40:]


STRANGE = {
    "empty": b"",
    "zeros": bytes(4096),
    "header cut": record_file(b"x", number=5)[0][:39],
    "wrong magic": with_header(b"X" + record_file(b"x", number=5)[0][1:]),
    "future version": with_header(
        b"WARRENWL" + (FORMAT_VERSION + 1).to_bytes(4, "big") + record_file(b"x", number=5)[0][12:]
    ),
    "other store": record_file(b"x", number=5, store_id=bytes(16))[0],
    "copy of another file": record_file(b"x", number=4)[0],
    "noise": random.Random(2).randbytes(10_000),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_file_among_ours_is_put_aside_whole(directory: Directory, name: str) -> None:
    directory.put(4, b"before")
    directory.put(6, b"after")
    (directory.journal / "5.wal").write_bytes(STRANGE[name])
    replay, quarantined = directory.read()
    assert bodies_of(replay) == [b"after"]
    assert [file.number for file in replay.files] == [4, 6]
    assert len(quarantined) == 1
    assert (directory.lost / quarantined[0]).read_bytes() == STRANGE[name]
    assert not (directory.journal / "5.wal").exists()
    # The next start finds nothing strange.
    again, quarantined = directory.read()
    assert quarantined == []
    assert bodies_of(again) == [b"after"]


@pytest.mark.parametrize(
    "name", ["notes.txt", "1.wal.bak", "01.wal", "-1.wal", "1.WAL", "9" * 19 + ".wal", ".hidden"]
)
def test_names_that_are_not_ours_are_put_aside(directory: Directory, name: str) -> None:
    directory.put(1, b"mine")
    (directory.journal / name).write_bytes(b"somebody's")
    replay, _ = directory.read()
    assert bodies_of(replay) == [b"mine"]
    assert directory.kept() == [b"somebody's"]


def test_directories_and_links_are_put_aside(directory: Directory) -> None:
    directory.put(1, b"mine")
    (directory.journal / "2.wal").mkdir()
    (directory.journal / "2.wal" / "inside").write_bytes(b"precious")
    (directory.journal / "3.wal").symlink_to("nowhere")
    replay, quarantined = directory.read()
    assert bodies_of(replay) == [b"mine"]
    assert len(quarantined) == 2
    assert (
        directory.lost / next(name for name in quarantined if "2.wal" in name) / "inside"
    ).exists()


def test_files_of_the_same_name_do_not_overwrite_each_other_in_lost_and_found(
    directory: Directory,
) -> None:
    for content in (b"first", b"second", b"third"):
        (directory.journal / "1.wal").write_bytes(content)
        directory.read()
    assert directory.kept() == [b"first", b"second", b"third"]


def test_damage_in_the_middle_is_copied_and_the_rest_goes_on(directory: Directory) -> None:
    data, ends = record_file(b"one", b"two", b"three", number=1)
    hole = b"\x00" * (ends[2] - ends[1] - 1) + b"!"
    (directory.journal / "1.wal").write_bytes(data[: ends[1]] + hole + data[ends[2] :])
    replay, _ = directory.read()
    assert bodies_of(replay) == [b"one", b"three"]
    assert directory.kept() == [hole]
    directory.read()
    assert directory.kept() == [hole]


def test_an_unfinished_write_is_copied_unless_it_is_zeros(directory: Directory) -> None:
    data, ends = record_file(b"one", b"two", number=1)
    (directory.journal / "1.wal").write_bytes(data[:-1])
    (directory.journal / "2.wal").write_bytes(record_file(b"three", number=2)[0] + bytes(3000))
    replay, _ = directory.read()
    assert bodies_of(replay) == [b"three"]
    assert directory.kept() == [data[ends[1] : -1]]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_a_killed_process_has_written_counts_from_the_start_on(is_stopped: bool) -> None:
    """A start syncs what it read, even a mark of a clean stop: a power failure may follow."""
    data, _ = record_file(b"one", b"two", number=1)
    if is_stopped:
        writer = RecordWriter(STORE_ID)
        writer.start_file(FILE_MAGIC, 1)
        writer.take()
        writer.clean_stop()
        data += b"".join(writer.take())
    for seed in range(20):
        disk = SimulatedFileSystem()
        disk.make_directories("journal")
        handle = disk.create("journal/1.wal")
        handle.write(0, [data])
        handle.close()
        disk.sync_directory("journal")
        _, replay, _ = read_store(disk, STORE_ID, StoreSettings(1 << 20))
        assert replay.is_clean == is_stopped
        disk.crash(random.Random(seed), POWER)
        assert read_whole(disk, "journal/1.wal") == data


def test_no_journal_at_all(directory: Directory) -> None:
    replay, quarantined = directory.read()
    assert replay.queues == {}
    assert quarantined == []
    assert not replay.is_clean


def test_orphans_are_a_journal_file_of_their_own(directory: Directory) -> None:
    directory.put(1, b"one", b"two")
    replay, _ = directory.read()
    name = keep_orphans(directory.files, replay.queues[1], STORE_ID)
    again = JournalReplay(STORE_ID, None, SEGMENT_ENTRIES)
    again.feed_file(0, (directory.lost / name).read_bytes())
    again.finish()
    assert [content_of(place) for place in again.queues[1].in_order()] == [
        content_of(place) for place in replay.queues[1].in_order()
    ]


# -- the store id ----------------------------------------------------------------------------------


def test_a_store_id_is_made_once(directory: Directory) -> None:
    store_id = load_store_id(directory.files)
    assert len(store_id) == 16
    assert load_store_id(directory.files) == store_id
    assert sorted(path.name for path in directory.path.iterdir()) == ["journal", "store_id"]


@pytest.mark.parametrize("content", [None, b"", b"zz", b"ab" * 15, b"\xff\xfe", b"ab" * 17])
def test_a_lost_store_id_is_found_in_the_journal(
    directory: Directory, content: bytes | None
) -> None:
    directory.put(7, b"mine")
    if content is not None:
        (directory.path / "store_id").write_bytes(content)
    assert load_store_id(directory.files) == STORE_ID
    assert (directory.path / "store_id").read_text().strip() == STORE_ID.hex()


def test_a_store_id_that_no_file_has_is_not_believed(directory: Directory) -> None:
    """A store id that no file has is a flipped bit: believing it would make all files strange."""
    directory.put(7, b"mine")
    directory.put(8, b"mine too")
    other = record_file(b"foreign", number=9, store_id=bytes(16))[0]
    (directory.journal / "9.wal").write_bytes(other)
    (directory.path / "store_id").write_text((b"?" + STORE_ID[1:]).hex() + "\n")
    assert load_store_id(directory.files) == STORE_ID
    assert (directory.path / "store_id").read_text().strip() == STORE_ID.hex()


def test_one_file_is_enough_to_believe_a_store_id(directory: Directory) -> None:
    directory.put(7, b"mine")
    for number in (8, 9):
        foreign = record_file(b"foreign", number=number, store_id=bytes(16))[0]
        (directory.journal / f"{number}.wal").write_bytes(foreign)
    (directory.path / "store_id").write_text(STORE_ID.hex() + "\n")
    assert load_store_id(directory.files) == STORE_ID


def test_a_lost_store_id_with_a_torn_first_file(directory: Directory) -> None:
    (directory.journal / "1.wal").write_bytes(b"")
    directory.put(2, b"mine")
    assert load_store_id(directory.files) == STORE_ID


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "c"
    make_directories(target)
    make_directories(target)
    assert target.is_dir()
    assert os.stat(target).st_mode & 0o7 == 0


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError, match="a"):
        make_directories(tmp_path / "a" / "b")


def test_no_number_is_used_again(directory: Directory) -> None:
    """A new file gets neither the number of a quarantined file nor that of an unneeded one."""
    directory.put(4, b"mine")
    (directory.journal / "7.wal").write_bytes(b"noise")
    replay, _ = directory.read()
    assert replay.next_file_number == 8
