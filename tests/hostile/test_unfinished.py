"""Clients leave messages or transactions unfinished: memory stays bounded, others are served."""

import contextlib
import threading
import time

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import BODY, SocketLink, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.watched_broker import MIB, WatchedBroker
from warrenmq.wire.methods import BasicPublish

pytestmark = pytest.mark.slow
# Memory limit of the node: about twice the memory of an idle node.
LIMIT = 150 * MIB
ANNOUNCED = 120 * MIB
BODY_100_KB = bytes(100_000)


@pytest.fixture
def node_settings() -> tuple[str, ...]:
    return (f"vm_memory_high_watermark.absolute={LIMIT}",)


class Confirmed(threading.Thread):
    """Publishes small messages with confirms, one after the other, until stopped."""

    def __init__(self, broker: WatchedBroker) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.count = 0
        self.peak = 0
        self._is_over = threading.Event()

    def run(self) -> None:
        peer = self.broker.connect()
        channel = peer.channel()
        queue = channel.declare(exclusive=True).queue
        channel.confirm_select()
        while not self._is_over.is_set():
            channel.publish(queue, b"well behaved")
            channel.event()
            self.count += 1
            self.peak = max(self.peak, self.broker.rss())
            time.sleep(0.002)
        peer.close()

    def await_more(self, count: int) -> None:
        upto = self.count + count
        eventually(lambda: self.count >= upto, "more confirms")

    def stop(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def send_bodies(broker: WatchedBroker, channels: int, upto: int) -> Peer:
    """Return a client with `channels` unfinished bodies, which has sent up to `upto` bytes of them.

    The client stops earlier when the broker stops reading or closes the connection.
    """
    peer = broker.connect()
    for number in range(1, channels + 1):
        peer.channel()
        peer.send(method_frame(number, BasicPublish(b"", b"q")), header_frame(number, ANNOUNCED))
    link = peer.link
    assert isinstance(link, SocketLink)
    pieces = b"".join(frame(BODY, number, bytes(130_000)) for number in range(1, channels + 1))
    sent = 0
    link.socket.settimeout(1.0)
    try:
        while sent < upto:
            link.socket.sendall(pieces)
            sent += len(pieces)
    except (TimeoutError, ConnectionError):
        pass
    return peer


def test_forty_unfinished_bodies_of_one_client(broker: WatchedBroker) -> None:
    client = Confirmed(broker)
    client.start()
    peer = send_bodies(broker, 40, 300 * MIB)
    client.await_more(20)
    assert client.peak < LIMIT + 64 * MIB, f"{client.peak / MIB:.0f} MiB"
    peer.drop()
    client.stop()


def test_unfinished_bodies_of_forty_clients(broker: WatchedBroker) -> None:
    client = Confirmed(broker)
    client.start()
    threads: list[threading.Thread] = []
    peers: list[Peer] = []
    for _ in range(40):
        threads.append(
            threading.Thread(
                target=lambda: peers.append(send_bodies(broker, 1, 6 * MIB)), daemon=True
            )
        )
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE_S)
    client.await_more(20)
    assert client.peak < LIMIT + 64 * MIB, f"{client.peak / MIB:.0f} MiB"
    for peer in peers:
        peer.drop()
    client.stop()


def test_a_transaction_larger_than_memory(broker: WatchedBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.node.uri))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.tx_select()
    with pytest.raises(ChannelClosedByBroker) as refused:
        for _ in range(1640):
            channel.basic_publish("", "q", BODY_100_KB)
        channel.tx_commit()
    assert refused.value.reply_code == 406
    connection.close()
    broker.check_service()


def test_transactions_that_are_too_large_together(broker: WatchedBroker) -> None:
    """Transactions within their own bound raise a memory alarm together, which the broker clears.

    Only the end of the transactions can clear the alarm.
    """
    client = Confirmed(broker)
    client.start()
    connections: list[pika.BlockingConnection] = []
    for _ in range(4):
        connection = pika.BlockingConnection(pika.URLParameters(broker.node.uri))
        connections.append(connection)
        channel = connection.channel()
        channel.tx_select()
        with contextlib.suppress(AMQPError):
            for _ in range(34 * MIB // len(BODY_100_KB)):
                channel.basic_publish("", "q", BODY_100_KB)
    eventually(
        lambda: "memory alarm cleared" in broker.node.log_path.read_text(), "the end of the alarm"
    )
    assert "low on memory" in broker.node.log_path.read_text()
    client.await_more(20)
    for connection in connections:
        with contextlib.suppress(AMQPError):
            connection.close()
    client.stop()
