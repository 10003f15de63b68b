"""T74, T75: backups of a node that continues to publish, and new nodes restored from them."""

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.test_sigkill import check_definitions, declare_everything, read_all
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren, warren_json
from tests.support.kills.ledger import (
    DURABLE_QUEUES,
    EATEN,
    Confirms,
    Declarer,
    Eater,
    Ledger,
    Publisher,
    Worker,
    connect,
    number_of,
)
from tests.support.stores.failing_disk import FailingDisk
from tests.support.stores.stopped_node import await_rest
from warrenmq.wire.properties import Properties

pytestmark = pytest.mark.kill

# Files are small, so that many are sealed, linked and deleted.
SETTINGS = ("journal_file_size_limit=1MiB", "msg_store_file_size_limit=64KiB")
DEFINITIONS = ("vhosts", "users", "permissions", "exchanges", "queues", "bindings")


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A second node, whose data directory does not exist yet."""
    process = BrokerProcess(tmp_path / "restored", *SETTINGS)
    yield process
    process.kill()
    log = process.log_path.read_text() if process.log_path.exists() else ""
    assert "Traceback" not in log and "ERROR" not in log, log[-4000:]


def data_of(node: BrokerProcess) -> Path:
    return node.directory / "data"


def store_of(node: BrokerProcess) -> Path:
    """The directory of vhost /'s store."""
    return data_of(node) / "msg_stores/vhosts/1"


def definitions(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of the definition tables of a stopped node or a backup."""
    connection = sqlite3.connect(directory / "node.sqlite")
    try:
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in DEFINITIONS
        }
    finally:
        connection.close()


def backlog(node: BrokerProcess, count: int, size: int, queue: bytes = b"big") -> None:
    """Publish `count` confirmed messages of `size` bytes to a durable queue."""
    peer = connect(node)
    channel = peer.channel()
    channel.declare(queue, durable=True)
    confirms = Confirms(channel)
    for number in range(count):
        confirms.publish(queue, b"%d." % number + bytes(size), PERSISTENT, b"", lambda: None)
        while len(confirms.waiting) > 500:
            confirms.read(5)
    confirms.drain()
    peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_was_confirmed_before_a_backup_is_in_it(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    ledger = Ledger()
    node.settings = SETTINGS
    node.start()
    setup = connect(node)
    declare_everything(setup.channel())
    # The full journal keeps checkpoints, deletions and appends to indexes busy.
    backlog(node, 3000, 2000)
    workers: list[Worker] = [
        kind(node, ledger, choose.getrandbits(30)) for kind in (Publisher, Eater, Declarer)
    ]
    for worker in workers:
        worker.start()
    time.sleep(choose.uniform(0.5, 1.5))
    with ledger.lock:
        confirmed = {queue: numbers.copy() for queue, numbers in ledger.confirmed.items()}
        acked_for_good = ledger.acked_for_good[EATEN].copy()
        declared = ledger.declared & ledger.bound
    done = warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port)
    assert done.returncode == 0, done.stderr
    time.sleep(0.2)
    node.kill()
    for worker in workers:
        worker.join(20)
        assert worker.failure is None, repr(worker.failure)

    assert warren_json("store", "check", tmp_path / "backup")["problems"] == []
    found = warren_json("restore", tmp_path / "backup", "--data-dir", data_of(restored))
    assert found["check"]["clean"]
    restored.start()
    peer = connect(restored)
    channel = peer.channel()
    for queue in DURABLE_QUEUES:
        messages = read_all(channel, queue)
        numbers = [number_of(message.body) for message in messages]
        assert numbers == sorted(set(numbers)), "order is kept, nothing comes twice"
        acked = ledger.acked[queue]
        missing = confirmed[queue] - acked - set(numbers)
        assert not missing, (queue, sorted(missing)[:10])
        assert not set(numbers) & ledger.transient
        if queue == EATEN:
            assert not set(numbers) & acked_for_good
    bodies = [message.body for message in read_all(channel, b"big")]
    assert bodies == [b"%d." % number + bytes(2000) for number in range(3000)]
    # A queue that was declared before and deleted meanwhile may be there or not.
    ledger.declared &= declared
    check_definitions(ledger, peer, sorted(declared - ledger.deleted & ledger.declared)[:200])
    peer.close()
    assert restored.stop() == 0
    assert warren_json("store", "check", data_of(restored))["clean"]


def test_definitions_and_properties_are_equal(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path
) -> None:
    node.settings = SETTINGS
    node.start()
    peer = connect(node)
    channel = peer.channel()
    channel.exchange(b"topic", b"topic", durable=True)
    channel.exchange(b"inner", b"headers", durable=True)
    channel.bind_exchange(b"inner", b"topic", b"a.#")
    channel.declare(b"q", durable=True)
    channel.bind(b"q", b"topic", b"*.b")
    properties = Properties(
        delivery_mode=2,
        content_type=b"text/x",
        priority=7,
        message_id=b"id",
        timestamp=12345,
        type=b"t",
    ).encode()
    confirms = Confirms(channel)
    for size in (0, 10, 5000, 100_000):
        confirms.publish(b"a.b", bytes(size), properties, b"topic", lambda: None)
    confirms.drain()
    assert (
        warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port).returncode
        == 0
    )
    peer.close()
    assert node.stop() == 0
    assert warren("restore", tmp_path / "backup", "--data-dir", data_of(restored)).returncode == 0
    assert (
        definitions(tmp_path / "backup")
        == definitions(data_of(node))
        == definitions(data_of(restored))
    )
    restored.start()
    peer = connect(restored)
    channel = peer.channel()
    messages = read_all(channel, b"q")
    assert [len(message.body) for message in messages] == [0, 10, 5000, 100_000]
    for message in messages:
        assert message.properties.encode() == properties
        assert (message.deliver.exchange, message.deliver.routing_key) == (b"topic", b"a.b")
    peer.close()


def test_what_the_node_does_later_does_not_touch_a_backup(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path
) -> None:
    node.settings = SETTINGS
    node.start()
    backlog(node, 3000, 2000)
    backlog(node, 100, 10_000, b"large")
    assert (
        warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port).returncode
        == 0
    )
    backup_store = tmp_path / "backup/msg_stores/vhosts/1"
    links = [
        path for path in backup_store.rglob("*") if path.is_file() and path.stat().st_nlink > 1
    ]
    assert links, "sealed files are linked, not copied"
    backlog(node, 2000, 2000)
    peer = connect(node)
    channel = peer.channel()
    assert len(channel.drain(b"big")) == 5000 and len(channel.drain(b"large")) == 100
    deadline = time.monotonic() + 60
    while len(list((store_of(node) / "msg_store_persistent").iterdir())) > 2:
        assert time.monotonic() < deadline, "what a backup has held is deleted after it"
        time.sleep(0.2)
    peer.close()
    node.kill()
    node.start()
    node.kill()
    assert warren("restore", tmp_path / "backup", "--data-dir", data_of(restored)).returncode == 0
    restored.start()
    peer = connect(restored)
    channel = peer.channel()
    assert len(read_all(channel, b"big")) == 3000 and len(read_all(channel, b"large")) == 100
    peer.close()


def test_a_node_killed_during_a_backup(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup's remains are not taken for a backup and do not disturb the node."""
    disk = FailingDisk(tmp_path, monkeypatch)
    node.settings = SETTINGS
    node.start()
    backlog(node, 3000, 2000)
    # While the disk hangs, the backup waits for its checkpoint and cannot end before the kill.
    disk.hang("fdatasync")
    command = [
        sys.executable,
        "-m",
        "warrenmq",
        "backup",
        str(tmp_path / "backup"),
        "--host",
        node.host,
    ]
    process = subprocess.Popen(
        [*command, "--port", str(node.port)], stderr=subprocess.PIPE, text=True
    )
    incomplete = tmp_path / ".backup.incomplete"
    deadline = time.monotonic() + 60
    while not incomplete.exists():
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    node.kill()
    disk.heal()
    assert process.communicate(timeout=60)[1].startswith("warren: the connection to ")
    assert process.returncode == 2
    assert not (tmp_path / "backup").exists()
    done = warren("restore", incomplete, "--data-dir", data_of(restored))
    assert done.returncode == 2 and "not finished" in done.stderr
    node.start()
    done = warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port)
    assert done.returncode == 2 and "was interrupted" in done.stderr
    assert (
        warren("backup", tmp_path / "other", "--host", node.host, "--port", node.port).returncode
        == 0
    )
    assert warren_json("store", "check", tmp_path / "other")["clean"]


def test_what_is_refused(node: BrokerProcess, tmp_path: Path) -> None:
    node.start()
    where = ("--host", node.host, "--port", node.port)
    for target, text in (
        (data_of(node) / "backup", "lies in the data directory"),
        (node.directory, "is not empty"),
        (node.log_path, "is no directory"),
    ):
        done = warren("backup", target, *where)
        assert done.returncode == 2 and text in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    done = warren("backup", tmp_path / "backup", *where, "--password", "wrong")
    assert done.returncode == 2 and "refused" in done.stderr
    done = warren("backup", tmp_path / "backup", "--data-dir", data_of(node))
    assert done.returncode == 2 and "in use by a running node" in done.stderr
    done = warren("backup", tmp_path / "backup", "--port", "1")
    assert done.returncode == 2 and "no connection to" in done.stderr
    assert not (tmp_path / "backup").exists()
    # An empty directory is replaced.
    (tmp_path / "empty").mkdir()
    assert warren("backup", tmp_path / "empty", *where).returncode == 0
    assert (tmp_path / "empty/manifest.json").is_file()


def test_a_backup_of_a_stopped_node(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path
) -> None:
    node.settings = SETTINGS
    node.start()
    backlog(node, 3000, 2000)
    backlog(node, 50, 10_000, b"large")
    node.kill()
    assert warren("backup", tmp_path / "backup", "--data-dir", data_of(node)).returncode == 0
    # The node continues, and the backup stays unchanged.
    node.start()
    backlog(node, 3000, 2000)
    node.kill()
    assert warren("restore", tmp_path / "backup", "--data-dir", data_of(restored)).returncode == 0
    restored.start()
    peer = connect(restored)
    channel = peer.channel()
    bodies = [message.body for message in read_all(channel, b"big")]
    assert bodies == [b"%d." % number + bytes(2000) for number in range(3000)]
    assert len(read_all(channel, b"large")) == 50
    peer.close()


def test_a_restore_looks_before_it_writes(node: BrokerProcess, tmp_path: Path) -> None:
    node.settings = SETTINGS
    node.start()
    backlog(node, 300, 200)
    assert (
        warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port).returncode
        == 0
    )
    node.kill()
    target = tmp_path / "target"

    def refused(text: str) -> None:
        done = warren("restore", tmp_path / "backup", "--data-dir", target)
        assert done.returncode == 2 and text in done.stderr, done.stderr
        assert not target.exists() and not (tmp_path / ".target.incomplete").exists()

    def changed(path: Path, data: bytes | None) -> None:
        before = path.read_bytes()
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        refused("is damaged")
        path.unlink(missing_ok=True)
        path.write_bytes(before)

    backup = tmp_path / "backup"
    for path in [path for path in backup.rglob("*") if path.is_file()]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        changed(path, bytes(data))
        if path.name != "manifest.json":
            changed(path, None)
            changed(path, bytes(data[:-1]))
    manifest = (backup / "manifest.json").read_bytes()
    (backup / "manifest.json").unlink()
    refused("has no manifest.json")
    (backup / "manifest.json").write_bytes(manifest)

    target.mkdir()
    (target / "file").touch()
    done = warren("restore", backup, "--data-dir", target)
    assert done.returncode == 2 and "is not empty" in done.stderr
    (target / "file").unlink()
    assert warren("restore", backup, "--data-dir", target).returncode == 0
    assert warren_json("store", "check", target)["clean"]


def test_a_store_that_had_problems_is_restored_on_demand(
    node: BrokerProcess, tmp_path: Path
) -> None:
    node.settings = SETTINGS
    node.start()
    backlog(node, 3000, 2000)
    # The file with the content of a message has left the journal.
    await_rest(store_of(node))
    assert node.stop() == 0
    logs = (store_of(node) / "msg_store_persistent").glob("*.wal")
    log = next(path for path in logs if b"100." in path.read_bytes())
    data = bytearray(log.read_bytes())
    data[data.index(b"100.") + 50] ^= 1
    log.write_bytes(data)
    assert warren("backup", tmp_path / "backup", "--data-dir", data_of(node)).returncode == 0
    done = warren("restore", tmp_path / "backup", "--data-dir", tmp_path / "target")
    assert done.returncode == 2 and "1 damaged" in done.stderr
    assert not (tmp_path / "target").exists()
    found = warren_json(
        "restore", tmp_path / "backup", "--data-dir", tmp_path / "target", "--accept-problems"
    )
    assert found["check"]["problem_counts"] == {"damaged": 1, "missing_content": 1}


def test_missing_definitions_are_no_reason_to_lose_data(
    node: BrokerProcess, restored: BrokerProcess, tmp_path: Path
) -> None:
    """T75: a backup without its definitions is refused; salvage names the queues by their ids."""
    node.settings = SETTINGS
    node.start()
    backlog(node, 300, 200)
    assert (
        warren("backup", tmp_path / "backup", "--host", node.host, "--port", node.port).returncode
        == 0
    )
    node.kill()
    (tmp_path / "backup/node.sqlite").unlink()
    done = warren("restore", tmp_path / "backup", "--data-dir", tmp_path / "target")
    assert done.returncode == 2 and "node.sqlite is missing" in done.stderr
    done = warren("store", "salvage", tmp_path / "backup", "--to", data_of(restored))
    assert done.returncode == 1, done.stderr
    restored.start()
    peer = connect(restored)
    assert len(read_all(peer.channel(), b"salvaged-1")) == 300
    peer.close()
