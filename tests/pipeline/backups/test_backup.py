"""`backup` and `restore` give the same messages bit for bit.

The backups are made of a running node, of the directory of a killed one, and of a backup of files.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from crc32c import crc32c

from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.mixed_vhost import SETTINGS, Expected, contents_of, fill, shown
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import Backups, damage_one_message, run_backup, run_restore
from warrenmq.broker.definitions.metadata import (
    Definitions,
    PutBinding,
    PutExchange,
    PutPermission,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.offline.backup_files import incomplete_path
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError, opened
from warrenmq.offline.part_writer import MessageRow, PartWriter
from warrenmq.offline.store_plan import QueueExtent
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.pipeline.backups import data_file, restore_job
from warrenmq.pipeline.backups.job import backup
from warrenmq.pipeline.backups.manifest import Manifest, read_manifest, write_manifest
from warrenmq.pipeline.places import LocalPlace
from warrenmq.pipeline.progress import Step
from warrenmq.pipeline.result import JobError
from warrenmq.tables import planning
from warrenmq.tables.data_files import DATA_SCHEMA
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.queue_states import vhost_state
from warrenmq.tables.reading import read

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


def exact_rows(directory: Path) -> list[dict[str, Any]]:
    """Return all columns of the messages in a data directory, except their location."""
    names = [name for name in DATA_SCHEMA.names if name not in ("content_id", "references")]
    schema = pa.schema([DATA_SCHEMA.field(name) for name in names])
    rows = [
        row
        for partition in plan(directory, "messages", ReadOptions(vhost="/"))
        for batch in read(partition, schema)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["queue_id"], row["seq"]))


def definitions_of(directory: Path) -> list[tuple[object, ...]]:
    with opened(directory) as data:
        return shown(data.definitions)


def must_be_what_a_node_delivers(directory: Path, expected: dict[bytes, list[Expected]]) -> None:
    result = check_directory(directory)
    assert result.problems == [] and result.notes == []
    node = BrokerProcess(directory.parent)
    node.start()
    try:
        found = contents_of(node, list(expected))
        for name, messages in expected.items():
            assert len(found[name]) == len(messages), name
            assert found[name] == messages, name
    finally:
        node.kill()


@pytest.mark.parametrize("source", ["stopped", "of_files"])
def test_restored_bit_for_bit(backups: Backups, tmp_path: Path, source: str) -> None:
    """A restored store has the same rows and definitions, and a node delivers the same messages."""
    assert backups.results[source].exit_code == 0
    result = run_restore(getattr(backups, source), tmp_path / "data")
    count = sum(len(messages) for messages in backups.last.values())
    assert (result.messages, result.queues) == (count, len(backups.last))
    # Contents that two queues share are stored once.
    assert result.shared_contents > 50
    assert exact_rows(tmp_path / "data") == exact_rows(backups.data)
    assert definitions_of(tmp_path / "data") == definitions_of(backups.data)
    must_be_what_a_node_delivers(tmp_path / "data", backups.last)
    assert not list(tmp_path.glob(".*"))


def test_a_running_node(backups: Backups, tmp_path: Path) -> None:
    """A backup of a running node has its state at that moment, with unacked messages."""
    run_restore(backups.live, tmp_path / "data")
    must_be_what_a_node_delivers(tmp_path / "data", backups.first)
    assert "guest:" not in (backups.live / "manifest.json").read_text()


def test_an_incremental_backup_has_what_came_and_knows_what_went(
    backups: Backups, tmp_path: Path
) -> None:
    result = backups.results["increment"]
    assert result.written_messages < 450 and result.base == backups.results["live"].id
    assert result.messages == sum(len(messages) for messages in backups.last.values())
    run_restore(backups.increment, tmp_path / "data")
    must_be_what_a_node_delivers(tmp_path / "data", backups.last)


def test_a_chain_that_was_moved_apart(backups: Backups, tmp_path: Path) -> None:
    shutil.copytree(backups.increment, tmp_path / "increment")
    shutil.copytree(backups.stopped, tmp_path / "live")
    with pytest.raises(ToolError, match=r"is not the backup that .* is based on"):
        run_restore(tmp_path / "increment", tmp_path / "data")
    run_restore(tmp_path / "increment", tmp_path / "data", bases=[backups.stopped, backups.live])
    assert check_directory(tmp_path / "data").messages == sum(
        len(some) for some in backups.last.values()
    )


def test_an_increment_of_an_increment(backups: Backups, tmp_path: Path) -> None:
    """An increment without changes writes no messages, and the chain of three restores the same."""
    result = run_backup(backups.data, tmp_path / "third", base=backups.increment)
    assert result.written_messages == 0 and result.messages == backups.results["stopped"].messages
    assert run_restore(tmp_path / "third", tmp_path / "data").chain == 3
    # The redelivered flags too are those of the last backup.
    assert exact_rows(tmp_path / "data") == exact_rows(backups.data)


def test_small_parts_and_files(
    backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files, row groups and parts restore the same rows."""
    monkeypatch.setattr(planning, "PARTITION_BYTES", 100_000)
    monkeypatch.setattr(planning, "PARTITION_BYTES_MAX", 150_000)
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(restore_job, "PART_BYTES", 10_000)
    run_backup(backups.data, tmp_path / "backup")
    assert len(list((tmp_path / "backup/data").iterdir())) > 2
    run_restore(tmp_path / "backup", tmp_path / "data")
    assert exact_rows(tmp_path / "data") == exact_rows(backups.data)
    assert check_directory(tmp_path / "data").is_clean


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """Names that are no UTF-8 text survive in definitions and in messages.

    Other writers of stores may have left such names.
    """
    definitions = Definitions()
    definitions.vhosts.append(PutVhost(b"/", 1))
    definitions.users.append(PutUser(b"u\xff", b"hash", "rabbit_password_hashing_sha256", []))
    definitions.permissions.append(PutPermission(b"/", b"u\xff", ".*", "", ".*"))
    definitions.exchanges.append(PutExchange(b"/", b"x\xff", b"topic", False, False, b""))
    definitions.queues.append(PutQueue(b"/", 7, b"q\xfe", True, False, b""))
    definitions.bindings.append(PutBinding(b"/", b"x\xff", b"q\xfe", True, b"\xfd.#", b""))
    extent = QueueExtent(vhost_id=1, queue_id=7, end_seq=100, next_seq=500)
    writer = StoreWriter.create(tmp_path / "old", definitions, [extent])
    with PartWriter(writer.work_directory, writer.plan.parts[0]) as part:
        for key in (b"plain", b"\xfd.key"):
            part.add(
                MessageRow(b"x\xff", key, b"\x00\x00", b"body", 1_700_000_000_000, redelivered=True)
            )
        writer.finish([part.finish()])
    run_backup(tmp_path / "old", tmp_path / "backup")
    run_restore(tmp_path / "backup", tmp_path / "new")
    assert definitions_of(tmp_path / "new") == definitions_of(tmp_path / "old")
    rows = exact_rows(tmp_path / "new")
    assert rows == exact_rows(tmp_path / "old")
    assert [(row["exchange_raw"], row["routing_key_raw"]) for row in rows] == [
        (b"x\xff", None),
        (b"x\xff", b"\xfd.key"),
    ]
    assert rows[0]["checksum"] == crc32c(b"\x02x\xff\x05plain\0\0\0\x02\0\0\0\0\0\x04body")
    state = vhost_state(tmp_path / "new", "/").queues[7]
    assert (state.next_seq, state.messages) == (500, 2)


# -- interrupted -----------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill of the program; a BaseException, so that no handler runs."""


class DyingSpark(InlineSpark):
    """A Spark that raises Killed before the partition with the number `after` (from 0)."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after
        self.on_partition = self._count

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.mark.parametrize("after", [0, 2, 5])
def test_a_backup_goes_on_where_it_was_killed(
    backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(planning, "PARTITION_BYTES", 1_000_000)
    monkeypatch.setattr(planning, "PARTITION_BYTES_MAX", 1_000_000)
    target = tmp_path / "backup"
    with pytest.raises(Killed):
        backup(backups.data, target, spark=DyingSpark(after))  # type: ignore[arg-type]  # as above
    assert not target.exists()
    with pytest.raises(ToolError, match="unfinished backup of another source"):
        run_backup(backups.of_files.parent / "files", target)
    written = {
        path.name: path.stat().st_ino for path in (incomplete_path(target) / "data").iterdir()
    }
    assert 0 < len(written) <= after if after else not written
    assert run_backup(backups.data, target).messages == backups.results["stopped"].messages
    for name, inode in written.items():
        assert (target / "data" / name).stat().st_ino == inode
    assert sorted(path.name for path in target.iterdir()) == [
        "alive",
        "data",
        "manifest.json",
        "topology.json",
    ]


def test_a_restore_goes_on_wherever_it_was_killed(
    backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_job, "PART_BYTES", 100_000)
    target = tmp_path / "data"
    deaths = 0
    while not target.exists():
        try:
            run_restore(backups.stopped, target, spark=DyingSpark(5))
        except Killed:
            deaths += 1
            assert deaths < 30
    assert deaths > 2
    assert exact_rows(target) == exact_rows(backups.data)
    assert not list(tmp_path.glob(".*"))


def test_another_restore_is_not_gone_on_with(backups: Backups, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run_restore(backups.stopped, tmp_path / "data", spark=DyingSpark(3))
    with pytest.raises(ToolError, match="unfinished restore of another source"):
        run_restore(backups.live, tmp_path / "data")


# -- what must not be ------------------------------------------------------------------------------


@pytest.fixture
def copy(backups: Backups, tmp_path: Path) -> Iterator[Path]:
    """A copy of a backup for the test to damage; a restore of it must leave nothing."""
    shutil.copytree(backups.stopped, tmp_path / "backup")
    yield tmp_path / "backup"
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.glob(".*"))


def first_file(directory: Path) -> Path:
    return next((directory / "data").iterdir())


def test_what_is_no_backup(copy: Path, tmp_path: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(
        ToolError, match=r"no manifest\.json: it is no backup, or one that was not finished"
    ):
        run_restore(copy, tmp_path / "data")


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "link", "topology"])
def test_damaged_files(copy: Path, tmp_path: Path, damage: str) -> None:
    path = copy / "topology.json" if damage == "topology" else first_file(copy)
    raw = bytearray(path.read_bytes())
    if damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "gone":
        path.unlink()
    else:
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw if damage != "cut" else raw[:-10])
    with pytest.raises(ToolError, match=r"damaged|has changed since"):
        run_restore(copy, tmp_path / "data")


def test_a_flip_in_the_manifest(copy: Path, tmp_path: Path) -> None:
    path = copy / "manifest.json"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ToolError, match="is damaged"):
        run_restore(copy, tmp_path / "data")


def hostile(copy: Path, edit: Any) -> None:
    """Edit the manifest, and write it with a correct checksum."""
    manifest, _ = read_manifest(LocalPlace(copy))
    raw = json.loads((copy / "manifest.json").read_text())
    del raw["crc32c"]
    edit(raw)
    (copy / "manifest.json").unlink()
    write_manifest(LocalPlace(copy), _Raw(raw))  # type: ignore[arg-type]  # only encoded
    assert isinstance(manifest, Manifest)


class _Raw(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda raw: raw["data"][0].update(name="../../secret"), "no file of a backup"),
        (lambda raw: raw["data"][0].update(name="/etc/passwd"), "no file of a backup"),
        (lambda raw: raw["data"][0].update(name=5), "Expected `str`"),
        (lambda raw: raw["data"].append(raw["data"][0]), "a file occurs twice"),
        (lambda raw: raw["queues"].append(raw["queues"][0]), "a queue id occurs twice"),
        (lambda raw: raw["queues"][0].update(end_seq=1 << 80), "damaged"),
        (lambda raw: raw["queues"][0].update(end_seq=-1), "impossible figures"),
        (lambda raw: raw["queues"][0].update(id=1234), "not in its definitions"),
        (lambda raw: raw.update(format=99), "format 99"),
        (
            lambda raw: raw.update(base={"id": raw["id"], "crc32c": "0", "path": "."}),
            "is not the backup|on itself",
        ),
        (lambda raw: raw.update(topology_crc32c="00000000"), "has changed since"),
    ],
)
def test_hostile_manifests(copy: Path, tmp_path: Path, edit: Any, text: str) -> None:
    hostile(copy, edit)
    with pytest.raises(ToolError, match=text):
        run_restore(copy, tmp_path / "data")


def test_figures_that_do_not_fit(copy: Path, tmp_path: Path) -> None:
    """A restore whose rows differ from the manifest's digest does not create the target."""
    hostile(
        copy,
        lambda raw: max(raw["queues"], key=lambda queue: queue["rows"]).update(digest="0" * 16),
    )
    with pytest.raises(JobError, match="differ from those that were backed up"):
        run_restore(copy, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    for path in tmp_path.glob(".*"):
        shutil.rmtree(path)


def test_targets_that_are_in_the_way(backups: Backups, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").touch()
    for call in (
        lambda: run_restore(backups.stopped, tmp_path / "data"),
        lambda: run_backup(backups.data, tmp_path / "data"),
    ):
        with pytest.raises(ToolError, match="is not empty"):
            call()
    with pytest.raises(ToolError, match="lies in"):
        run_restore(backups.stopped, backups.stopped / "data/new")
    with pytest.raises(ToolError, match="lies in"):
        run_backup(backups.data, backups.data / "backup")
    with pytest.raises(ToolError, match="no vhost 'moon'"):
        run_backup(backups.data, tmp_path / "moon", vhost="moon")
    with pytest.raises(ToolError, match="not a data directory"):
        run_backup(tmp_path, tmp_path.parent / "nothing")
    with pytest.raises(ToolError, match="file is not a directory"):
        run_backup(tmp_path / "data/file", tmp_path / "nothing")


def test_what_cannot_be_read_is_told(backups: Backups, tmp_path: Path) -> None:
    """A message that cannot be read is reported lost; the backup has the rest."""
    data = tmp_path / "damaged"
    shutil.copytree(backups.data, data)
    damage_one_message(data)
    result = run_backup(data, tmp_path / "backup")
    assert result.exit_code == 1 and result.lost == 1 == sum(result.losses.values())
    run_restore(tmp_path / "backup", tmp_path / "data")
    assert (
        check_directory(tmp_path / "data").messages
        == result.messages
        == len(exact_rows(backups.data)) - 1
    )


def test_steps_are_shown(backups: Backups, tmp_path: Path) -> None:
    seen: list[Step] = []

    class Shown:
        def show(self, step: Step) -> None:
            seen.append(step)

    run_restore(backups.stopped, tmp_path / "data", progress=Shown())
    assert {step.name for step in seen} >= {"check the backup", "restore", "read the store back"}
    assert all(step.total is None or step.done <= step.total for step in seen)


def test_a_node_that_dies_in_its_snapshot_makes_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits until the node is back, and its backup has every confirmed message."""
    node = BrokerProcess(tmp_path / "node", *SETTINGS)
    node.start()
    # The job sees the node die before it sees the snapshot complete.
    monkeypatch.setattr("warrenmq.admin.client.backup._POLL_S", 1.0)

    def die_once() -> None:
        eventually(lambda: any(tmp_path.rglob("warren-snapshot-*/files")), "a snapshot has begun")
        node.kill()
        node.start()

    try:
        vhost = fill(node)
        killer = threading.Thread(target=die_once)
        killer.start()
        result = run_backup(node.uri, tmp_path / "backup")
        killer.join()
        vhost.peer.drop()
    finally:
        node.kill()
    assert (result.exit_code, result.messages) == (0, sum(map(len, vhost.queues.values())))
    assert not list(tmp_path.rglob("warren-snapshot-*"))
