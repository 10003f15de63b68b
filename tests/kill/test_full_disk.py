"""A real file system without a free byte keeps the promises of docs/operations/disk.md."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.test_failing_disk import confirming, outcome
from tests.kill.test_restart import consume, content, publish
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ConnectionClosedError
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren
from tests.support.kills.ledger import connect, exists
from tests.support.stores.small_disk import SmallDisk, mounted_disk
from warrenmq.cli.control.main import main
from warrenmq.store.disk.space_reserve import RESERVE_BYTES, RESERVE_PATH
from warrenmq.wire.methods import BasicAck, QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk

pytestmark = pytest.mark.kill


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted_disk(tmp_path / "data") as disk:
        yield disk


@pytest.fixture
def node(tmp_path: Path, disk: SmallDisk) -> Iterator[BrokerProcess]:
    """A node whose data directory is the small disk; only a full disk stops publishers."""
    process = BrokerProcess(tmp_path, "disk_free_limit.absolute=0")
    yield process
    process.kill()
    log = process.log_path.read_text()
    assert "Traceback" not in log, log[-4000:]


def reserve_bytes(node: BrokerProcess) -> int:
    """The size of the reserve."""
    return (node.directory / "data" / RESERVE_PATH).stat().st_size


def is_found(node: BrokerProcess) -> bool:
    """Whether local commands find the node."""
    return main(["--data-dir", str(node.directory / "data"), "-q", "ping"]) == 0


def declare_until_refused(node: BrokerProcess) -> list[bytes]:
    """Declare durable queues until one is refused; returns their names, the refused one last.
    Declarations succeed while the definitions have room in their blocks.
    """
    names: list[bytes] = []
    while True:
        names.append(b"new %d" % len(names))
        channel = connect(node).channel()
        channel.send(QueueDeclare(names[-1], False, True))
        try:
            channel.expect(QueueDeclareOk)
        except ConnectionClosedError as error:
            assert str(error).startswith("506 "), error
            return names
        assert len(names) < 100


def test_at_zero_bytes_free(node: BrokerProcess, disk: SmallDisk) -> None:
    node.start()
    channel = connect(node).channel()
    for name in (b"q", b"dying"):
        channel.declare(name, durable=True)
    publish(channel, b"q", *[b"%d" % number for number in range(20)])
    unacked = consume(channel, b"q", 20)
    assert reserve_bytes(node) == RESERVE_BYTES
    disk.fill()
    *made, refused = declare_until_refused(node)
    # Only the declaration is refused: existing queues can be declared and deleted, messages acked.
    other = connect(node).channel()
    other.declare(b"q", durable=True)
    assert not exists(connect(node), refused)
    other.send(QueueDelete(b"dying"))
    other.expect(QueueDeleteOk)
    for message in unacked[:10]:
        channel.send(BasicAck(message.deliver.delivery_tag))
    # The publish follows the acks in the same journal; the reserve has room for it.
    channel.quiet()
    confirmed = confirming(connect(node))
    confirmed.publish(b"q", b"behind", PERSISTENT)
    assert outcome(confirmed, 1)
    assert "bytes of reserve are released" in node.log_path.read_text()
    node.kill()

    # The reserve has been used up as well.
    disk.fill()
    node.start()
    assert sorted(body for body, _ in content(node)) == sorted(
        [b"behind", *[b"%d" % n for n in range(10, 20)]]
    )
    assert not exists(connect(node), b"dying")
    assert not exists(connect(node), refused)
    for name in made:
        assert exists(connect(node), name)
    full = confirming(connect(node))
    full.publish(b"q", b"no room", PERSISTENT)
    assert not outcome(full, 1)
    assert is_found(node)

    # A stop gives back what the node has taken for its definitions.
    assert node.stop() == 0
    disk.fill()
    node.start()
    assert is_found(node)

    # With free space the node recovers by itself.
    disk.free()
    eventually(lambda: reserve_bytes(node) == RESERVE_BYTES, "the reserve is held again")
    other = connect(node).channel()
    other.declare(refused, durable=True)
    publish(other, refused, b"at last")
    assert node.stop() == 0
    check = warren("store", "check", node.directory / "data")
    assert check.returncode == 0, check.stdout
    node.start()
    assert content(node, refused) == [(b"at last", False)]


def test_standard_output_on_a_full_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warrenmq", "server", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(tmp_path)]
    with open("/dev/full", "w") as full:
        node = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True)
    try:
        eventually((tmp_path / "control.json").exists, "the node runs")
        assert main(["--data-dir", str(tmp_path), "-q", "ping"]) == 0
        node.terminate()
        _, log = node.communicate(timeout=60)
    finally:
        node.kill()
        node.wait()
    assert node.returncode == 0
    assert "the ready line cannot be written: No space left on device" in log
    assert "Traceback" not in log
