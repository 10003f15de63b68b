"""A disk that is slow or hangs: confirms come in batches, consumers do not notice, memory stays bounded."""

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.support.amqp_frames import BODY, PERSISTENT, frame, header_frame, method_frame
from tests.support.amqp_peer import ChannelPeer
from tests.support.broker_process import BrokerProcess
from tests.support.failing_disk import FailingDisk
from tests.support.kill_ledger import connect
from tests.support.watched_broker import MIB, WatchedBroker, WellBehaved
from warren.broker.disk_flow import STOP_BYTES
from warren.wire.methods import BasicAck, BasicPublish

pytestmark = pytest.mark.kill


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
    disk.slow("fdatasync", 0.1)
    well_behaved = WellBehaved(WatchedBroker(node))
    well_behaved.start()
    started = time.monotonic()
    published(publisher, 2000)
    received_s = 0.0
    for number in range(2000):
        message = consumer.message()
        assert message.body == b"%d" % number
        consumer.ack(message.deliver.delivery_tag)
        received_s = time.monotonic() - started
    confirms = publisher.confirms(2000)
    took_s = time.monotonic() - started
    well_behaved.stop()
    # One after another they would take 200 s.
    assert took_s < 10
    assert len(confirms) < 100
    assert all(isinstance(confirm, BasicAck) for confirm in confirms)
    assert received_s < took_s + 0.1
    assert well_behaved.slowest < 0.5
    disk.heal()
    publisher.peer.close()
    assert node.stop() == 0


class Flood(threading.Thread):
    """A client that publishes persistent messages as fast as its socket takes them. `sent` bytes so far."""

    def __init__(self, node: BrokerProcess, size: int) -> None:
        super().__init__(daemon=True)
        peer = connect(node)
        peer.channel()
        link = peer.link
        self.socket: socket.socket = link.socket  # type: ignore[attr-defined]  # a link to a process is a socket's
        self.sent = 0
        self.packet = method_frame(1, BasicPublish(b"", b"q")) + header_frame(1, size, PERSISTENT)
        self.packet += frame(BODY, 1, bytes(size))

    def run(self) -> None:
        self.socket.settimeout(30)
        try:
            while True:
                self.sent += self.socket.send(self.packet)
        except OSError:
            return


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_disk_that_hangs_costs_bounded_memory(node: BrokerProcess, disk: FailingDisk, size: int) -> None:
    node.start()
    connect(node).channel().declare(b"q", durable=True)
    broker = WatchedBroker(node)
    well_behaved = WellBehaved(broker)
    well_behaved.start()
    disk.slow("fdatasync", 6)
    before = broker.rss()
    floods = [Flood(node, size) for _ in range(4)]
    for flood in floods:
        flood.start()
    deadline = time.monotonic() + 5
    peak = before
    while time.monotonic() < deadline:
        peak = max(peak, broker.rss())
        time.sleep(0.05)
    sent = sum(flood.sent for flood in floods)
    # It took what it has room for, and no more; the rest are the buffers of sockets.
    assert STOP_BYTES // 2 < sent < STOP_BYTES + 48 * MIB
    # Each message is an object with its own overhead; and there is the copy that is being written.
    assert peak - before < STOP_BYTES * 3, f"{(peak - before) / MIB:.0f} MiB"
    well_behaved.stop()
    assert well_behaved.slowest < 2
    # The disk comes back: everybody goes on.
    disk.heal()
    deadline = time.monotonic() + 20
    while sum(flood.sent for flood in floods) < 2 * sent:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for flood in floods:
        flood.socket.shutdown(socket.SHUT_RDWR)
    broker.check_service()
