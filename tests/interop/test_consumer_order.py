"""Which consumer of a queue gets which message: both brokers choose the same one.

Consumers with priorities, prefetch and without acks come and go by chance; messages are published,
acked and returned one step at a time. An exclusive consumer is alone in both brokers.
"""

import random
from dataclasses import dataclass, field

import pytest

from bench.brokers import RabbitmqBroker
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer, Message, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.other_brokers import running
from warrenmq.wire.methods import BasicConsume, ChannelCloseOk, QueueDeclare, QueueDeclareOk

QUEUE = b"consumer-order"
SEQUENCES = 20
STEPS = 40

Event = tuple[bytes, bytes, bool]


@dataclass
class Side:
    """One broker, the channel with the consumers, and the deliveries that it has not settled."""

    peer: Peer
    channel: ChannelPeer = field(init=False)
    unacked: list[int] = field(default_factory=list)
    without_acks: set[bytes] = field(default_factory=set)

    def begin(self) -> None:
        self.channel = self.peer.channel()
        self.channel.declare(QUEUE)
        self.unacked.clear()
        self.without_acks.clear()

    def end(self) -> None:
        self.channel.quiet()
        self.channel.delete(QUEUE)
        # The cancel notices came before the reply.
        self.channel.events.clear()
        self.channel.close()

    def arrived(self) -> list[Event]:
        """The deliveries that have arrived, in their order."""
        found = []
        while self.channel.events:
            message = self.channel.events.popleft()
            assert isinstance(message, Message)
            found.append(self._delivered(message))
        return found

    def next_events(self, count: int) -> list[Event]:
        """Wait for `count` deliveries."""
        return [self._delivered(self.channel.message()) for _ in range(count)]

    def _delivered(self, message: Message) -> Event:
        deliver = message.deliver
        if deliver.consumer_tag not in self.without_acks:
            self.unacked.append(deliver.delivery_tag)
        return deliver.consumer_tag, message.body, deliver.redelivered

    def consume(self, tag: bytes, prefetch: int, no_ack: bool, priority: int) -> None:
        self.channel.qos(prefetch)
        if no_ack:
            self.without_acks.add(tag)
        self.channel.consume(QUEUE, tag, no_ack, arguments=table(x__priority=priority))

    def settle(self, place: int, is_requeue: bool) -> None:
        tag = self.unacked.pop(place)
        if is_requeue:
            self.channel.nack(tag)
        else:
            self.channel.ack(tag)

    def ready_count(self) -> int:
        reply = self.channel.call(QueueDeclare(QUEUE, True))
        assert isinstance(reply, QueueDeclareOk)
        return reply.message_count

    def await_ready(self, count: int) -> None:
        eventually(lambda: self.ready_count() == count, f"{count} ready messages")

    def try_to_consume(self, exclusive: bool) -> str:
        """Consume on another channel; the answer as text."""
        channel = self.peer.channel()
        try:
            channel.call(BasicConsume(QUEUE, b"other", exclusive=exclusive))
        except ChannelClosedError as refusal:
            channel.replies.clear()
            channel.send(ChannelCloseOk())
            del self.peer.channels[channel.number]
            return str(refusal)
        channel.close()
        return "ok"


def run(ours: Side, theirs: Side, rng: random.Random) -> int:
    """Take the same steps on both sides; returns the number of deliveries."""
    tags: list[bytes] = []
    deliveries = published = 0
    for number in range(STEPS):
        kind = rng.choice(["consume", "publish", "publish", "settle", "settle", "cancel", "try"])
        if kind == "consume" and len(tags) < 5:
            tags.append(b"c%d" % number)
            options = (rng.choice([1, 1, 2, 3]), rng.random() < 0.1, rng.choice([-1, 0, 0, 1, 1]))
            for side in (ours, theirs):
                side.consume(tags[-1], *options)
        elif kind == "publish":
            for _ in range(rng.randrange(1, 4)):
                published += 1
                for side in (ours, theirs):
                    side.channel.publish(QUEUE, b"%d" % published)
        elif kind == "settle" and ours.unacked:
            place, is_requeue = rng.randrange(len(ours.unacked)), rng.random() < 0.3
            for side in (ours, theirs):
                side.settle(place, is_requeue)
        elif kind == "cancel" and tags and rng.random() < 0.5:
            tag = tags.pop(rng.randrange(len(tags)))
            for side in (ours, theirs):
                side.channel.cancel(tag)
        elif kind == "try" and tags:
            assert ours.try_to_consume(True) == theirs.try_to_consume(True) != "ok"
        while ours.peer.read(0):
            pass
        expected = ours.arrived()
        assert theirs.next_events(len(expected)) == expected, f"step {number}, {kind}"
        deliveries += len(expected)
        if kind == "settle":
            # RabbitMQ's queues handle a later ack before a requeue that they have not handled yet.
            theirs.await_ready(ours.ready_count())
    return deliveries


@pytest.fixture
def sides(rabbitmq: RabbitmqBroker) -> tuple[Side, Side]:
    running(rabbitmq)
    ours = Peer(MemoryBroker().connect()).open()
    theirs = Peer(SocketLink("127.0.0.1", rabbitmq.port), True).open()
    return Side(ours), Side(theirs)


def test_both_brokers_choose_the_same_consumer(sides: tuple[Side, Side]) -> None:
    rng = random.Random(16)
    deliveries = 0
    for _ in range(SEQUENCES):
        for side in sides:
            side.begin()
        deliveries += run(*sides, rng)
        for side in sides:
            side.end()
    assert deliveries > 10 * SEQUENCES


def test_an_exclusive_consumer_is_alone_in_both(sides: tuple[Side, Side]) -> None:
    answers = []
    for side in sides:
        side.begin()
        side.channel.consume(QUEUE, b"alone", exclusive=True)
        found = [side.try_to_consume(exclusive) for exclusive in (False, True)]
        side.channel.cancel(b"alone")
        found.append(side.try_to_consume(True))
        answers.append(found)
        side.end()
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1] != "ok"
    assert answers[0][2] == "ok"
