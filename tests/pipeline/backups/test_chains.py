"""Incremental backups with losses, stores restored to an older state, and committed sink batches.

A committed batch of a sink may not have reached its queues at the time of the backup.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.pipeline.test_verify import must_agree
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.staged import staged_message
from tests.support.kills.ledger import Confirms, connect
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import Backups, damage_one_message, run_backup, run_restore
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    FinishStage,
    OpenStage,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
)
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.offline.backup import restore as restore_files
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.part_writer import MessageRow, PartWriter
from warrenmq.offline.store_plan import QueueExtent
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.tables.queue_states import vhost_state

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


def test_a_base_that_could_not_read_everything(backups: Backups, tmp_path: Path) -> None:
    """An increment does not rely on messages that its base lost.

    The increment reports the loss itself, and can be restored.
    """
    data = tmp_path / "damaged"
    shutil.copytree(backups.data, data)
    damage_one_message(data)
    base = run_backup(data, tmp_path / "base")
    assert base.lost == 1
    result = run_backup(data, tmp_path / "increment", base=tmp_path / "base")
    assert (result.lost, result.messages) == (1, base.messages)
    # For the other queues the increment writes only changes.
    assert 0 < result.written_messages < result.messages
    third = run_backup(data, tmp_path / "third", base=tmp_path / "increment")
    assert (third.lost, third.messages) == (1, base.messages)
    assert run_restore(tmp_path / "third", tmp_path / "data").messages == base.messages
    assert check_directory(tmp_path / "data").problems == []
    # After a repair of the store the next increment has the message.
    shutil.copytree(backups.data, tmp_path / "mended")
    mended = run_backup(tmp_path / "mended", tmp_path / "fourth", base=tmp_path / "third")
    assert (mended.lost, mended.messages) == (0, base.messages + 1)
    run_restore(tmp_path / "fourth", tmp_path / "new")
    assert check_directory(tmp_path / "new").messages == base.messages + 1


def test_a_store_that_was_put_back_in_time(backups: Backups, tmp_path: Path) -> None:
    """An increment on a newer base is refused: new messages would reuse seq ids of the base."""
    restore_files(backups.of_files.parent / "files", tmp_path / "old")
    node = BrokerProcess(tmp_path / "again")
    shutil.copytree(backups.data, node.directory / "data")
    node.start()
    try:
        channel = connect(node).channel()
        confirms = Confirms(channel)
        for _ in range(3):
            confirms.publish(b"small", b"later", PERSISTENT, b"", lambda: None)
        confirms.drain()
    finally:
        node.stop()
    run_backup(node.directory / "data", tmp_path / "newer", base=backups.stopped)
    with pytest.raises(
        ToolError, match=r"newer is newer than .*of queue 'small' up to seq id \d+.*without --base"
    ):
        run_backup(tmp_path / "old", tmp_path / "increment", base=tmp_path / "newer")
    assert not list(tmp_path.glob(".*"))


def test_a_base_that_is_not_there(backups: Backups, tmp_path: Path) -> None:
    shutil.copytree(backups.increment, tmp_path / "increment")
    with pytest.raises(
        ToolError,
        match=r"increment is based on backup \w+; name it with --base, since .*live has no manifest",
    ):
        run_restore(tmp_path / "increment", tmp_path / "data")
    with pytest.raises(ToolError, match=r"nothing has no manifest\.json: it is no backup"):
        run_backup(backups.data, tmp_path / "new", base=tmp_path / "nothing")
    with pytest.raises(ToolError, match="is a backup of another store"):
        make_far_store(tmp_path / "other")
        run_backup(tmp_path / "other", tmp_path / "new", base=backups.stopped)
    assert not list(tmp_path.glob(".*"))


def test_a_base_is_found_also_by_way_of_links(backups: Backups, tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep/er")
    run_backup(backups.data, tmp_path / "base")
    run_backup(backups.data, tmp_path / "link/increment", base=tmp_path / "base")
    assert run_restore(tmp_path / "link/increment", tmp_path / "data").chain == 2
    (tmp_path / "else").symlink_to(tmp_path / "deep/er/increment")
    assert run_restore(tmp_path / "else", tmp_path / "new").chain == 2


FIRST = 3_000_000_000


def make_far_store(path: Path) -> None:
    """Write a store whose one queue has high seq ids, and ten messages with gaps between them."""
    definitions = Definitions()
    definitions.vhosts.append(PutVhost(b"/", 1))
    definitions.queues.append(PutQueue(b"/", 1, b"q", True, False, b""))
    extent = QueueExtent(vhost_id=1, queue_id=1, first_seq=FIRST, end_seq=FIRST + 100)
    writer = StoreWriter.create(path, definitions, [extent])
    with PartWriter(writer.work_directory, writer.plan.parts[0]) as part:
        for number in range(10):
            part.add(
                MessageRow(
                    b"", b"q", b"\0\0", bytes(100_000), 1_700_000_000_000, seq=FIRST + 9 * number
                )
            )
        writer.finish([part.finish()])


def test_a_queue_that_has_seen_a_lot(tmp_path: Path) -> None:
    """The cost of a restore depends on a queue's messages, not on its past traffic."""
    make_far_store(tmp_path / "store")
    run_backup(tmp_path / "store", tmp_path / "backup")
    spark = InlineSpark()
    partitions = 0

    def count() -> None:
        nonlocal partitions
        partitions += 1

    spark.on_partition = count
    run_restore(tmp_path / "backup", tmp_path / "data", spark=spark)
    assert partitions < 10
    assert check_directory(tmp_path / "data").problems == []
    states = [vhost_state(tmp_path / name, "/").queues[1] for name in ("store", "data")]
    assert [(state.next_seq, state.messages) for state in states] == [(FIRST + 82, 10)] * 2


COUNT = 40_000


def killed_amid_moves(directory: Path) -> BrokerProcess:
    """Return a node that was killed while it moved a committed batch to its queue.

    A node that finishes before the signal, as on a busy machine, is replaced by another.
    """
    for number in range(20):
        node = BrokerProcess(directory / f"node-{number}")
        commit_and_kill(node)
        if vhost_state(node.directory / "data", "/").waiting:
            return node
    raise AssertionError("each was done before it was killed")


def commit_and_kill(node: BrokerProcess) -> None:
    """Commit a batch on a new node and kill it: the commit is durable, moves may be incomplete."""
    node.start()
    connect(node).channel().declare(b"q", durable=True)
    with AdminClient(NodeAddress(node.uri), "test") as client:
        stage = client.request(OpenStage("s", 0), StageOpened).stage
        block = b"".join([staged_message(b"%d" % number) for number in range(1000)])
        for _ in range(COUNT // 1000):
            client.request(StageMessages(stage, memoryview(block)), Staged)
        client.request(FinishStage(stage, COUNT), StageFinished)
        assert not client.request(CommitBatch("s", 0, [stage]), BatchCommitted).is_moved
    node.kill()


def test_what_sinks_have_committed_and_no_queue_has_yet(tmp_path: Path) -> None:
    """A backup reports committed messages that are not in their queue yet; the store is sound."""
    node = killed_amid_moves(tmp_path)
    data = node.directory / "data"
    result = run_backup(data, tmp_path / "backup")
    waiting = result.waiting["s"]
    assert 0 < waiting <= COUNT and result.messages == COUNT - waiting
    assert result.exit_code == 1 and result.lost == 0
    assert must_agree(data).clean
    node.start()
    with AdminClient(NodeAddress(node.uri), "test") as client:
        # 60,000 ms is the longest wait of a client.
        assert client.request(CommitBatch("s", 0, [], wait_ms=60_000), BatchCommitted, 60).is_moved
    node.stop()
    done = run_backup(data, tmp_path / "increment", base=tmp_path / "backup")
    assert (done.messages, done.exit_code, done.waiting) == (COUNT, 0, {})
    figures: dict[str, Any] = run_restore(tmp_path / "increment", tmp_path / "data").as_json()
    assert figures["messages"] == COUNT


def newest_journal_file(store: Path) -> Path:
    """Return the newest journal file with more than 100,000 bytes of data.

    The last file may be almost empty, depending on how publishes were batched.
    """
    files = [
        path
        for path in (store / "journal").iterdir()
        if len(path.read_bytes().rstrip(b"\0")) > 100_000
    ]
    return max(files, key=lambda path: int(path.stem))


@pytest.mark.parametrize("edit", ["gone", "zero", "flip", "no checkpoint"])
def test_what_is_lost_without_being_counted(backups: Backups, tmp_path: Path, edit: str) -> None:
    """A backup of a store with uncounted losses, such as a journal file, reports the damage."""
    data = tmp_path / "damaged"
    shutil.copytree(backups.data, data)
    store = data / "msg_stores/vhosts/1"
    journal = newest_journal_file(store)
    raw = bytearray(journal.read_bytes())
    if edit == "gone":
        journal.unlink()
    elif edit == "zero":
        journal.write_bytes(bytes(len(raw)))
    elif edit == "flip":
        raw[2000] ^= 1
        journal.write_bytes(raw)
    else:
        for path in store.glob("checkpoint*"):
            path.unlink()
    result = run_backup(data, tmp_path / "backup")
    assert result.damage and result.exit_code == 1
    run_restore(tmp_path / "backup", tmp_path / "data")
    assert check_directory(tmp_path / "data").problems == []
