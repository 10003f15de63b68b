"""Tests the tables of a killed node's store against what a start finds and delivers."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pickle

import pyarrow as pa

from tests.support.brokers.amqp_peer import Message
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from tests.support.stores.stopped_node import (
    FAN,
    LARGE,
    MESSAGES,
    SMALL,
    change,
    fingerprint,
    store_of,
)
from warrenmq.offline.backup import back_up
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import opened
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.store.records.record import crc_seed
from warrenmq.tables import message_batches, planning
from warrenmq.tables.contents import ContentReader
from warrenmq.tables.file_scan import OpenFile, scan_file
from warrenmq.tables.parts import FilePart, Partition, ReadOptions
from warrenmq.tables.planning import PlanError, plan
from warrenmq.tables.reading import ReadError, read
from warrenmq.tables.scan import RecordScan
from warrenmq.tables.schemas import COLUMNS, DAMAGE, FILES, JOURNAL, METADATA, POSITIONS, schema_of

pytestmark = pytest.mark.kill

EVERYTHING = ReadOptions()
NAMES = {b"small": "small", b"large": "large", b"fan": "fan"}


def batches_of(
    directory: Path, table: str = "messages", options: ReadOptions = EVERYTHING, *columns: str
) -> Iterator[Any]:
    schema = schema_of(table)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    for partition in pickle.loads(pickle.dumps(plan(directory, table, options))):  # our own
        for batch in read(partition, schema):
            assert batch.schema == schema
            yield batch


def rows_of(
    directory: Path, table: str = "messages", options: ReadOptions = EVERYTHING, *columns: str
) -> list[dict[str, Any]]:
    return [
        row
        for batch in batches_of(directory, table, options, *columns)
        for row in batch.to_pylist()
    ]


def bodies_of(directory: Path) -> dict[str, list[bytes]]:
    """The bodies of all messages, by queue and in order."""
    return bodies_in_order(rows_of(directory, "messages", EVERYTHING, "queue", "seq", "body"))


def bodies_in_order(rows: list[dict[str, Any]]) -> dict[str, list[bytes]]:
    """The bodies of `rows`, by queue and in order."""
    found: dict[str, list[bytes]] = {name: [] for name in NAMES.values()}
    for row in sorted(rows, key=lambda row: (row["queue"], row["seq"])):
        found[row["queue"]].append(row["body"])
    return found


def delivered_by(data: Path) -> dict[str, list[bytes]]:
    """The bodies that a node started on the directory delivers; the directory is used up."""
    node = BrokerProcess(data.parent)
    node.start()
    try:
        peer = connect(node)
        channel = peer.channel()
        found = {}
        for raw, name in NAMES.items():
            channel.consume(raw, no_ack=True)
            # The node finds a damaged message only when it is due for delivery, so wait until the
            # queue is empty.
            deadline = time.monotonic() + 60
            while channel.count(raw) > 0:
                assert time.monotonic() < deadline, f"{name} is never empty"
                time.sleep(0.01)
            found[name] = [
                message.body for message in channel.events if isinstance(message, Message)
            ]
            channel.events.clear()
        peer.drop()
        return found
    finally:
        node.kill()


# -- a store that is as it should be ---------------------------------------------------------------


def test_every_message_as_a_start_finds_it(original: Path) -> None:
    before = fingerprint(original)
    rows = {(row["queue"], row["seq"]): row for row in rows_of(original)}
    assert len(rows) == MESSAGES
    files = LocalFileSystem(store_of(original))
    snapshot = VhostSnapshot(files)
    with opened(original) as directory:
        names = {queue.id: queue.name.decode() for queue in directory.definitions.queues}
    seen = 0
    for queue in snapshot.queues():
        if queue.ledger.queue_id not in names:
            continue
        for position in snapshot.positions(queue):
            row = rows[names[queue.ledger.queue_id], position.seq]
            message = snapshot.message(position)
            assert message is not None
            assert row["body"] == message.body
            assert row["size"] == len(message.body)
            address = row["exchange"].encode(), row["routing_key"].encode()
            assert b"".join(bytes([len(part)]) + part for part in address) == message.address
            assert row["persistent"] is True and row["crc_ok"] is True and row["vhost"] == "/"
            assert round(row["enqueued_at"].timestamp() * 1000) == snapshot.timestamp_ms(
                queue, position
            )
            seen += 1
    files.release()
    assert seen == MESSAGES
    assert fingerprint(original) == before


def test_it_is_what_a_node_delivers(data: Path) -> None:
    found = bodies_of(data)
    assert [len(found[name]) for name in ("small", "large", "fan")] == [
        len(SMALL),
        len(LARGE),
        len(FAN),
    ]
    assert found == delivered_by(data)


def test_a_message_is_where_its_row_says(original: Path) -> None:
    for row in rows_of(original, "messages", ReadOptions(queues=("large",))):
        with OpenFile(store_of(original) / row["file"]) as file:
            record = file.read(row["offset"], row["stored_bytes"])
        assert len(record) == row["stored_bytes"] and record.endswith(row["body"])


def test_a_backup_has_the_same_messages(original: Path, tmp_path: Path) -> None:
    back_up(original, tmp_path / "backup")
    assert bodies_of(tmp_path / "backup") == bodies_of(original)


def test_the_schema_is_a_projection(original: Path) -> None:
    whole = [
        (row["seq"], row["queue"])
        for row in rows_of(original, "messages", EVERYTHING, "seq", "queue", "body")
    ]
    for verify in ("crc", "none"):
        options = ReadOptions(verify=verify)
        rows = rows_of(original, "messages", options, "seq", "queue")
        assert [(row["seq"], row["queue"]) for row in rows] == whole
    rows = rows_of(original, "messages", ReadOptions(verify="none"), "crc_ok")
    assert {row["crc_ok"] for row in rows} == {None}
    with pytest.raises(ValueError, match="has no column"):
        for partition in plan(original, "messages", EVERYTHING):
            list(read(partition, pa.schema([("colour", pa.string())])))


def test_options_leave_out(original: Path) -> None:
    def found(options: ReadOptions) -> list[tuple[str, int]]:
        return [
            (row["queue"], row["seq"])
            for row in rows_of(original, "messages", options, "queue", "seq")
        ]

    assert {queue for queue, _ in found(ReadOptions(queues=("large", "fan")))} == {"large", "fan"}
    some = found(ReadOptions(queues=("small",), seq_from=16380, seq_to=16390))
    assert some == [("small", seq) for seq in range(16380, 16390)]
    rows = rows_of(original, "messages", EVERYTHING, "enqueued_at")
    times = sorted(row["enqueued_at"].timestamp() for row in rows)
    middle = round(times[len(times) // 2] * 1000)
    before = found(ReadOptions(enqueued_to_ms=middle))
    after = found(ReadOptions(enqueued_from_ms=middle))
    assert len(before) == sum(round(time * 1000) < middle for time in times)
    assert sorted(before + after) == sorted(found(EVERYTHING))


def test_who_is_not_there(original: Path, tmp_path: Path) -> None:
    for options, text in (
        (ReadOptions(vhost="moon"), "no vhost 'moon'"),
        (ReadOptions(queues=("moon",)), "no queue 'moon'"),
    ):
        with pytest.raises(PlanError, match=text):
            plan(original, "messages", options)
    with pytest.raises(PlanError, match="not a data directory"):
        plan(tmp_path, "messages", EVERYTHING)
    with pytest.raises(PlanError, match="unknown table"):
        plan(original, "moons", EVERYTHING)


def test_a_running_node_is_left_alone(data: Path) -> None:
    partitions = plan(data, "messages", EVERYTHING)
    node = BrokerProcess(data.parent)
    node.start()
    try:
        with pytest.raises(PlanError, match="in use by a running node"):
            plan(data, "messages", EVERYTHING)
        with pytest.raises(ReadError, match="in use by a running node"):
            list(read(partitions[0], schema_of("messages")))
    finally:
        node.kill()


def test_files_that_went_since_planning_are_an_error(data: Path, store: Path) -> None:
    partitions = plan(data, "messages", EVERYTHING)
    segment = next(iter((store / "queues/1").iterdir()))
    change(segment, lambda raw: raw.__delitem__(slice(-100, None)))
    with pytest.raises(ReadError, match="shorter than it was"):
        [list(read(partition, schema_of("messages"))) for partition in partitions]
    segment.unlink()
    with pytest.raises(ReadError, match="is gone"):
        [list(read(partition, schema_of("messages"))) for partition in partitions]


# -- sizes -----------------------------------------------------------------------------------------


def test_batches_and_partitions_are_bounded(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bodies_of(original)
    for batch in batches_of(original):
        assert batch.num_rows <= 10_000
        assert batch.nbytes <= 16 * 1024 * 1024
    monkeypatch.setattr(message_batches, "BATCH_BYTES", 50_000)
    monkeypatch.setattr(message_batches, "BATCH_ROWS", 100)
    monkeypatch.setattr(planning, "PARTITION_BYTES", 300_000)
    monkeypatch.setattr(planning, "PARTITION_BYTES_MAX", 400_000)
    rows = []
    for batch in batches_of(original):
        assert batch.num_rows <= 100
        assert batch.nbytes <= 100_000
        rows += batch.select(["queue", "seq", "body"]).to_pylist()
    assert bodies_in_order(rows) == whole
    assert len(plan(original, "messages", EVERYTHING)) > 5


def test_a_content_that_was_moved_is_found_by_its_id(original: Path) -> None:
    partition, part = reference_part(original)
    with OpenFile(partition.vhost_path / part.path) as file:
        scan = RecordScan(crc_seed(partition.store_id, part.number), True)
        references = next(iter(scan_file(file.read, part.size, scan))).records
    references = references[references["content_bytes"] > 0]
    reader = ContentReader(partition.contents, True)
    straight = reader.fetch(references)
    assert (straight.rows >= 0).any()
    moved = references.copy()
    moved["content_offset"] += 17
    moved["content_file"][::2] = 1 << 20
    again = reader.fetch(moved)
    assert ((again.rows >= 0) == (straight.rows >= 0)).all()
    assert bodies_in(again) == bodies_in(straight)


def reference_part(directory: Path) -> tuple[Partition, FilePart]:
    for partition in plan(directory, "messages", ReadOptions(queues=("large",))):
        for part in partition.parts:
            return partition, part
    raise AssertionError("no file has the large messages")


def bodies_in(contents: Any) -> list[bytes]:
    records = contents.records[contents.rows[contents.rows >= 0]]
    return [contents.data[record["body"] :][: record["body_bytes"]] for record in records]


# -- the other tables ------------------------------------------------------------------------------


def test_positions(original: Path) -> None:
    rows = rows_of(original, POSITIONS)
    alive = [row for row in rows if row["state"] == "alive"]
    assert sorted((row["queue"], row["seq"]) for row in alive) == sorted(
        (row["queue"], row["seq"])
        for row in rows_of(original, "messages", EVERYTHING, "queue", "seq")
    )
    settled = {row["seq"] for row in rows if row["queue"] == "small" and row["state"] == "settled"}
    assert settled >= set(range(1, 500))
    for row in alive:
        # Contents of small messages are in their records, or in journal files.
        assert row["stored"] or row["queue"] == "small"
        assert (row["content_id"] is None) == (row["queue"] == "small")
        assert (row["content_file"] is None) != row["stored"]
    assert {row["location"] for row in alive} == {"index", "journal"}


def test_journal(original: Path) -> None:
    rows = rows_of(original, JOURNAL)
    assert {"publish", "publish_ref", "ack", "release"} <= {row["kind"] for row in rows}
    assert all(row["crc_ok"] for row in rows)
    by_file: dict[str, int] = {}
    for row in rows:
        # The records of a file follow each other without gaps.
        assert row["offset"] == by_file.get(row["file"], 40)
        by_file[row["file"]] = row["offset"] + row["stored_bytes"]


def test_files(original: Path) -> None:
    rows = rows_of(original, FILES)
    sizes = {
        path.relative_to(original).as_posix(): path.stat().st_size
        for path in original.rglob("*")
        if path.is_file()
    }
    prefix = "msg_stores/vhosts/1/"
    found = {(prefix if row["vhost"] else "") + row["path"]: row for row in rows}
    assert found.keys() == sizes.keys()
    for path, row in found.items():
        # The row of a segment has the bytes that the checkpoint counts; the file may be longer.
        assert row["bytes"] <= sizes[path]
        if row["kind"] != "other":
            assert row["live_bytes"] + row["garbage_bytes"] == row["bytes"]
            assert row["records"] >= 0
    assert sum(row["live_bytes"] or 0 for row in rows if row["kind"] == "content") > 120 * 6000


def test_metadata_without_secrets(original: Path) -> None:
    rows = rows_of(original, METADATA)
    named = {(row["kind"], row["vhost"], row["name"]) for row in rows}
    assert {("queue", "/", "small"), ("exchange", "/", "both"), ("binding", "/", "fan")} <= named
    assert ("vhost", "/", "/") in named and ("user", None, "guest") in named
    for row in rows:
        assert "hash" not in set(json.loads(row["json"])) and "password" not in json.loads(
            row["json"]
        )


def test_no_damage_where_there_is_none(original: Path) -> None:
    """Unfinished writes of a killed node are no damage."""
    assert check_directory(original).is_clean
    assert rows_of(original, DAMAGE) == []


# -- damage ----------------------------------------------------------------------------------------


def test_damage_costs_what_it_hits_and_is_listed(data: Path, store: Path) -> None:
    segments = sorted((store / "queues/1").iterdir(), key=lambda path: int(path.stem))
    # Take the last journal file but one, because the last may be short.
    journal = sorted((store / "journal").iterdir(), key=lambda path: int(path.stem))[-2]
    content = sorted(
        (store / "msg_store_persistent").glob("*.rdq"), key=lambda path: int(path.stem)
    )
    change(segments[0], lambda raw: raw.__setitem__(len(raw) // 2, raw[len(raw) // 2] ^ 4))
    change(journal, lambda raw: raw.__setitem__(5000, raw[5000] ^ 4))
    change(content[1], lambda raw: raw.__setitem__(9000, raw[9000] ^ 4))
    content[2].unlink()
    segments[1].unlink()
    damage = {row["file"] for row in rows_of(data, DAMAGE)}
    expected = [segments[0], segments[1], journal, content[1], content[2]]
    assert {path.relative_to(store).as_posix() for path in expected} <= damage
    found = bodies_of(data)
    # The entries in the segments are found again in the files of their contents.
    assert len(SMALL) - 1 <= len(found["small"]) <= len(SMALL)
    assert len(found["large"]) < len(LARGE) and len(found["fan"]) < len(FAN)
    assert found == delivered_by(data)


def test_nothing_but_segments_and_contents(data: Path, store: Path) -> None:
    """Without checkpoint, journal and definitions the rest is read, but queues have no names."""
    for name in ("checkpoint", "checkpoint.previous"):
        (store / name).unlink()
    found = bodies_of(data)
    assert len(found["small"]) >= len(SMALL)
    (data / "node.sqlite").unlink()
    for path in (store / "journal").iterdir():
        path.unlink()
    assert rows_of(data) == []
    rows = rows_of(data, POSITIONS)
    assert {row["queue"] for row in rows} == {None} and len(rows) > 30_000
    assert set(COLUMNS[POSITIONS]) == set(rows[0])


def test_names_that_are_not_utf8(data: Path, store: Path) -> None:
    """Foreign files with names that are not UTF-8 are listed, with these bytes replaced."""
    for directory in (
        data,
        data / "msg_stores/vhosts",
        store,
        store / "journal",
        store / "queues/1",
    ):
        Path(os.fsdecode(os.fsencode(directory) + b"/\xff")).touch()
    paths = [row["path"] for row in rows_of(data, FILES)]
    assert sum("\ufffd" in path for path in paths) == 5
    assert sum("\ufffd" in row["file"] for row in rows_of(data, DAMAGE)) == 2


def test_directories_that_are_lost(data: Path, store: Path) -> None:
    """Without the journal's directory the rest is read; a lost vhost leaves others readable."""
    in_index = [
        (row["queue"], row["seq"])
        for row in rows_of(data, POSITIONS)
        if row["location"] == "index" and not (row["content_file"] or "").startswith("journal/")
    ]
    shutil.rmtree(store / "journal")
    assert sorted((row["queue"], row["seq"]) for row in rows_of(data)) == sorted(in_index)
    assert any(row["file"].startswith("journal/") for row in rows_of(data, DAMAGE))
    (store / "store_id").write_text("nothing")
    assert "store_id" in {row["file"] for row in rows_of(data, DAMAGE)}
    for path in store.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (store / "readme").touch()
    assert [rows_of(data, table) for table in ("messages", POSITIONS, JOURNAL)] == [[], [], []]
    lost = {"vhost": "/", "file": None, "offset": None, "length": None}
    reason = "there is no store_id and no file that names one"
    assert rows_of(data, DAMAGE) == [lost | {"reason": reason}]
    shutil.rmtree(store)
    assert rows_of(data, DAMAGE) == [lost | {"reason": "the vhost has no directory 1"}]
