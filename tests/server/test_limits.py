"""A node with limits it cannot keep: the alarm is on from the start, publishers wait, consumers go on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.amqp_frames import PERSISTENT, SocketLink
from tests.support.amqp_peer import ChannelPeer, Peer
from tests.support.broker_process import BrokerProcess
from tests.support.watched_broker import MIB, WatchedBroker
from warren.wire.methods import ConnectionBlocked, ConnectionUnblocked

CAPABILITIES: dict[str, object] = {"connection.blocked": True}


def connect(node: BrokerProcess) -> ChannelPeer:
    return Peer(SocketLink(node.host, node.port)).open(capabilities=CAPABILITIES).channel()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """With a node's data: three messages in the durable queue q."""
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
    # It stops as if nothing were: what it had kept was never taken.
    assert node.stop() == 0
    node = BrokerProcess(directory)
    node.start()
    assert connect(node).count(b"q") == 0
    assert node.stop() == 0


@pytest.mark.slow
def test_a_node_that_fills_up_and_is_emptied_again(tmp_path: Path) -> None:
    """Publishing stops at the limit, long before the memory would end, and goes on when consumers have made room."""
    node = BrokerProcess(tmp_path)
    node.start()
    base = WatchedBroker(node).rss()
    assert node.stop() == 0
    limit = base + 100 * MIB
    # Without paging, which would keep it from filling up.
    node = BrokerProcess(
        tmp_path,
        f"vm_memory_high_watermark.absolute={limit}",
        "vm_memory_high_watermark_paging_ratio=1000",
    )
    node.start()
    broker = WatchedBroker(node)
    publisher = connect(node)
    publisher.declare(b"q")
    publisher.peer.link.socket.settimeout(0.2)  # type: ignore[attr-defined]  # a link to a process is a socket's
    body = bytes(100_000)
    sent = 0
    try:
        while sent < 10_000:
            publisher.publish(b"q", body)
            sent += 1
    except TimeoutError:
        # The socket is full: part of a frame may have gone, this connection is of no more use for publishing.
        pass
    assert 900 < sent < 1600
    assert publisher.peer.expect(ConnectionBlocked).reason == b"low on memory"
    assert broker.rss() < limit + 50 * MIB
    consumer = connect(node)
    taken = len(consumer.drain(b"q"))
    assert taken > 800
    publisher.peer.expect(ConnectionUnblocked)
    deadline = time.monotonic() + 30
    while broker.rss() > limit - 50 * MIB:
        assert time.monotonic() < deadline, f"{broker.rss() / MIB:.0f} MiB are still resident"
        time.sleep(0.1)
    publisher.peer.drop()
    another = connect(node)
    another.publish(b"q", b"goes on")
    assert another.count(b"q") >= 1
    assert node.stop() == 0
