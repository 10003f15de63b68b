"""A node beyond its limits has its alarm from the start: publishers wait, consumers continue."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import (
    BODY,
    PERSISTENT,
    SocketLink,
    frame,
    header_frame,
    method_frame,
)
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import MIB, WatchedBroker
from warrenmq.wire.methods import BasicPublish, ConnectionBlocked, ConnectionUnblocked

CAPABILITIES: dict[str, object] = {"connection.blocked": True}


def connect(node: BrokerProcess) -> ChannelPeer:
    return Peer(SocketLink(node.host, node.port)).open(capabilities=CAPABILITIES).channel()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a stopped node with three messages in the durable queue `q`."""
    node = BrokerProcess(tmp_path)
    node.start()
    channel = connect(node)
    channel.declare(b"q", durable=True)
    channel.confirm_select()
    for body in (b"1", b"2", b"3"):
        channel.publish(b"q", body, PERSISTENT)
    channel.confirms(3)
    channel.peer.close()
    assert node.stop() == 0
    yield tmp_path
    log = node.log_path.read_text()
    assert "Traceback" not in log, log[-4000:]


@pytest.mark.parametrize(
    ("setting", "reason", "line"),
    [
        ("vm_memory_high_watermark.absolute=1MB", b"low on memory", "memory alarm: "),
        ("vm_memory_high_watermark.relative=0", b"low on memory", "memory alarm: "),
        ("total_memory_available_override_value=1MiB", b"low on memory", "memory alarm: "),
        ("disk_free_limit.absolute=1000TB", b"low on disk", "disk alarm: "),
        ("disk_free_limit.relative=1000", b"low on disk", "disk alarm: "),
    ],
)
def test_an_alarm_from_the_start(directory: Path, setting: str, reason: bytes, line: str) -> None:
    node = BrokerProcess(directory, setting, "total_memory_available_override_value=1TB")
    if setting.startswith("total"):
        node = BrokerProcess(directory, setting)
    node.start()
    assert line in node.log_path.read_text()
    publisher = connect(node)
    publisher.publish(b"q", b"4", PERSISTENT)
    assert publisher.peer.expect(ConnectionBlocked).reason == reason
    consumer = connect(node)
    consumer.qos(1)
    consumer.consume(b"q")
    for body in (b"1", b"2", b"3"):
        message = consumer.message()
        assert message.body == body
        consumer.ack(message.deliver.delivery_tag)
    assert consumer.count(b"q") == 0
    # The node stops cleanly. It drops the kept publish of the blocked client, which it never took.
    assert node.stop() == 0
    node = BrokerProcess(directory)
    node.start()
    assert connect(node).count(b"q") == 0
    assert node.stop() == 0


def publish_until_blocked(publisher: ChannelPeer, size: int) -> int:
    """Publish to `q` until the broker blocks and stops reading; return the number of messages.

    The last frame may be incomplete, so the connection cannot publish any more.
    """
    link = publisher.peer.link
    assert isinstance(link, SocketLink)
    message = method_frame(publisher.number, BasicPublish(b"", b"q"))
    message += header_frame(publisher.number, size) + frame(BODY, publisher.number, bytes(size))
    sent = 0
    moved_at = time.monotonic()
    while sent < 10_000 * len(message):
        link.socket.setblocking(False)
        try:
            sent += link.socket.send(memoryview(message)[sent % len(message) :])
            moved_at = time.monotonic()
        except BlockingIOError:
            publisher.peer.read(0.05)
            if publisher.peer.has_control() and time.monotonic() - moved_at > 2:
                break
    return sent // len(message)


@pytest.mark.slow
def test_a_node_that_fills_up_and_is_emptied_again(tmp_path: Path) -> None:
    """Publishing stops at the memory limit, and resumes when consumers have made room."""
    node = BrokerProcess(tmp_path)
    node.start()
    base = WatchedBroker(node).rss()
    assert node.stop() == 0
    limit = base + 100 * MIB
    # Disable paging, which would keep the memory below the limit.
    node = BrokerProcess(
        tmp_path,
        f"vm_memory_high_watermark.absolute={limit}",
        "vm_memory_high_watermark_paging_ratio=1000",
    )
    node.start()
    broker = WatchedBroker(node)
    publisher = connect(node)
    publisher.declare(b"q")
    assert 900 < publish_until_blocked(publisher, 100_000) < 1600
    assert publisher.peer.expect(ConnectionBlocked).reason == b"low on memory"
    assert broker.rss() < limit + 50 * MIB
    consumer = connect(node)
    taken = len(consumer.drain(b"q"))
    assert taken > 800
    # The node makes the allocator return freed memory every ten seconds.
    publisher.peer.expect(ConnectionUnblocked, PATIENCE_S)
    eventually(lambda: broker.rss() < limit - 50 * MIB, "the memory given back")
    publisher.peer.drop()
    another = connect(node)
    another.publish(b"q", b"goes on")
    assert another.count(b"q") >= 1
    assert node.stop() == 0
