"""On a full or broken disk only durable data are confirmed; the node reports, serves, recovers."""

import errno
import resource
import time
from pathlib import Path

import pytest

from tests.kill.test_restart import content, journal_of
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect, exists
from tests.support.stores.failing_disk import FailingDisk
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicNack,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)

pytestmark = pytest.mark.kill
FILE_BYTES = 4096


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(tmp_path, monkeypatch)


def confirming(peer: Peer) -> ChannelPeer:
    """A channel in confirm mode."""
    channel = peer.channel()
    channel.send(ConfirmSelect())
    channel.expect(ConfirmSelectOk)
    return channel


def outcome(channel: ChannelPeer, tag: int) -> bool:
    """Whether everything up to `tag` was acked; all of it must have the same outcome."""
    while True:
        item = channel.event()
        assert isinstance(item, BasicAck | BasicNack), item
        if item.delivery_tag >= tag:
            assert item.delivery_tag == tag
            return isinstance(item, BasicAck)


def declared(node: BrokerProcess) -> Peer:
    """A started node with the durable queue q and the volatile queue v."""
    node.start()
    peer = connect(node)
    channel = peer.channel()
    channel.declare(b"q", durable=True)
    channel.declare(b"v")
    return peer


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("pwritev", errno.ENOSPC),
        ("fdatasync", errno.EIO),
        ("open", errno.EMFILE),
        ("pwritev", errno.EIO),
    ],
)
def test_publishes_are_nacked_and_the_node_serves_on(
    node: BrokerProcess, disk: FailingDisk, call: str, number: int
) -> None:
    peer = declared(node)
    channel = confirming(peer)
    channel.publish(b"q", b"before", PERSISTENT)
    assert outcome(channel, 1)
    if call == "open":
        # A new file is opened only after a failure.
        disk.fail("fdatasync", number)
        channel.publish(b"q", b"lost", PERSISTENT)
        assert not outcome(channel, 2)
        # `call` must fail first: between the two lines, an attempt of the node could find a disk
        # without faults.
        disk.fail(call, number)
        disk.heal("fdatasync")
    else:
        channel.publish(b"v", b"filler")
        assert outcome(channel, 2)
        disk.fail(call, number)
    for tag in range(3, 8):
        channel.publish(b"q", b"not durable %d" % tag, PERSISTENT)
        assert not outcome(channel, tag)
    # Consumers, transient messages and other clients, which need no disk, are served.
    channel.publish(b"v", b"transient")
    assert outcome(channel, 8)
    other = connect(node).channel()
    assert b"transient" in other.drain(b"v")
    assert other.get(b"q").body == b"before"
    other.peer.close()
    # Definitions are in another file, which works.
    other = connect(node).channel()
    other.declare(b"new", durable=True)
    # A transaction promises durability and is refused.
    other.send(TxSelect())
    other.expect(TxSelectOk)
    other.publish(b"q", b"in a transaction", PERSISTENT)
    other.send(TxCommit())
    assert other.peer.await_close().reply_code == 506
    disk.heal()
    deadline = time.monotonic() + 30
    tag = 9
    channel.publish(b"q", b"after 9", PERSISTENT)
    while not outcome(channel, tag):
        # One more batch may have been in flight.
        assert time.monotonic() < deadline
        tag += 1
        channel.publish(b"q", b"after %d" % tag, PERSISTENT)
    other = connect(node).channel()
    other.send(TxSelect())
    other.expect(TxSelectOk)
    other.publish(b"q", b"at last", PERSISTENT)
    other.send(TxCommit())
    other.expect(TxCommitOk)
    log = node.log_path.read_text()
    assert "a commit failed; publishes are nacked until one succeeds" in log
    assert "commits succeed again" in log
    # The failure is logged once, not at every attempt.
    assert log.count("a commit failed") <= 3
    assert len(list(journal_of(node).iterdir())) <= 4
    node.kill()
    node.start()
    assert content(node, b"new") == []
    bodies = [body for body, _ in content(node)]
    assert bodies == [b"before", b"after %d" % tag, b"at last"]


def test_acked_while_the_disk_failed(node: BrokerProcess, disk: FailingDisk) -> None:
    peer = declared(node)
    channel = confirming(peer)
    for number in range(10):
        channel.publish(b"q", b"%d" % number, PERSISTENT)
    assert outcome(channel, 10)
    disk.fail("fdatasync", errno.EIO)
    channel.publish(b"q", b"never promised", PERSISTENT)
    assert not outcome(channel, 11)
    channel.send(BasicConsume(b"q", b"c"))
    channel.expect(BasicConsumeOk)
    messages = [channel.message() for _ in range(11)]
    for message in messages[3:]:
        channel.send(BasicAck(message.deliver.delivery_tag))
    time.sleep(0.4)
    disk.heal()
    # The acks are durable with the next confirm at the latest, in spite of the failed commits
    # between.
    tag = 12
    channel.publish(b"v", b"", PERSISTENT)
    assert outcome(channel, tag)
    while True:
        tag += 1
        other = confirming(connect(node))
        other.declare(b"other", durable=True)
        other.publish(b"other", b"x", PERSISTENT)
        if outcome(other, 1):
            break
        assert tag < 20
    node.kill()
    node.start()
    assert [body for body, _ in content(node)] == [b"0", b"1", b"2"]


def test_files_may_not_grow(node: BrokerProcess) -> None:
    """A limit on file sizes makes the kernel refuse writes of journal and definitions alike."""
    peer = declared(node)
    channel = confirming(peer)
    assert node.process is not None
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, hard))
    for tag in range(1, 4):
        channel.publish(b"q", bytes(3 * FILE_BYTES), PERSISTENT)
        assert not outcome(channel, tag)
    other = connect(node).channel()
    other.send(QueueDeclare(b"new", False, True))
    assert other.peer.await_close().reply_code == 506
    assert len(list(journal_of(node).iterdir())) <= 2
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    # The first attempt may still be the one that was in flight.
    tag = 4
    channel.publish(b"q", b"fits", PERSISTENT)
    while not outcome(channel, tag):
        tag += 1
        channel.publish(b"q", b"fits", PERSISTENT)
        assert tag < 10
    node.kill()
    node.start()
    assert content(node) == [(b"fits", True)]
    assert not exists(connect(node), b"new")


def test_a_slow_disk_delays_only_those_who_wait_for_it(
    node: BrokerProcess, disk: FailingDisk
) -> None:
    """The disk does not answer at all until the others have their answers."""
    peer = declared(node)
    disk.hang("fdatasync")
    durable, transient = confirming(peer), connect(node).channel()
    for number in range(200):
        durable.publish(b"q", b"%d" % number, PERSISTENT)
    for _ in range(50):
        transient.publish(b"v", b"quick")
        assert transient.get(b"v", True).body == b"quick"
    # All publishes have reached the node.
    durable.quiet()
    disk.heal()
    confirms = durable.confirms(200)
    assert all(isinstance(confirm, BasicAck) for confirm in confirms)
    # Group commit: one batch before the first sync, and one for all others.
    assert len(confirms) <= 3


def test_started_on_a_disk_that_is_full(node: BrokerProcess, disk: FailingDisk) -> None:
    channel = confirming(declared(node))
    channel.publish(b"q", b"there", PERSISTENT)
    assert outcome(channel, 1)
    assert node.stop() == 0
    disk.fail("pwritev", errno.ENOSPC)
    node.start()
    channel = confirming(connect(node))
    assert channel.get(b"q").body == b"there"
    channel.publish(b"q", b"no room", PERSISTENT)
    assert not outcome(channel, 1)
    assert node.stop() == 0
    disk.heal()
    node.start()
    assert [body for body, _ in content(node)] == [b"there"]
