"""With a slow or hanging disk, confirms come in batches, consumers go on, memory is bounded."""

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.support.brokers.amqp_frames import BODY, PERSISTENT, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import MIB, WatchedBroker, WellBehaved
from tests.support.kills.ledger import connect
from tests.support.stores.failing_disk import FailingDisk
from warrenmq.broker.flow.disk_flow import STOP_BYTES
from warrenmq.wire.methods import BasicAck, BasicPublish

pytestmark = pytest.mark.kill

PATIENCE_S = 100.0
# Seconds without any bytes sent after which the node counts as having stopped reading.
STANDSTILL_S = 2.0


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(tmp_path, monkeypatch)


def published(channel: ChannelPeer, count: int) -> None:
    for number in range(count):
        channel.publish(b"q", b"%d" % number, PERSISTENT)


def test_a_slow_disk_confirms_in_batches_and_consumers_do_not_notice(
    node: BrokerProcess, disk: FailingDisk
) -> None:
    node.start()
    publisher = connect(node).channel()
    publisher.declare(b"q", durable=True)
    publisher.confirm_select()
    consumer = connect(node).channel()
    consumer.qos(1000)
    consumer.consume(b"q")
    # The disk confirms nothing before the consumer has every message.
    disk.hang("fdatasync")
    well_behaved = WellBehaved(WatchedBroker(node))
    well_behaved.start()
    published(publisher, 2000)
    for number in range(2000):
        message = consumer.message()
        assert message.body == b"%d" % number
        consumer.ack(message.deliver.delivery_tag)
    well_behaved.await_rounds(20)
    publisher.quiet()
    disk.heal()
    confirms = publisher.confirms(2000)
    well_behaved.stop()
    assert len(confirms) <= 3
    assert all(isinstance(confirm, BasicAck) for confirm in confirms)
    publisher.peer.close()
    assert node.stop() == 0


class Flood(threading.Thread):
    """A client that publishes persistent messages as fast as its socket takes them.
    `sent` is the number of bytes sent so far.
    """

    def __init__(self, node: BrokerProcess, size: int) -> None:
        super().__init__(daemon=True)
        peer = connect(node)
        peer.channel()
        link = peer.link
        self.socket: socket.socket = link.socket  # type: ignore[attr-defined]  # has a socket
        # A small send buffer: `sent` is then not much more than what the node has read.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 262_144)
        self.sent = 0
        self.packet = method_frame(1, BasicPublish(b"", b"q")) + header_frame(1, size, PERSISTENT)
        self.packet += frame(BODY, 1, bytes(size))

    def run(self) -> None:
        # No disk in these tests hangs longer.
        self.socket.settimeout(120)
        try:
            while True:
                self.sent += self.socket.send(self.packet)
        except OSError:
            return


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_disk_that_hangs_costs_bounded_memory(
    node: BrokerProcess, disk: FailingDisk, size: int
) -> None:
    node.start()
    connect(node).channel().declare(b"q", durable=True)
    broker = WatchedBroker(node)
    well_behaved = WellBehaved(broker)
    well_behaved.start()
    disk.hang("fdatasync")
    before = broker.rss()
    floods = [Flood(node, size) for _ in range(4)]
    for flood in floods:
        flood.start()

    def sent_bytes() -> int:
        return sum(flood.sent for flood in floods)

    # Wait until the node reads no more.
    deadline = time.monotonic() + PATIENCE_S
    peak, sent, since = before, 0, time.monotonic()
    while sent <= STOP_BYTES // 2 or time.monotonic() < since + STANDSTILL_S:
        assert time.monotonic() < deadline, f"{sent / MIB:.0f} MiB were sent"
        # The total is bounded: the node is not merely slow.
        assert sent < STOP_BYTES + 48 * MIB
        peak = max(peak, broker.rss())
        time.sleep(0.05)
        if sent_bytes() > sent:
            sent, since = sent_bytes(), time.monotonic()
    # The node took only what it has room for; the rest is in the buffers of sockets.
    assert STOP_BYTES // 2 < sent < STOP_BYTES + 48 * MIB
    # Each message is an object with its own overhead, and a copy is being written.
    assert peak - before < STOP_BYTES * 3, f"{(peak - before) / MIB:.0f} MiB"
    well_behaved.await_rounds(20)
    well_behaved.stop()
    # The disk is healed, and every client continues.
    disk.heal()
    deadline = time.monotonic() + PATIENCE_S
    while sent_bytes() < 2 * sent:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for flood in floods:
        flood.socket.shutdown(socket.SHUT_RDWR)
    broker.check_service()
