"""Stops, crashes and starts in all orders, and data directories that someone changed."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kill.test_sigkill import check_and_eat, declare_everything
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.killed_node import MIB, disk_bytes
from tests.support.kills.ledger import Confirms, Eater, Ledger, Publisher, connect, exists
from warrenmq.wire.methods import BasicConsume, BasicConsumeOk, ExchangeDeclare

pytestmark = pytest.mark.kill

# Exit status of a start that refuses lost definitions.
DEFINITIONS_LOST = 3


def journal_of(node: BrokerProcess) -> Path:
    """The journal directory of vhost /."""
    return node.directory / "data" / "msg_stores" / "vhosts" / "1" / "journal"


def lost_of(node: BrokerProcess) -> list[Path]:
    """The files in the vhost's lost+found."""
    lost = journal_of(node).parent / "lost+found"
    return sorted(lost.iterdir()) if lost.exists() else []


def publish(channel: ChannelPeer, queue: bytes, *bodies: bytes) -> None:
    """Publish persistent messages and wait for their confirms."""
    confirms = Confirms(channel)
    for body in bodies:
        confirms.publish(queue, body, PERSISTENT, b"", lambda: None)
    confirms.drain()


def consume(channel: ChannelPeer, queue: bytes, count: int) -> list[Message]:
    """Receive `count` deliveries without acking them."""
    channel.send(BasicConsume(queue, b"c"))
    channel.expect(BasicConsumeOk)
    return [channel.message() for _ in range(count)]


def filled(node: BrokerProcess, *bodies: bytes) -> Peer:
    """Start a node whose durable queue q contains these bodies."""
    node.start()
    peer = connect(node)
    channel = peer.channel()
    channel.declare(b"q", durable=True)
    publish(channel, b"q", *bodies)
    return peer


def content(node: BrokerProcess, queue: bytes = b"q") -> list[tuple[bytes, bool]]:
    """The bodies and redelivered flags of a queue's messages, which stay in the queue."""
    peer = connect(node)
    channel = peer.channel()
    messages = []
    for _ in range(channel.count(queue)):
        message = channel.get(queue)
        messages.append((message.body, message.got.redelivered))
    peer.close()
    return messages


def test_a_clean_stop_remembers_what_was_delivered(node: BrokerProcess) -> None:
    peer = filled(node, b"1", b"2", b"3", b"4")
    channel = peer.channel()
    assert [channel.get(b"q").body for _ in range(2)] == [b"1", b"2"]
    assert node.stop() == 0
    for _ in range(2):
        # Reading the messages delivers them, so the second reading finds all marked.
        node.start()
        found = content(node)
        assert [body for body, _ in found] == [b"1", b"2", b"3", b"4"]
        if _ == 0:
            assert [flag for _, flag in found] == [True, True, False, False]
        else:
            assert all(flag for _, flag in found)
        assert node.stop() == 0


def test_killed_after_deliveries_that_wrote_nothing(node: BrokerProcess) -> None:
    filled(node, b"1", b"2").close()
    assert node.stop() == 0
    node.start()
    assert content(node) == [(b"1", False), (b"2", False)]
    node.kill()
    node.start()
    assert content(node) == [(b"1", True), (b"2", True)]


def test_crash_then_clean_stops(node: BrokerProcess) -> None:
    filled(node, *[b"%d" % number for number in range(100)])
    node.kill()
    for _ in range(3):
        node.start()
        assert [body for body, _ in content(node)] == [b"%d" % number for number in range(100)]
        assert node.stop() == 0
    assert lost_of(node) == []


def test_what_is_not_durable_is_gone(node: BrokerProcess) -> None:
    for is_clean in (True, False):
        peer = filled(node, b"stays")
        channel = peer.channel()
        channel.publish(b"q", b"transient")
        channel.declare(b"volatile")
        publish(channel, b"volatile", b"persistent, but the queue is not")
        channel.declare(b"mine", durable=True, exclusive=True)
        channel.declare(b"auto", durable=True, auto_delete=True)
        channel.exchange(b"volatile-x", b"fanout")
        channel.exchange(b"durable-x", b"topic", durable=True)
        channel.bind(b"q", b"durable-x", b"a.#")
        channel.bind(b"volatile", b"durable-x", b"a.#")
        channel.bind(b"q", b"volatile-x")
        if is_clean:
            assert node.stop() == 0
        else:
            node.kill()
        node.start()
        peer = connect(node)
        assert [exists(peer, name) for name in (b"q", b"auto", b"volatile", b"mine")] == [
            True,
            True,
            False,
            False,
        ]
        channel = peer.channel()
        channel.publish(b"a.b", b"routed", exchange=b"durable-x")
        assert channel.drain(b"q") == [b"stays", b"routed"]
        channel.delete(b"auto")
        channel.refused(
            ExchangeDeclare(b"volatile-x", b"fanout", True),
            404,
            "no exchange 'volatile-x' in vhost '/'",
        )
        peer.close()
        assert node.stop() == 0


def test_a_queue_deleted_and_declared_again_starts_empty(node: BrokerProcess) -> None:
    peer = filled(node, b"old 1", b"old 2")
    channel = peer.channel()
    channel.delete(b"q")
    channel.declare(b"q", durable=True)
    publish(channel, b"q", b"new")
    node.kill()
    node.start()
    assert [body for body, _ in content(node)] == [b"new"]


@pytest.mark.timeout(200)
@pytest.mark.slow
def test_sigterm_in_the_middle_of_publishing(node: BrokerProcess) -> None:
    choose = random.Random(5)
    ledger = Ledger()
    node.start()
    peer = connect(node)
    declare_everything(peer.channel())
    for _ in range(4):
        peer.drop()
        workers = [kind(node, ledger, choose.getrandbits(30)) for kind in (Publisher, Eater)]
        for worker in workers:
            worker.start()
        time.sleep(choose.uniform(0.1, 0.5))
        assert node.stop() == 0
        for worker in workers:
            worker.join(20)
            # The node closes connections with connection.close (320).
            assert worker.failure is None or "320 CONNECTION_FORCED" in str(worker.failure), (
                worker.failure
            )
        node.start()
        peer = connect(node)
        check_and_eat(ledger, peer, choose, is_clean=True)


@pytest.mark.slow
def test_killed_while_it_starts(node: BrokerProcess) -> None:
    bodies = [b"%d" % number + bytes(number % 3000) for number in range(3000)]
    filled(node, *bodies)
    node.kill()
    choose = random.Random(7)
    for _ in range(8):
        command = [
            sys.executable,
            "-m",
            "warrenmq",
            "server",
            "--data-dir",
            str(node.directory / "data"),
        ]
        starting = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            cwd=Path.cwd(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(choose.uniform(0.2, 0.9))
        starting.kill()
        starting.wait()
    node.start()
    assert [body for body, _ in content(node)] == bodies


def test_one_data_directory_has_one_node(node: BrokerProcess) -> None:
    filled(node, b"1")
    second = BrokerProcess(node.directory)
    with pytest.raises(RuntimeError, match="in use by another warren node"):
        second.start()
    assert [body for body, _ in content(node)] == [b"1"]
    assert node.stop() == 0
    # The lock ends with its holder, whatever ends the holder.
    node.start()
    node.kill()
    node.start()


def test_strange_files_in_the_journal(node: BrokerProcess) -> None:
    filled(node, b"1", b"2")
    node.kill()
    (good,) = [path for path in journal_of(node).iterdir() if path.stat().st_size > 200]
    # An operator's old copy of a file, an editor's backup, and a file that was never written.
    shutil.copy(good, good.with_name("700.wal"))
    shutil.copy(good, good.with_name(good.name + "~"))
    good.with_name("701.wal").write_bytes(b"")
    node.start()
    assert [body for body, _ in content(node)] == [b"1", b"2"]
    assert len(lost_of(node)) == 3
    assert node.log_path.read_text().count("moved to lost+found") == 3


def test_damage_costs_what_is_damaged(node: BrokerProcess) -> None:
    filled(node, *[b"message %d" % number for number in range(10)])
    node.kill()
    (good,) = [path for path in journal_of(node).iterdir() if path.stat().st_size > 200]
    data = bytearray(good.read_bytes())
    data[data.index(b"message 4")] ^= 1
    good.write_bytes(data)
    node.start()
    assert [body for body, _ in content(node)] == [
        b"message %d" % number for number in range(10) if number != 4
    ]
    assert len(lost_of(node)) == 1
    assert "is damaged from byte" in node.log_path.read_text()


def test_a_lost_store_id_is_found_again(node: BrokerProcess) -> None:
    filled(node, b"1", b"2")
    node.kill()
    (journal_of(node).parent / "store_id").unlink()
    node.start()
    assert [body for body, _ in content(node)] == [b"1", b"2"]


@pytest.mark.parametrize("how", ["garbage", "missing"])
def test_lost_definitions_do_not_lose_messages(node: BrokerProcess, how: str) -> None:
    filled(node, b"precious 1", b"precious 2").close()
    assert node.stop() == 0
    database = node.directory / "data" / "node.sqlite"
    if how == "missing":
        database.unlink()
    else:
        database.write_bytes(b"no database" * 1000)
    # A start without permission to accept the loss is refused, however often it is tried.
    for _ in range(2):
        assert node.refused() == DEFINITIONS_LOST
    line = node.log_path.read_text().splitlines()[-1]
    assert "has lost its definitions and holds a store" in line
    assert lost_of(node) == []
    node.settings = ("accept_lost_definitions=true",)
    for _ in range(2):
        node.start()
        peer = connect(node)
        assert not exists(peer, b"q")
        channel = peer.channel()
        channel.declare(b"q2", durable=True)
        publish(channel, b"q2", b"service goes on")
        peer.close()
        assert node.stop() == 0
    kept = b"".join(path.read_bytes() for path in lost_of(node))
    assert b"precious 1" in kept
    assert b"precious 2" in kept
    assert "which no usable definition names" in node.log_path.read_text()


def test_a_definition_that_makes_no_sense_costs_itself_only(node: BrokerProcess) -> None:
    peer = filled(node, b"precious")
    channel = peer.channel()
    channel.declare(b"other", durable=True)
    publish(channel, b"other", b"fine")
    channel.exchange(b"x", durable=True)
    peer.close()
    assert node.stop() == 0
    database = sqlite3.connect(node.directory / "data" / "node.sqlite")
    with database:
        database.execute("UPDATE queues SET arguments = ? WHERE name = ?", (b"\x03x-q!!", b"q"))
        database.execute("UPDATE exchanges SET type = ? WHERE name = ?", (b"no such type", b"x"))
    database.close()
    node.start()
    assert content(node, b"other") == [(b"fine", False)]
    peer = connect(node)
    assert not exists(peer, b"q")
    peer.close()
    assert node.stop() == 0
    node.start()
    assert b"precious" in b"".join(path.read_bytes() for path in lost_of(node))


def test_a_journal_that_stays_small(node: BrokerProcess) -> None:
    node.settings = ("journal_file_size_limit=1MiB",)
    peer = filled(node, b"the first stays" + bytes(100))
    channel = peer.channel()
    channel.declare(b"busy", durable=True)
    confirms = Confirms(channel)
    for number in range(600):
        for _ in range(10):
            confirms.publish(b"busy", b"%d" % number + bytes(9_000), PERSISTENT, b"", lambda: None)
        confirms.drain()
        channel.drain(b"busy")
    written = 600 * 10 * 9_000
    assert written > 50 * MIB
    # A few files of 1 MiB and their allocation ahead; on a busy machine the last checkpoint may be
    # in flight.
    deadline = time.monotonic() + 60
    while (on_disk := disk_bytes(journal_of(node))) >= 20 * MIB:
        assert time.monotonic() < deadline, f"{on_disk / MIB:.1f} MiB"
        time.sleep(0.1)
    node.kill()
    node.start()
    assert content(node) == [(b"the first stays" + bytes(100), True)]
