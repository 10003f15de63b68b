"""Tests the tables of stores whose indexes refer to contents in journal files, in one process."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import functools
import pickle

import pyarrow as pa

from tests.support.stores.stopped_node import fingerprint
from tests.support.stores.store_driver import QUEUES, SETTINGS, CheckedStore
from warrenmq.broker.definitions.kinds import as_changes
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.store.disk.files import STORE_ID_NAME
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.store.records.record import FILE_HEADER_BYTES
from warrenmq.store.settings import StoreSettings
from warrenmq.tables import message_batches, planning
from warrenmq.tables.file_scan import OpenFile
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import DAMAGE, FILES, MESSAGES, POSITIONS, schema_of

DEFAULTS = StoreSettings(1 << 20)
# Two messages of a queue in one journal file are enough to refer to it.
REFERRING = tuple(
    int(each)
    for each in (
        *SETTINGS,
        DEFAULTS.rewrite_min_bytes,
        DEFAULTS.dead_tail_bytes,
        DEFAULTS.garbage_allowance_bytes,
        DEFAULTS.buffer_bytes,
        DEFAULTS.group_bytes,
        DEFAULTS.behind_bytes,
        1,
        2,
        1,
    )
)
EVERYTHING = ReadOptions()


class Node:
    """A data directory whose only vhost has the store of a CheckedStore."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store_path = path / "msg_stores/vhosts/1"
        self.driver = CheckedStore(self.store_path, REFERRING)
        (self.store_path / STORE_ID_NAME).write_bytes(
            self.driver.store.store_id.hex().encode() + b"\n"
        )
        definitions = Definitions()
        definitions.vhosts.append(PutVhost(b"/", 1))
        for queue_id in QUEUES:
            definitions.queues.append(PutQueue(b"/", queue_id, b"q%d" % queue_id, True, False, b""))
        metadata = SqliteMetadata(path / "node.sqlite")
        metadata.apply(as_changes(definitions))
        metadata.close()

    def deepen(self, count: int, *queue_ids: int) -> None:
        """Publish until the journal has moved what is older to the queues' indexes."""
        for _ in range(count):
            self.driver.publish(200, *queue_ids)
            self.driver.commit()
        for _ in range(3):
            self.driver.checkpoint()

    def batches(
        self, table: str = MESSAGES, options: ReadOptions = EVERYTHING, *columns: str
    ) -> Iterator[Any]:
        schema = schema_of(table)
        if columns:
            schema = pa.schema([schema.field(name) for name in columns])
        for partition in pickle.loads(pickle.dumps(plan(self.path, table, options))):  # our own
            yield from read(partition, schema)

    def rows(
        self, table: str = MESSAGES, options: ReadOptions = EVERYTHING, *columns: str
    ) -> list[dict[str, Any]]:
        return [
            row for batch in self.batches(table, options, *columns) for row in batch.to_pylist()
        ]

    def check(self) -> None:
        """Assert that the table has exactly the messages that the queues must deliver."""
        found: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
        for row in self.rows():
            assert row["seq"] not in found[row["queue_id"]], "a message comes twice"
            assert row["queue"] == f"q{row['queue_id']}"
            found[row["queue_id"]][row["seq"]] = row["body"]
        assert found == self.driver.bodies
        alive = [row for row in self.rows(POSITIONS) if row["state"] == "alive"]
        places = sorted((row["queue_id"], row["seq"]) for row in alive)
        assert places == sorted((queue_id, seq) for queue_id in QUEUES for seq in found[queue_id])

    def logs(self) -> list[Path]:
        return sorted(
            (self.store_path / "msg_store_persistent").glob("*.wal"),
            key=lambda path: int(path.stem),
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    entries = SETTINGS[3]
    monkeypatch.setattr(
        planning, "VhostSnapshot", functools.partial(VhostSnapshot, segment_entries=entries)
    )
    return Node(tmp_path / "data")


def test_each_message_comes_once(node: Node) -> None:
    node.deepen(300, 1)
    node.deepen(60, 1, 2, 3)
    assert len(node.logs()) > 8
    node.check()
    node.driver.settle(1, 40)
    node.driver.commit()
    node.check()
    node.driver.checkpoint()
    node.check()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happened(node: Node, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        node.driver.churn(rng, 120)
        node.check()
        if rng.random() < 0.5:
            node.driver.reopen()
            node.check()


def test_all_columns_are_those_of_a_copy(node: Node) -> None:
    """Contents in logs give the same columns as the same contents embedded in segments."""
    node.deepen(300, 1, 2)
    rows = node.rows()
    in_logs = [row for row in rows if row["file"].startswith("msg_store_persistent/")]
    assert len(in_logs) > 200
    for row in in_logs:
        assert (row["exchange"], row["routing_key"]) == ("ex", "key")
        assert row["persistent"] and row["crc_ok"] and row["size"] == len(row["body"])
        assert row["enqueued_at"] is not None and row["expires_at"] is None
        assert (row["content_id"], row["references"]) == (None, None)
        with OpenFile(node.store_path / row["file"]) as file:
            record = file.read(row["offset"], row["stored_bytes"])
        assert len(record) == row["stored_bytes"] and record.endswith(row["body"])


def test_columns_and_batches_do_not_change_rows(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.deepen(300, 1, 3)
    names = schema_of(MESSAGES).names
    whole = node.rows()
    for options in (EVERYTHING, ReadOptions(verify="none")):
        for name in names:
            if name != "crc_ok":
                rows = node.rows(MESSAGES, options, "seq", name)
                assert [row[name] for row in rows] == [row[name] for row in whole], name
    monkeypatch.setattr(message_batches, "BATCH_BYTES", 3000)
    monkeypatch.setattr(planning, "PARTITION_BYTES", 20_000)
    monkeypatch.setattr(planning, "PARTITION_BYTES_MAX", 30_000)
    assert len(plan(node.path, MESSAGES, EVERYTHING)) > 5
    assert node.rows() == whole


def test_ranges_of_seq_ids_and_times(node: Node) -> None:
    node.deepen(300, 1, 2)
    whole = node.rows()
    options = ReadOptions(queues=("q2",), seq_from=20, seq_to=120)
    wanted = [row for row in whole if row["queue"] == "q2" and 20 <= row["seq"] < 120]
    assert node.rows(MESSAGES, options) == wanted
    times = sorted(row["enqueued_at"].timestamp() for row in whole)
    middle = round(times[len(times) // 3] * 1000)
    for columns in ((), ("seq", "queue_id")):
        for table in (MESSAGES, POSITIONS):
            found = []
            for limits in ((None, middle), (middle, None)):
                options = ReadOptions(
                    enqueued_from_ms=limits[0], enqueued_to_ms=limits[1], verify="none"
                )
                found.append(node.rows(table, options, *columns))
            assert found[0] and found[1]
            assert len(found[0]) + len(found[1]) == len(node.rows(table))


def test_positions_say_where_the_content_is(node: Node) -> None:
    node.deepen(300, 1)
    rows = [row for row in node.rows(POSITIONS) if row["location"] == "index" and row["stored"]]
    assert len(rows) > 100
    places = {row["seq"]: (row["file"], row["offset"], row["stored_bytes"]) for row in node.rows()}
    by_file: dict[str, int] = {}
    for row in rows:
        found = (row["content_file"], row["content_offset"], row["content_bytes"])
        assert found == places[row["seq"]]
        assert row["enqueued_at"] is not None and row["content_id"] is None
        # Entries follow each other as if each were a record.
        assert row["offset"] >= by_file.get(row["file"], 40)
        by_file[row["file"]] = row["offset"] + row["record_bytes"]


def test_files(node: Node) -> None:
    node.deepen(300, 1, 2)
    rows = {row["path"]: row for row in node.rows(FILES) if row["vhost"]}
    paths = [path for path in node.store_path.rglob("*") if path.is_file()]
    assert rows.keys() == {path.relative_to(node.store_path).as_posix() for path in paths}
    logs = [row for row in rows.values() if row["kind"] == "log"]
    assert len(logs) == len(node.logs())
    for row in logs:
        assert 0 < row["live_bytes"] <= row["bytes"]
        assert row["live_bytes"] + row["garbage_bytes"] == row["bytes"]
    before = sum(row["live_bytes"] for row in logs)
    node.driver.settle(1)
    node.driver.settle(2, 100)
    node.driver.commit()
    logs = [row for row in node.rows(FILES) if row["kind"] == "log"]
    assert 0 < sum(row["live_bytes"] for row in logs) < before


def test_damage_costs_its_message_and_is_listed(node: Node) -> None:
    node.deepen(300, 1)
    assert node.rows(DAMAGE) == []
    path = node.logs()[3]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (row,) = node.rows(DAMAGE)
    assert row["file"] == f"msg_store_persistent/{path.name}"
    assert row["offset"] <= len(data) // 2 < row["offset"] + row["length"]
    assert len(node.rows()) == len(node.driver.bodies[1]) - 1
    path.unlink()
    lost = len(node.driver.bodies[1]) - len(node.rows())
    assert 2 <= lost < 40
    (row,) = node.rows(DAMAGE)
    assert path.name in row["file"]


def test_logs_that_are_emptied(node: Node) -> None:
    """Contents that go from logs to segments come once, whichever file a checkpoint names."""
    node.deepen(300, 1)
    for number, position in enumerate(node.driver.load(1)):
        if number % 8:
            node.driver.settle_one(position)
    node.driver.commit()
    before = len(node.logs())
    for number in range(40):
        node.driver.checkpoint()
        if number % 4 == 0:
            node.check()
    assert len(node.logs()) < before // 2
    node.check()


def segments_of(node: Node, queue_id: int) -> list[Path]:
    """The segments of a queue, oldest first."""
    directory = node.store_path / f"queues/{queue_id}"
    return sorted(directory.glob("*.idx"), key=lambda path: int(path.stem))


def entries_of(node: Node, queue_id: int) -> dict[int, dict[str, Any]]:
    """The positions in a queue's index, by seq id."""
    return {
        row["seq"]: row
        for row in node.rows(POSITIONS)
        if row["queue_id"] == queue_id and row["location"] == "index"
    }


def hurt(path: Path, how: str) -> None:
    """Damage a segment; its entries are in PLACES records."""
    data = bytearray(path.read_bytes())
    match how:
        case "missing":
            path.unlink()
            return
        case "record":
            data[90] ^= 1
        case "header":
            data[FILE_HEADER_BYTES + 1] ^= 1
        case "end":
            del data[-30:]
        case "all":
            data[FILE_HEADER_BYTES:] = bytes(len(data) - FILE_HEADER_BYTES)
        case "empty":
            data.clear()
    path.write_bytes(data)


HURTS = ("record", "header", "end", "all", "empty", "missing")


@pytest.mark.parametrize("is_in_journal", [False, True])
@pytest.mark.parametrize("how", HURTS)
def test_lost_entries_are_found_again(node: Node, how: str, is_in_journal: bool) -> None:
    """The tables have what a start delivers: contents in logs say which messages they are."""
    if is_in_journal:
        for _ in range(60):
            node.driver.publish(20, 1, 2)
        node.driver.commit()
        node.driver.index(1)
        node.driver.checkpoint()
        assert not node.logs()
    else:
        node.deepen(300, 1, 2)
    node.driver.settle(1, 30)
    node.driver.checkpoint()
    paths = segments_of(node, 1)
    path = paths[len(paths) // 2]
    before = fingerprint(node.store_path)
    whole = entries_of(node, 1)
    hurt(path, how)
    node.check()
    if how in ("record", "header", "missing"):
        assert path.relative_to(node.store_path).as_posix() in {
            row["file"] for row in node.rows(DAMAGE)
        }
    places = entries_of(node, 1)
    found = [seq for seq, row in places.items() if row["offset"] is None]
    assert found
    for seq, row in whole.items():
        if seq in found:
            row = row | {"offset": None, "record_bytes": None}
        if seq in places or row["state"] == "alive":
            assert places[seq] == row
    after = fingerprint(node.store_path)
    assert {name for name in before if after.get(name) != before[name]} == {
        path.relative_to(node.store_path).as_posix()
    }
    node.driver.reopen()
    node.driver.check()
    assert node.driver.losses.lost == 0


def test_entries_that_nothing_has_are_lost(node: Node) -> None:
    """Contents in a segment, and damaged ones in logs, are lost with their segment."""
    node.driver.settings.refer_entries = 1 << 40
    node.deepen(100, 1)
    node.driver.index(1)
    node.driver.settings.refer_entries = 2
    node.deepen(300, 1)
    paths = segments_of(node, 1)
    hurt(paths[1], "missing")
    hurt(paths[len(paths) // 2], "missing")
    # Damage in all logs but the youngest.
    for log in node.logs()[:-1]:
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
    rows = node.rows(MESSAGES, EVERYTHING, "seq", "body")
    counts = [row["reason"] for row in node.rows(DAMAGE) if row["reason"].startswith("missing: ")]
    assert "missing: 8 messages are lost" in counts
    node.driver.reopen()
    assert {row["seq"]: row["body"] for row in rows} == node.driver.found(1)


@pytest.mark.parametrize("how", HURTS)
def test_damage_and_no_checkpoint(node: Node, how: str) -> None:
    """A start without a checkpoint writes damaged segments anew; the tables leave them alone."""
    node.deepen(300, 1, 2)
    paths = segments_of(node, 1)
    hurt(paths[len(paths) // 2], how)
    for path in node.store_path.glob("checkpoint*"):
        path.unlink()
    before = fingerprint(node.store_path)
    found: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
    for row in node.rows():
        found[row["queue_id"]][row["seq"]] = row["body"]
    for table in (POSITIONS, FILES, DAMAGE):
        assert node.rows(table)
    assert fingerprint(node.store_path) == before
    node.driver.reopen()
    assert found == {queue_id: node.driver.found(queue_id) for queue_id in QUEUES}


def test_positions_of_a_split_segment_come_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.deepen(300, 1)
    whole = node.rows(POSITIONS)
    monkeypatch.setattr(planning, "PARTITION_BYTES", 1000)
    monkeypatch.setattr(planning, "PARTITION_BYTES_MAX", 1000)
    assert node.rows(POSITIONS) == whole
    node.check()
