"""`restore_live` restores the same messages bit for bit into a running node, once despite kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pika

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.mixed_vhost import SETTINGS, contents_of, shown
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import Backups, run_backup
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.figures import ListQueues, QueueList
from warrenmq.admin.protocol.sinks import ListSinks, SinkList
from warrenmq.broker.definitions.metadata import Definitions, PutUser
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.offline.data_directory import opened
from warrenmq.pipeline import LiveRestoreResult, Step, restore_live
from warrenmq.pipeline.backups import restore_live_job
from warrenmq.pipeline.backups.live_comparison import Comparison, compare
from warrenmq.pipeline.result import JobError

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerProcess]:
    node = BrokerProcess(tmp_path / "node", *SETTINGS)
    node.start()
    yield node
    node.kill()


def run(backup: Path, node: BrokerProcess, **more: Any) -> LiveRestoreResult:
    more.setdefault("spark", InlineSpark())
    return restore_live(backup, node.uri, **more)


def definitions_of(directory: Path) -> list[tuple[object, ...]]:
    """Return the definitions of a data directory, sorted, without permissions and queue ids."""
    with opened(directory) as data:
        found: Definitions = data.definitions
    found.permissions = []
    for queue in found.queues:
        queue.id = 0
    return sorted(shown(found), key=repr)


def test_restored_bit_for_bit(backups: Backups, node: BrokerProcess) -> None:
    """An empty node gets all definitions and all messages exactly, in the order of each queue."""
    result = run(backups.stopped, node)
    count = sum(len(messages) for messages in backups.last.values())
    assert (result.messages, result.restored, result.restored_before) == (count, count, 0)
    assert (result.differences, result.exit_code) == ([], 0)
    assert (result.declared_queues, result.queues) == (len(backups.last), len(backups.last))
    again = run(backups.stopped, node)
    assert (again.restored, again.restored_before, again.declared_queues) == (0, count, 0)
    found = contents_of(node, list(backups.last))
    for name, messages in backups.last.items():
        assert len(found[name]) == len(messages), name
        assert found[name] == messages, name
    assert node.stop() == 0
    assert definitions_of(node.directory / "data") == definitions_of(backups.data)


def test_an_incremental_backup_is_restored_with_those_before_it(
    backups: Backups, node: BrokerProcess, tmp_path: Path
) -> None:
    for name in ("live", "increment"):
        shutil.copytree(getattr(backups, name), tmp_path / name)
    result = run(tmp_path / "increment", node, bases=[tmp_path / "live"])
    assert (result.chain, result.differences) == (2, [])
    assert contents_of(node, list(backups.last)) == backups.last


def test_a_conflict_is_told_before_anything_is_done(backups: Backups, node: BrokerProcess) -> None:
    """A differing queue or exchange, or a queue with messages, is reported before any change."""
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("lazy", durable=True)
        with pytest.raises(
            JobError, match=r"differs from the backup's: .*'x-queue-mode' for queue 'lazy'"
        ):
            run(backups.stopped, node)
        channel.queue_delete("lazy")
        channel.exchange_declare("topics", "direct", durable=True)
        with pytest.raises(
            JobError, match=r"differs from the backup's: .*'type' for exchange 'topics'"
        ):
            run(backups.stopped, node)
        channel.exchange_delete("topics")
        channel.queue_declare("small", durable=True)
        channel.basic_publish("", "small", b"")
        channel.basic_get("small")
        with pytest.raises(
            JobError, match=r"queue 'small' in vhost '/' is not empty \(1 messages\)"
        ):
            run(backups.stopped, node)
        channel.queue_delete("small")
    with AdminClient(NodeAddress(node.uri)) as client:
        assert client.request(ListQueues(), QueueList).queues == []


@pytest.fixture
def other(tmp_path: Path) -> Iterator[BrokerProcess]:
    other = BrokerProcess(tmp_path / "other")
    other.start()
    yield other
    other.kill()


def test_a_queue_that_no_client_can_declare(
    node: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    """A durable queue with a server-named name is refused where it is missing, else filled.

    No client can declare such a name. The refusal comes before any change.
    """
    with pika.BlockingConnection(pika.URLParameters(other.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("x", durable=True)
        name = channel.queue_declare("", durable=True).method.queue
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", name, b"1", persistent)
        run_backup(other.uri, tmp_path / "backup")
        with pytest.raises(
            JobError, match=rf"queue '{name}', which is not there.*into a new data directory"
        ):
            run(tmp_path / "backup", node)
        with (
            pika.BlockingConnection(pika.URLParameters(node.uri)) as fresh,
            pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange 'x'"),
        ):
            fresh.channel().exchange_declare("x", passive=True)
        channel.queue_purge(name)
    assert run(tmp_path / "backup", other).restored == 1


def test_damage_is_told_before_anything_is_done(
    backups: Backups, node: BrokerProcess, tmp_path: Path
) -> None:
    shutil.copytree(backups.stopped, tmp_path / "backup")
    path = next((tmp_path / "backup" / "data").iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(JobError, match="the backup is damaged: "):
        run(tmp_path / "backup", node)
    with pytest.raises(JobError, match="uri: "):
        restore_live(tmp_path / "backup", "http://x")


class Killer:
    """Calls `kill` each time that `every` more messages are restored."""

    def __init__(self, kill: Any, every: int) -> None:
        self.kill = kill
        self.every = every
        self.kills = 0

    def show(self, step: Step) -> None:
        if step.name == "restore" and step.done >= self.every * (self.kills + 1):
            self.kills += 1
            self.kill()


class Killed(BaseException):
    """Stands for a kill of the job; a BaseException, so that no handler runs."""


def test_each_once_although_job_and_node_are_killed(
    backups: Backups, node: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is restored once despite kills of job and node, with changing batch sizes."""

    def kill_both() -> None:
        node.kill()
        node.start()
        raise Killed

    def restart() -> None:
        node.kill()
        node.start()

    for size in (97, 211):
        monkeypatch.setattr(restore_live_job, "BATCH_MESSAGES", size)
        with pytest.raises(Killed):
            run(backups.stopped, node, progress=Killer(kill_both, 1500 if size == 97 else 3000))
    killer = Killer(restart, 4000)
    monkeypatch.setattr(restore_live_job, "BATCH_MESSAGES", 500)
    result = run(backups.stopped, node, progress=killer)
    assert killer.kills >= 1
    assert result.restored_before >= 3000
    assert result.differences == []
    found = contents_of(node, list(backups.last))
    for name, messages in backups.last.items():
        assert [message[3] for message in found[name]] == [message[3] for message in messages], name
        assert found[name] == messages, name


def test_what_others_take_and_publish_is_told(backups: Backups, node: BrokerProcess) -> None:
    """Messages that others consume or publish are reported with status 1, not restored again."""
    run(backups.stopped, node)
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        channel.basic_get("typed", auto_ack=True)
        channel.basic_publish("", "drained", b"not looked at: the backup has nothing of it")
        channel.basic_publish("", "lazy", b"another")
    result = run(backups.stopped, node)
    assert result.exit_code == 1
    found = {
        each.queue: (each.missing, each.others, each.is_in_order) for each in result.differences
    }
    assert found == {"typed": (1, 0, True), "lazy": (0, 1, True)}


def test_rows_are_compared_with_their_order() -> None:
    """The comparison counts found, missing and other rows, and checks order and duplicates."""

    def compared(wanted: list[int], there: list[int]) -> tuple[int, int, int, bool]:
        found: Comparison = compare(np.array(wanted, np.int64), np.array(there, np.int64))
        return (found.found, found.missing, found.others, found.is_in_order)

    assert compared([], []) == (0, 0, 0, True)
    assert compared([1, 2, 1], [1, 2, 1]) == (3, 0, 0, True)
    assert compared([1, 2, 3], [1, 3, 2]) == (3, 0, 0, False)
    assert compared([1, 2, 3, 4], [3, 9, 4]) == (2, 2, 1, True)
    assert compared([1, 2, 3, 4], [4, 3]) == (2, 2, 0, False)
    assert compared([5, 5, 1], [5, 1]) == (2, 1, 0, True)
    assert compared([], [7]) == (0, 0, 1, True)


def test_only_administrators_restore(backups: Backups, node: BrokerProcess) -> None:
    """Users without the tag administrator are refused before any change."""
    assert node.stop() == 0
    metadata = SqliteMetadata(node.directory / "data" / "node.sqlite")
    user = metadata.load().users[0]
    metadata.apply([PutUser(user.name, user.password_hash, user.hashing, [])])
    metadata.close()
    node.start()
    with pytest.raises(JobError, match="users with the tag administrator"):
        run(backups.stopped, node)
    with AdminClient(NodeAddress(node.uri)) as client:
        assert client.request(ListQueues(), QueueList).queues == []


@pytest.mark.spark
@pytest.mark.slow
# Starts two JVMs, one after the other.
@pytest.mark.timeout(400)
def test_a_command_that_is_killed_is_given_again(
    backups: Backups, node: BrokerProcess, tmp_path: Path
) -> None:
    """A command that is killed after its first commit is resumed by the same command.

    Workers of Spark check and compare.
    """
    command = [sys.executable, "-m", "warrenmq", "pipeline", "restore", str(backups.stopped)]
    command += ["--uri", node.uri, "--json"]
    sink = f"restore-{backups.results['stopped'].id}"
    with (tmp_path / "log").open("w") as log:
        first = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            await_commit(node, sink, first, tmp_path / "log")
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
    second = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=180, check=False)
    assert second.returncode == 0, second.stderr.decode()[-4000:]
    result = json.loads(second.stdout)
    assert (
        0
        < result["restored_before"]
        <= result["messages"]
        == result["restored_before"] + result["restored"]
    )
    assert contents_of(node, list(backups.last)) == backups.last


def await_commit(node: BrokerProcess, sink: str, app: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the sink has committed messages."""
    deadline = time.monotonic() + 180
    with AdminClient(NodeAddress(node.uri)) as client:
        while not any(
            each.sink == sink and each.batch for each in client.request(ListSinks(), SinkList).sinks
        ):
            assert app.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.01)
