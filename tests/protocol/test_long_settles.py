"""Settles of very many messages take several turns, in which others are served."""

from itertools import pairwise

import pytest

from tests.support.brokers.amqp_frames import method_frame
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from warrenmq.broker.channel.settling import LONG_MESSAGES, SLICE_MESSAGES
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicNack,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ConnectionClose,
    ConnectionCloseOk,
)

COUNT = LONG_MESSAGES + 2 * SLICE_MESSAGES
QUEUE = b"q"


class Situation:
    """A client has COUNT messages of a queue unacked; another one has the next, and one waits."""

    def __init__(self, amqp: Amqp) -> None:
        self.engine: MemoryBroker = amqp.engine()
        self.holder: Peer = amqp.connect()
        self.other: ChannelPeer = amqp.channel()
        self.channel: ChannelPeer = self.holder.channel()
        self.channel.declare(QUEUE)
        self.queue: Queue = self.engine.vhost.queues[QUEUE]
        self.channel.qos(COUNT)
        self.channel.consume(QUEUE, b"holder")
        # Quicker than frames, which the peers would have to make and to read.
        for number in range(COUNT + 2):
            message = Message(b"\0\1q", b"\0\0", b"%d" % number, False, 0)
            self.queue.publish(message, -1, self.engine.now_ms)
            if number % 1000 == 0:
                self.engine.pump()
        self.engine.pump()
        self.link_of(self.holder).arrived.clear()
        self.other.qos(1)
        self.other.consume(QUEUE, b"other")
        self.other_tag: int = self.other.message().deliver.delivery_tag
        assert (self.queue.unacked_count, self.queue.ready_count) == (COUNT + 1, 1)

    def link_of(self, peer: Peer) -> EngineLink:
        assert isinstance(peer.link, EngineLink)
        return peer.link

    def receive(self, peer: Peer, method: Method, number: int = 1) -> None:
        """Let the broker receive a method of `peer`, and nothing else happen."""
        connection = self.link_of(peer).connection
        assert connection is not None
        connection.receive(method_frame(number, method), self.engine.now_ms)

    def turns(self) -> list[int]:
        """Run turns to the end; returns how many messages were unacked after each."""
        unacked = [int(self.queue.unacked_count)]
        while self.queue.demand.awaits_older or len(self.engine.vhost.host.listed) > 0:
            self.engine.vhost.advance(self.engine.now_ms)
            unacked.append(int(self.queue.unacked_count))
        return unacked


@pytest.fixture
def situation(amqp: Amqp) -> Situation:
    return Situation(amqp)


def is_sliced(unacked: list[int]) -> bool:
    """Whether no turn settled more than a slice."""
    return max(before - after for before, after in pairwise(unacked)) <= SLICE_MESSAGES


@pytest.mark.parametrize(
    ("method", "number"),
    [
        (BasicNack(0, True, True), 1),
        (BasicNack(COUNT, True, True), 1),
        (BasicRecover(True), 1),
        (ChannelClose(200, b"", 0, 0), 1),
        (ConnectionClose(200, b"", 0, 0), 0),
    ],
    ids=["nack of all", "nack", "recover", "close of the channel", "close of the connection"],
)
def test_what_returns_is_delivered_when_all_of_it_is_back(
    situation: Situation, method: Method, number: int
) -> None:
    situation.receive(situation.holder, method, number)
    assert situation.queue.unacked_count == COUNT + 1 - SLICE_MESSAGES
    # The other client has room now, but what is ready may be younger than what is still to come.
    situation.receive(situation.other.peer, BasicAck(situation.other_tag, False))
    assert situation.queue.unacked_count == COUNT - SLICE_MESSAGES
    assert is_sliced(situation.turns())
    situation.engine.pump()
    found = situation.other.message()
    # The oldest one may go to the client that has returned it, if that is still there.
    assert found.body in (b"0", b"1")
    assert found.deliver.redelivered
    if isinstance(method, BasicRecover):
        situation.channel.expect(BasicRecoverOk)
    situation.queue.check()


@pytest.mark.parametrize(
    "method", [BasicAck(0, True), BasicNack(0, True, False)], ids=["ack", "reject"]
)
def test_what_leaves_makes_room_meanwhile(situation: Situation, method: Method) -> None:
    situation.receive(situation.holder, method)
    # The one message that waited has gone to the client itself.
    assert situation.queue.unacked_count == COUNT + 2 - SLICE_MESSAGES
    assert is_sliced(situation.turns())
    assert situation.queue.unacked_count == 2
    assert situation.channel.bodies(1) == [b"%d" % (COUNT + 1)]


def test_later_frames_wait_until_all_is_settled(situation: Situation) -> None:
    situation.receive(situation.holder, BasicAck(0, True))
    # All messages were named already.
    situation.receive(situation.holder, BasicAck(COUNT, False))
    situation.turns()
    situation.channel.await_close()


def test_a_connection_that_is_lost_meanwhile(situation: Situation) -> None:
    situation.receive(situation.holder, BasicNack(0, True, True))
    situation.holder.drop()
    situation.turns()
    assert (situation.queue.unacked_count, situation.queue.ready_count) == (1, COUNT + 1)
    situation.queue.check()
    situation.engine.pump()


def test_a_queue_that_is_deleted_meanwhile(situation: Situation) -> None:
    situation.receive(situation.holder, ConnectionClose(200, b"", 0, 0), 0)
    situation.engine.vhost.delete_queue(situation.queue, situation.engine.now_ms)
    situation.turns()
    assert situation.queue.unacked_count <= 1
    situation.engine.pump()
    situation.holder.expect(ConnectionCloseOk)
