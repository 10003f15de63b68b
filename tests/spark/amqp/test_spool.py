"""Tests the spool on real files: stored messages survive restarts, crashes and full disks."""

import errno
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from warrenmq.spark.amqp import spool as amqp_spool
from warrenmq.spark.amqp.connection import Delivery
from warrenmq.spark.amqp.spool import Spool
from warrenmq.spark.retry import SourceError
from warrenmq.tables.spool import MARK_MESSAGES, read_slice
from warrenmq.wire.methods import BasicDeliver
from warrenmq.wire.properties import Properties

MIB = 1024 * 1024
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("redelivered", pa.bool_()),
        ("persistent", pa.bool_()),
        ("message_id", pa.string()),
        ("body", pa.binary()),
    ]
)


def delivery(number: int, size: int = 10, redelivered: bool = False) -> Delivery:
    properties = Properties(
        delivery_mode=2 if number % 2 else 1, message_id=b"%d" % number
    ).encode()
    method = BasicDeliver(b"tag", number + 1, redelivered, b"x", b"k%d" % number)
    return Delivery(method, properties, (b"%d " % number).ljust(size, b"."))


def deliveries(first: int, end: int, size: int = 10) -> list[Delivery]:
    return [delivery(number, size) for number in range(first, end)]


def opened(tmp_path: Path, bytes_max: int = 64 * MIB, queue: str = "q") -> Spool:
    return Spool(tmp_path / "spool", "/", queue, bytes_max)


def rows(spool: Spool, start: int, end: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in spool.slices(start, end):
        for batch in read_slice(part, SCHEMA):
            found += batch.to_pylist()
    return found


def numbers(spool: Spool, start: int, end: int) -> list[int]:
    return [int(row["message_id"]) for row in rows(spool, start, end)]


def test_messages_come_back_with_everything_they_had(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.store([delivery(0), delivery(1, redelivered=True)])
    assert rows(spool, 0, 2) == [
        {"seq": 0, "exchange": "x", "routing_key": "k0", "redelivered": False, "persistent": False,
         "message_id": "0", "body": b"0 ........"},
        {"seq": 1, "exchange": "x", "routing_key": "k1", "redelivered": True, "persistent": True,
         "message_id": "1", "body": b"1 ........"},
    ]  # fmt: skip
    spool.close()


def test_any_range_is_read_exactly_also_by_the_next_process(tmp_path: Path) -> None:
    """Any range over files, marks and cuts is read exactly, in this process and in the next."""
    chance = random.Random(3)
    spool = opened(tmp_path, 8 * MIB)
    end = 0
    while end < 6000:
        count = chance.randrange(1, 900)
        spool.store(deliveries(end, end + count, chance.choice([10, 1000])))
        end += count
    assert len(list((tmp_path / "spool").glob("*.wal"))) > 2
    ranges = [sorted(chance.sample(range(end + 1), 2)) for _ in range(30)]
    for first, last in ranges:
        assert numbers(spool, first, last) == list(range(first, last))
    cuts = [(part.start, part.end) for part in spool.slices(100, end)]
    spool.close()
    spool = opened(tmp_path, 8 * MIB)
    assert (spool.start, spool.tail) == (0, end)
    assert [(part.start, part.end) for part in spool.slices(100, end)] == cuts
    for first, last in ranges:
        assert numbers(spool, first, last) == list(range(first, last))
    spool.store(deliveries(end, end + 10))
    assert numbers(spool, end - 5, end + 10) == list(range(end - 5, end + 10))
    spool.close()


def test_what_was_never_finished_is_cut_off(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.store(deliveries(0, 100))
    spool.close()
    (path,) = (tmp_path / "spool").glob("*.wal")
    size = path.stat().st_size
    for cut in (size - 1, size - 40, size - 200):
        os.truncate(path, cut)
        spool = opened(tmp_path)
        assert spool.tail < 100
        assert numbers(spool, 0, spool.tail) == list(range(spool.tail))
        spool.close()
    tail = spool.tail
    with path.open("ab") as file:
        file.write(bytes(5000))
    spool = opened(tmp_path)
    assert spool.tail == tail
    spool.store(deliveries(tail, tail + 5))
    assert numbers(spool, 0, tail + 5) == list(range(tail + 5))
    spool.close()


@pytest.mark.parametrize("size", [0, 17, 40])
def test_a_file_that_was_just_begun_is_no_obstacle(tmp_path: Path, size: int) -> None:
    """A file without its header is accepted: a crash may come before the header is written."""
    spool = opened(tmp_path)
    spool.store(deliveries(0, 10))
    spool.close()
    header = (tmp_path / "spool" / "0.wal").read_bytes()[:size]
    (tmp_path / "spool" / "10.wal").write_bytes(header if size < 40 else bytes(40))
    spool = opened(tmp_path)
    assert spool.tail == 10
    spool.store(deliveries(10, 12))
    assert numbers(spool, 0, 12) == list(range(12))
    spool.close()


def test_damage_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.store(deliveries(0, 100))
    part = spool.slices(0, 100)[0]
    spool.close()
    path = Path(part.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is damaged before byte"):
        opened(tmp_path)
    with pytest.raises(Exception, match="99 of the 100 messages from 0 on"):
        list(read_slice(part, SCHEMA))


def test_committed_files_are_deleted(tmp_path: Path) -> None:
    spool = opened(tmp_path, 8 * MIB)
    spool.store(deliveries(0, 5000, 1000))
    before = len(list((tmp_path / "spool").glob("*.wal")))
    spool.commit(2500, 0)
    assert 1 < len(list((tmp_path / "spool").glob("*.wal"))) < before
    assert spool.start == 2500
    assert numbers(spool, 2500, 5000) == list(range(2500, 5000))
    with pytest.raises(SourceError, match="data loss"):
        spool.slices(0, 5000)
    spool.close()
    spool = opened(tmp_path, 8 * MIB)
    assert (spool.start, spool.tail) == (2500, 5000)
    spool.commit(5000, 0)
    assert len(list((tmp_path / "spool").glob("*.wal"))) == 1
    spool.close()
    assert opened(tmp_path).tail == 5000


def test_a_commit_makes_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit frees room on a full disk, and succeeds even if its note, a hint, is not written."""
    spool = opened(tmp_path, 8 * MIB)
    spool.store(deliveries(0, 5000, 1000))

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        spool.commit(5000, 0)
    assert len(list((tmp_path / "spool").glob("*.wal"))) == 1
    spool.close()
    spool = opened(tmp_path, 8 * MIB)
    assert 0 < spool.start < 5000 == spool.tail
    spool.close()


def test_the_last_messages_stay_when_they_are_wanted(tmp_path: Path) -> None:
    spool = opened(tmp_path, 8 * MIB)
    spool.store(deliveries(0, 5000, 1000))
    spool.commit(5000, 3000)
    last = [
        int(row["message_id"])
        for part in spool.last_slices(3000)
        for batch in read_slice(part, SCHEMA)
        for row in batch.to_pylist()
    ]
    assert last == list(range(2000, 5000))
    spool.close()


def test_numbers_are_not_used_twice(tmp_path: Path) -> None:
    """Seq ids are not used twice, even when the files are lost."""
    spool = opened(tmp_path)
    spool.store(deliveries(0, 10))
    spool.commit(10, 0)
    spool.close()
    (tmp_path / "spool" / "0.wal").unlink()
    spool = opened(tmp_path)
    assert (spool.start, spool.tail) == (10, 10)
    spool.store(deliveries(10, 12))
    assert numbers(spool, 10, 12) == [10, 11]
    spool.close()


@pytest.mark.parametrize("size", [0, 36, 60])
def test_a_file_that_was_just_begun_says_where_numbers_go_on(tmp_path: Path, size: int) -> None:
    """An empty file says where seq ids continue.

    A power failure may leave nothing else, since the note of committed messages is not synced.
    """
    spool = opened(tmp_path)
    spool.store(deliveries(0, 10))
    spool.close()
    spool = opened(tmp_path)
    spool.store(deliveries(10, 11))
    spool.commit(10, 0)
    spool.close()
    os.truncate(tmp_path / "spool" / "10.wal", size)
    (tmp_path / "spool" / "committed").write_bytes(b"")
    assert sorted(path.name for path in (tmp_path / "spool").glob("*.wal")) == ["10.wal"]
    spool = opened(tmp_path)
    assert (spool.start, spool.tail) == (10, 10)
    spool.close()


def test_it_is_full_until_something_is_committed(tmp_path: Path) -> None:
    spool = opened(tmp_path, MIB)
    found = [spool.is_full]
    spool.store(deliveries(0, 1200, 1000))
    found.append(spool.is_full)
    spool.commit(600, 0)
    found.append(spool.is_full)
    spool.store([delivery(1200, 3 * MIB)])
    found.append(spool.is_full)
    spool.commit(1201, 0)
    found.append(spool.is_full)
    assert found == [False, True, False, True, False]
    spool.close()


def test_limits_of_a_batch(tmp_path: Path) -> None:
    """The limit in messages is exact, that in bytes to one mark; a batch has at least one step."""
    spool = opened(tmp_path, 8 * MIB)
    spool.store(deliveries(0, 5000, 1000))
    everything = 1 << 62
    assert spool.end_of_batch(0, everything, everything) == 5000
    assert spool.end_of_batch(17, 1000, everything) == 1017
    assert spool.end_of_batch(4990, 1000, everything) == 5000
    assert spool.end_of_batch(5000, 1000, everything) == 5000
    at = spool.end_of_batch(0, everything, 2 * MIB)
    assert 1700 < at <= 2000
    assert at % MARK_MESSAGES == 0 or any(part.start == at for part in spool.slices(at, 5000))
    assert 0 < spool.end_of_batch(at, everything, 1) - at <= MARK_MESSAGES
    start, seen = 0, 0
    while start < 5000:
        end = spool.end_of_batch(start, everything, 300_000)
        assert end > start
        assert sum(len(row["body"]) for row in rows(spool, start, end)) < 600_000
        start, seen = end, seen + 1
    assert seen > 10
    spool.close()


def test_partitions_are_cut_at_fixed_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_spool, "SPOOL_SLICE_MESSAGES", 100)
    spool = opened(tmp_path)
    spool.store(deliveries(0, 450))
    assert [(part.start, part.end) for part in spool.slices(30, 330)] == [
        (30, 100), (100, 200), (200, 300), (300, 330)
    ]  # fmt: skip
    spool.close()


def test_one_query_one_spool_one_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_spool, "LOCK_TIMEOUT_S", 0.0)
    spool = opened(tmp_path)
    with pytest.raises(SourceError, match="in use by another query"):
        opened(tmp_path)
    spool.close()
    with pytest.raises(SourceError, match="is of queue 'q' in vhost '/', not of 'other' in '/'"):
        opened(tmp_path, queue="other")
    (tmp_path / "spool" / "spool.json").write_text("{}")
    with pytest.raises(SourceError, match="damaged, or of another version"):
        opened(tmp_path)


def test_messages_without_their_identity_are_not_taken_for_nothing(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.store(deliveries(0, 10))
    spool.close()
    (tmp_path / "spool" / "spool.json").unlink()
    with pytest.raises(SourceError, match=r"spool\.json is lost"):
        opened(tmp_path)


def test_large_messages(tmp_path: Path) -> None:
    """Large messages: more parts than one write takes, and a message that is larger than a file."""
    spool = opened(tmp_path, 16 * MIB)
    spool.store([delivery(number, 5000) for number in range(1500)] + [delivery(1500, 5 * MIB)])
    spool.store([delivery(1501)])
    found = rows(spool, 0, 1502)
    assert [len(row["body"]) for row in found] == [5000] * 1500 + [5 * MIB, 10]
    spool.close()
