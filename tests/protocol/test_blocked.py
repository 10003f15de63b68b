"""Alarms: which connections are blocked, their notices, what continues, and no loss.
Every test runs on the engine in memory and on a node with sockets. Both get their alarms from
limits that the test moves.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers.amqp_frames import BODY, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.fixtures import FOREIGN_URI
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from tests.support.brokers.node_thread import NodeThread
from tests.support.skips import does_not_apply, has_no_meaning
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.flow.alarm_state import KEPT_BYTES_MAX
from warrenmq.broker.flow.alarms import RELEASE_BYTES
from warrenmq.broker.flow.throttle import WINDOW_BYTES
from warrenmq.wire.methods import (
    BasicAck,
    BasicDeliver,
    BasicPublish,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)

pytestmark = has_no_meaning(bool(FOREIGN_URI), "raises alarms inside the broker")

CAPABILITIES: dict[str, object] = {"connection.blocked": True, "consumer_cancel_notify": True}
ENORMOUS = 1 << 59
SILENCE_S = 0.1


class Alarmed:
    """A broker whose memory and disk the test declares low."""

    def __init__(self, directory: Path, is_real: bool) -> None:
        self.memory: MemoryBroker | None = None
        self.node: NodeThread | None = None
        self.peers: list[Peer] = []
        if is_real:
            self.node = NodeThread(directory)
            self.broker: Broker = self.node.node.broker
        else:
            self.memory = MemoryBroker()
            self.broker = self.memory.broker
            self.broker.memory_used(1000, 0)
            self.broker.disk_free(1000, 0)
            self.low(memory=False, disk=False)

    def low(self, memory: bool | None = None, disk: bool | None = None) -> None:
        """Declare memory or disk low or not low; None leaves it unchanged."""
        self.call(lambda: self._low(memory, disk))

    def _low(self, memory: bool | None, disk: bool | None) -> None:
        now_ms = self.node.node.clock.now_ms() if self.node is not None else self.engine().now_ms
        if memory is not None:
            self.broker.set_vm_memory_high_watermark(0 if memory else ENORMOUS, 0, now_ms)
        if disk is not None:
            self.broker.set_disk_free_limit(ENORMOUS if disk else 0, 0, now_ms)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` in the broker and run the work that follows from it."""
        if self.node is not None:
            self.node.call(function)
        else:
            function()
            self.engine().pump()

    def engine(self) -> MemoryBroker:
        if self.memory is None:
            does_not_apply("looks into the engine: in memory only")
        return self.memory

    def connect(self, capabilities: dict[str, object] | None = None, heartbeat: int = 0) -> Peer:
        peer = Peer(self.memory.connect()) if self.memory is not None else self.real().peer()
        self.peers.append(peer)
        return peer.open(capabilities=capabilities or CAPABILITIES, heartbeat=heartbeat)

    def real(self) -> NodeThread:
        assert self.node is not None
        return self.node

    def connection(self, peer: Peer) -> Connection:
        """The broker's connection object of a peer."""
        self.engine()
        assert isinstance(peer.link, EngineLink)
        assert peer.link.connection is not None
        return peer.link.connection

    def close(self) -> None:
        for peer in self.peers:
            peer.drop()
        if self.node is not None:
            self.node.stop()


@pytest.fixture(params=["memory", "server"])
def alarmed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Alarmed]:
    alarmed = Alarmed(tmp_path, request.param == "server")
    yield alarmed
    alarmed.close()


def nothing_comes(peer: Peer) -> None:
    assert not peer.read(SILENCE_S)


def published(alarmed: Alarmed, queue: bytes, *bodies: bytes) -> None:
    """Publish messages from another connection, before any alarm."""
    channel = alarmed.connect().channel()
    channel.declare(queue)
    channel.publish_each(queue, *bodies)
    assert channel.count(queue) == len(bodies)


@pytest.mark.parametrize(
    ("memory", "disk", "reason"),
    [
        (True, False, b"low on memory"),
        (False, True, b"low on disk"),
        (True, True, b"low on memory & disk"),
    ],
)
def test_a_publisher_is_told_why_it_is_blocked_and_when_it_is_over(
    alarmed: Alarmed, memory: bool, disk: bool, reason: bytes
) -> None:
    observer = alarmed.connect().channel()
    observer.declare(b"q")
    peer = alarmed.connect()
    channel = peer.channel()
    alarmed.low(memory, disk)
    # The notice comes only after a publish.
    channel.declare(b"q")
    nothing_comes(peer)
    channel.publish_each(b"q", b"1", b"2")
    assert peer.expect(ConnectionBlocked).reason == reason
    channel.publish(b"q", b"3")
    nothing_comes(peer)
    assert observer.count(b"q") == 0
    alarmed.low(False, False)
    peer.expect(ConnectionUnblocked)
    channel.publish(b"q", b"4")
    assert channel.drain(b"q") == [b"1", b"2", b"3", b"4"]
    # A second alarm works like the first.
    alarmed.low(memory, disk)
    channel.publish(b"q", b"5")
    peer.expect(ConnectionBlocked)
    alarmed.low(False, False)
    peer.expect(ConnectionUnblocked)
    assert channel.drain(b"q") == [b"5"]


def test_a_client_that_cannot_make_sense_of_it_is_blocked_without_a_word(alarmed: Alarmed) -> None:
    peer = alarmed.connect({"consumer_cancel_notify": True})
    channel = peer.channel()
    channel.declare(b"q")
    alarmed.low(memory=True)
    channel.publish(b"q", b"1")
    nothing_comes(peer)
    assert alarmed.connect().channel().count(b"q") == 0
    alarmed.low(memory=False)
    assert channel.drain(b"q") == [b"1"]


def test_those_who_only_consume_go_on(alarmed: Alarmed) -> None:
    published(alarmed, b"q", b"1", b"2", b"3")
    alarmed.low(memory=True, disk=True)
    peer = alarmed.connect()
    channel = peer.channel()
    channel.qos(1)
    channel.consume(b"q")
    for body in (b"1", b"2"):
        message = channel.message()
        assert message.body == body
        channel.ack(message.deliver.delivery_tag)
    assert channel.message().body == b"3"
    assert channel.declare(b"other").message_count == 0
    nothing_comes(peer)


def test_an_alarm_that_is_on_at_the_opening_counts(alarmed: Alarmed) -> None:
    alarmed.low(disk=True)
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    channel.publish(b"q", b"1")
    assert peer.expect(ConnectionBlocked).reason == b"low on disk"
    alarmed.low(disk=False)
    peer.expect(ConnectionUnblocked)
    assert channel.get(b"q").body == b"1"


@pytest.mark.parametrize("first", ["memory", "disk"])
def test_of_two_alarms_the_last_to_clear_unblocks(alarmed: Alarmed, first: str) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    alarmed.low(**{first: True})
    channel.publish(b"q", b"1")
    assert peer.expect(ConnectionBlocked).reason == f"low on {first}".encode()
    alarmed.low(memory=True, disk=True)
    # The notice comes once.
    nothing_comes(peer)
    alarmed.low(**{first: False})
    nothing_comes(peer)
    assert alarmed.connect().channel().count(b"q") == 0
    alarmed.low(False, False)
    peer.expect(ConnectionUnblocked)
    assert channel.get(b"q").body == b"1"


@pytest.mark.parametrize("is_same_channel", [True, False])
@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_what_a_blocked_connection_settles_is_settled(
    alarmed: Alarmed, is_same_channel: bool, settle: str
) -> None:
    published(alarmed, b"q", b"1", b"2")
    peer = alarmed.connect()
    consumer = peer.channel()
    publisher = consumer if is_same_channel else peer.channel()
    consumer.qos(1)
    consumer.consume(b"q")
    tag = consumer.message().deliver.delivery_tag
    alarmed.low(memory=True)
    publisher.publish(b"q", b"3")
    peer.expect(ConnectionBlocked)
    if settle == "ack":
        consumer.ack(tag)
    elif settle == "nack":
        consumer.nack(tag, requeue=False)
    else:
        consumer.reject(tag, requeue=False)
    # The settled delivery makes room in the prefetch: the next one comes while the publish is still
    # kept.
    assert consumer.message().body == b"2"
    consumer.ack(tag + 1)
    observer = alarmed.connect().channel()
    assert observer.count(b"q") == 0
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    assert consumer.message().body == b"3"


def test_other_methods_wait_behind_the_publish_of_their_channel_only(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    other = peer.channel()
    channel.declare(b"q")
    alarmed.low(memory=True)
    channel.publish(b"q", b"1")
    peer.expect(ConnectionBlocked)
    channel.send(QueueDeclare(b"q", True))
    assert other.count(b"q") == 0
    nothing_comes(peer)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    assert channel.expect(QueueDeclareOk).message_count == 1


def test_settles_of_a_transaction_wait_for_their_turn(alarmed: Alarmed) -> None:
    published(alarmed, b"q", b"1", b"2")
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"to")
    channel.call(TxSelect())
    tags = [channel.get(b"q").got.delivery_tag for _ in range(2)]
    alarmed.low(memory=True)
    channel.publish(b"to", b"one")
    channel.ack(tags[0])
    channel.send(TxCommit())
    # These two belong to the second transaction, which never commits.
    channel.publish(b"to", b"two")
    channel.ack(tags[1])
    peer.expect(ConnectionBlocked)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    channel.expect(TxCommitOk)
    channel.peer.drop()
    observer = alarmed.connect().channel()
    deadline = time.monotonic() + 30
    while observer.count(b"q") == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert observer.drain(b"q") == [b"2"]
    assert observer.drain(b"to") == [b"one"]


@pytest.mark.parametrize("kept", [TxSelect(), BasicRecover(True), ChannelClose(200, b"", 0, 0)])
def test_settles_behind_what_gives_them_another_meaning_wait(
    alarmed: Alarmed, kept: TxSelect | BasicRecover | ChannelClose
) -> None:
    published(alarmed, b"q", b"1")
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"to")
    tag = channel.get(b"q").got.delivery_tag
    alarmed.low(memory=True)
    channel.publish(b"to", b"x")
    channel.send(kept)
    channel.ack(tag)
    peer.expect(ConnectionBlocked)
    nothing_comes(peer)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    observer = alarmed.connect().channel()
    if isinstance(kept, TxSelect):
        channel.expect(TxSelectOk)
        peer.drop()
    elif isinstance(kept, BasicRecover):
        channel.expect(BasicRecoverOk)
        channel.closed_with(406, f"unknown delivery tag {tag}", BasicAck(tag))
    else:
        channel.expect(ChannelCloseOk)
    deadline = time.monotonic() + 30
    while observer.count(b"q") == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert observer.drain(b"q") == [b"1"]
    assert observer.drain(b"to") == [b"x"]


def test_a_faulty_settle_is_found_out_in_its_turn(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    alarmed.low(memory=True)
    channel.publish(b"q", b"before the fault")
    channel.ack(77)
    peer.expect(ConnectionBlocked)
    nothing_comes(peer)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    channel.closed_with(406, "unknown delivery tag 77", BasicAck(77))
    assert alarmed.connect().channel().drain(b"q") == [b"before the fault"]


def test_confirms_wait_with_their_publishes(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    channel.confirm_select()
    channel.publish(b"q", b"1")
    channel.confirms(1)
    alarmed.low(memory=True)
    channel.publish_each(b"q", b"2", b"3")
    peer.expect(ConnectionBlocked)
    nothing_comes(peer)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    confirmed = 1
    while confirmed < 3:
        item = channel.event()
        assert isinstance(item, BasicAck)
        confirmed = item.delivery_tag
    assert channel.drain(b"q") == [b"1", b"2", b"3"]


def test_content_that_is_arriving_when_the_alarm_comes_is_taken(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    other = peer.channel()
    peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 4), frame(BODY, 1, b"ab"))
    other.quiet()
    alarmed.low(memory=True)
    peer.send(frame(BODY, 1, b"cd"))
    assert channel.get(b"q").body == b"abcd"
    nothing_comes(peer)


def test_a_connection_that_ends_while_blocked_leaves_nothing(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    alarmed.low(memory=True)
    channel.publish_each(b"q", b"1", b"2")
    peer.expect(ConnectionBlocked)
    peer.drop()
    deadline = time.monotonic() + 30
    while alarmed.broker.alarms.kept_bytes > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alarmed.broker.alarms.kept_bytes == 0
    alarmed.low(memory=False)
    observer = alarmed.connect().channel()
    assert observer.count(b"q") == 0


def test_a_close_waits_for_what_was_published_before(alarmed: Alarmed) -> None:
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    peer.channel()
    alarmed.low(memory=True)
    channel.publish(b"q", b"1")
    peer.expect(ConnectionBlocked)
    peer.method(0, ConnectionClose(200, b"bye", 0, 0))
    nothing_comes(peer)
    alarmed.low(memory=False)
    peer.expect(ConnectionUnblocked)
    peer.expect(ConnectionCloseOk)
    assert alarmed.connect().channel().drain(b"q") == [b"1"]


def flood(channel: ChannelPeer, queue: bytes, size: int) -> int:
    """Publish about `size` bytes; returns the number of messages."""
    body = bytes(10_000)
    count = size // len(body) + 1
    for _ in range(count):
        channel.publish(queue, body)
    return count


def test_a_full_window_stops_the_reading_and_not_the_heartbeats(alarmed: Alarmed) -> None:
    engine = alarmed.engine()
    peer = alarmed.connect(heartbeat=2)
    channel = peer.channel()
    channel.declare(b"q")
    connection = alarmed.connection(peer)
    alarmed.low(memory=True)
    count = flood(channel, b"q", WINDOW_BYTES // 2)
    other = peer.channel()

    def is_reading() -> bool:
        return connection.is_reading

    assert is_reading()
    # The window belongs to the connection, not to each channel.
    count += flood(other, b"q", WINDOW_BYTES // 2)
    assert not is_reading()
    peer.expect(ConnectionBlocked)
    for _ in range(10):
        engine.advance(2000)
        # Our heartbeats go out. Those of the client wait in the socket and are not missed.
        found = peer.next_frame()
        assert found is not None
        assert found.kind == 8
    alarmed.low(memory=False)
    assert is_reading()
    peer.expect(ConnectionUnblocked)
    assert channel.count(b"q") == count


def test_blocked_connections_together_keep_a_bounded_amount(alarmed: Alarmed) -> None:
    engine = alarmed.engine()
    peers = [alarmed.connect() for _ in range(KEPT_BYTES_MAX // WINDOW_BYTES + 10)]
    channels = [peer.channel() for peer in peers]
    channels[0].declare(b"q")
    alarmed.low(memory=True)
    # All frames refer to one body.
    packet = (
        method_frame(1, BasicPublish(b"", b"q"))
        + header_frame(1, 1 << 20)
        + frame(BODY, 1, bytes(130_000))
    )
    last = alarmed.connection(peers[-1])
    last_state = last.throttle.shown_state(engine.now_ms)
    assert last_state == "blocking"
    for peer in peers:
        for _ in range(9):
            if alarmed.connection(peer).is_reading:
                peer.send(packet)
    assert KEPT_BYTES_MAX < alarmed.broker.alarms.kept_bytes < KEPT_BYTES_MAX + 12 * WINDOW_BYTES
    assert not last.is_reading
    assert last.throttle.shown_state(engine.now_ms) == "blocked"
    for peer in peers:
        peer.drop()
    assert alarmed.broker.alarms.kept_bytes == 0


def test_connections_are_unblocked_one_after_another(alarmed: Alarmed) -> None:
    engine = alarmed.engine()
    peers = [alarmed.connect() for _ in range(6)]
    channels = [peer.channel() for peer in peers]
    channels[0].declare(b"q")
    alarmed.low(memory=True)
    counts = [flood(channel, b"q", RELEASE_BYTES * 3 // 4) for channel in channels]
    connections = [alarmed.connection(peer) for peer in peers]

    def blocked() -> list[bool]:
        return [connection.throttle.is_blocked for connection in connections]

    assert all(blocked())
    broker = alarmed.broker
    now_ms = engine.now_ms
    broker.set_vm_memory_high_watermark(ENORMOUS, 0, now_ms)
    broker.end_turn(now_ms)
    assert blocked() == [False] * 2 + [True] * 4
    # New publishers continue at once, while waiting ones keep their order.
    free = alarmed.connect()
    free_channel = free.channel()
    assert blocked() == [False] * 6
    assert free_channel.count(b"q") == sum(counts)


def test_an_alarm_that_comes_back_finds_the_rest_still_blocked(alarmed: Alarmed) -> None:
    engine = alarmed.engine()
    peers = [alarmed.connect() for _ in range(4)]
    channels = [peer.channel() for peer in peers]
    channels[0].declare(b"q")
    alarmed.low(memory=True)
    counts = [flood(channel, b"q", RELEASE_BYTES * 3 // 4) for channel in channels]
    broker = alarmed.broker
    now_ms = engine.now_ms
    broker.set_vm_memory_high_watermark(ENORMOUS, 0, now_ms)
    broker.end_turn(now_ms)
    broker.set_vm_memory_high_watermark(0, 0, now_ms)
    engine.pump()
    for peer in peers:
        peer.expect(ConnectionBlocked)
    for peer in peers[:2]:
        peer.expect(ConnectionUnblocked)
    for peer in peers:
        nothing_comes(peer)
    assert [alarmed.connection(peer).throttle.is_alarmed for peer in peers] == [True] * 4
    observer = alarmed.connect().channel()
    assert observer.count(b"q") == sum(counts[:2])
    # A connection that was unblocked is blocked again by its next publish.
    channels[0].publish(b"q", b"x")
    peers[0].expect(ConnectionBlocked)
    alarmed.low(memory=False)
    for peer in (peers[0], peers[2], peers[3]):
        peer.expect(ConnectionUnblocked)
    assert observer.count(b"q") == sum(counts) + 1


def test_the_states_of_a_connection(alarmed: Alarmed) -> None:
    engine = alarmed.engine()
    peer = alarmed.connect()
    channel = peer.channel()
    throttle = alarmed.connection(peer).throttle
    assert throttle.shown_state(engine.now_ms) == "running"
    alarmed.low(memory=True)
    assert throttle.shown_state(engine.now_ms) == "blocking"
    channel.publish(b"nowhere")
    assert throttle.shown_state(engine.now_ms) == "blocked"
    alarmed.low(memory=False)
    assert throttle.shown_state(engine.now_ms) == "running"


def test_a_client_that_hangs_up_unread_is_noticed(alarmed: Alarmed) -> None:
    if alarmed.node is None:
        does_not_apply("needs a socket")
    peer = alarmed.connect()
    channel = peer.channel()
    channel.declare(b"q")
    observer = alarmed.connect().channel()
    alarmed.low(memory=True)
    # Send little more than the broker reads: TCP does not deliver the end behind data that fit into
    # no buffer.
    for _ in range(WINDOW_BYTES // 10_000 + 3):
        channel.publish(b"q", bytes(10_000))
    peer.expect(ConnectionBlocked)
    node = alarmed.real()
    deadline = time.monotonic() + 30
    while alarmed.broker.alarms.kept_bytes <= WINDOW_BYTES:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert node.call(lambda: len(alarmed.broker.connections)) == 2
    peer.drop()
    while node.call(lambda: len(alarmed.broker.connections)) == 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert alarmed.broker.alarms.kept_bytes == 0
    alarmed.low(memory=False)
    assert observer.count(b"q") == 0


def test_deliveries_to_a_blocked_connection_go_on(alarmed: Alarmed) -> None:
    published(alarmed, b"q", *(b"%d" % number for number in range(50)))
    peer = alarmed.connect()
    channel = peer.channel()
    alarmed.low(memory=True)
    channel.publish(b"q", b"kept")
    peer.expect(ConnectionBlocked)
    consumer = peer.channel()
    consumer.qos(5)
    consumer.consume(b"q")
    for number in range(50):
        message = consumer.message()
        assert isinstance(message.method, BasicDeliver)
        assert message.body == b"%d" % number
        consumer.ack(message.method.delivery_tag)
    alarmed.low(memory=False)
    assert consumer.message().body == b"kept"
