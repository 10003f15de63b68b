"""Everything at once: the workers of the long kill test, each of which remembers in a ledger what it was promised.

Default and lazy queues, small and large messages, persistent and transient, one queue or several; acks one by one, many at
a time and out of order; requeues and rejects; purges; queues deleted and declared again; transactions; expiry; queues that
are not durable. Each queue has one publisher, so the numbers in it rise; the rules of `kill_ledger` hold: what was answered
must stand, for everything else both outcomes are right.
"""

import time
from dataclasses import dataclass
from typing import Final

from tests.support.brokers.amqp_frames import PERSISTENT, header_frame, method_frame, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import (
    FAN,
    LARGE,
    SIZES,
    TICKS,
    TRANSIENT,
    Confirms,
    Ledger,
    Worker,
    body_of,
    number_of,
)
from warrenmq.wire.methods import (
    BasicGet,
    BasicPublish,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

LAZY = table(x__queue__mode="lazy")
QUEUE_TTL_MS, MESSAGE_TTL_MS = 2000, 300
# Of 16384 positions.
NEAR_SEGMENT_END = 16_250

KEPT, EATEN = (
    (b"default-kept", b"lazy-kept"),
    (b"default-eaten", b"lazy-eaten", b"fan-eaten", b"bulk"),
)
FANNED = (b"fan-default", b"fan-lazy", b"fan-eaten")
PURGED, TX = (b"default-purged", b"lazy-purged"), (b"default-tx", b"lazy-tx")
CYCLED = (b"default-cycled", b"lazy-cycled")
# Messages of the first expire with the queue, some of the second by themselves.
EXPIRING = (b"queue-ttl", b"message-ttl")
# What must be there after every start, with the arguments it was declared with.
LASTING: Final[dict[bytes, bytes]] = {
    **{
        name: LAZY if b"lazy" in name else b""
        for name in dict.fromkeys((*KEPT, *EATEN, *FANNED, *PURGED, *TX, b"message-ttl", TICKS))
    },
    b"queue-ttl": table(x__message__ttl=QUEUE_TTL_MS),
}
VOLATILE: Final[dict[bytes, bytes]] = {b"volatile-default": b"", b"volatile-lazy": LAZY}


@dataclass
class Lifetime:
    """When a message expires: not before the first, and certainly by the second (monotonic seconds)."""

    earliest_s: float
    latest_s: float


class MixedLedger(Ledger):
    """Also when messages expire, by number."""

    def __init__(self) -> None:
        super().__init__((*LASTING, *CYCLED))
        self.lifetimes: dict[int, Lifetime] = {}


def declare_lasting(channel: ChannelPeer) -> None:
    """The queues of the load and the exchange of those that are fanned out to."""
    for queue, arguments in LASTING.items():
        channel.declare(queue, durable=True, arguments=arguments)
    channel.exchange(FAN, b"fanout", durable=True)
    for queue in FANNED:
        channel.bind(queue, FAN)


def begin_near_a_segment_end(channel: ChannelPeer) -> None:
    """Bring queues to where the first segment of their index is nearly full, so that it ends under the load."""
    for queue in (*EATEN, *KEPT):
        one = method_frame(channel.number, BasicPublish(b"", queue)) + header_frame(
            channel.number, 0, TRANSIENT
        )
        channel.peer.send(one * NEAR_SEGMENT_END)
        while channel.count(queue) < NEAR_SEGMENT_END:
            time.sleep(0.01)
        channel.send(QueuePurge(queue))
        channel.expect(QueuePurgeOk)


class MixedWorker(Worker):
    """Works for a mixed ledger."""

    def __init__(self, node: BrokerProcess, ledger: MixedLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.mixed = ledger

    def size(self) -> int:
        """Of a new message; some are larger than any file of the message store."""
        return LARGE if self.random.random() < 0.003 else self.random.choice(SIZES)

    def publish(self, confirms: Confirms, queue: bytes, size: int = -1) -> int:
        """A persistent message for one durable queue; returns its number."""
        number = self.ledger.number()
        self.done += 1
        body = body_of(number, self.size() if size < 0 else size)
        confirms.publish(
            queue, body, PERSISTENT, b"", lambda: self.ledger.confirmed[queue].add(number)
        )
        return number

    def tick(self, confirms: Confirms, queue: bytes, acked: set[int]) -> None:
        """Publish something whose confirm says that the acks sent before it are durable."""
        number = self.ledger.number()

        def on_confirmed() -> None:
            self.ledger.confirmed[TICKS].add(number)
            self.ledger.acked_for_good[queue] |= acked

        confirms.publish(TICKS, body_of(number, 5), PERSISTENT, b"", on_confirmed)

    def breathe(self, confirms: Confirms) -> None:
        """Take confirms; wait for them when many are owed."""
        while confirms.read(0.0001 if len(confirms.waiting) < 300 else 5):
            pass


class Feeder(MixedWorker):
    """Bursts of all sizes into `queues`, one or all of them (then through the exchange)."""

    queues: tuple[bytes, ...] = ()
    is_fanned = False
    sizes: tuple[int, ...] = ()

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        while True:
            for _ in range(self.random.randrange(1, 40)):
                self._publish_one(confirms)
            self.breathe(confirms)

    def _publish_one(self, confirms: Confirms) -> None:
        self.done += 1
        queues = self.queues if self.is_fanned else (self.random.choice(self.queues),)
        size = self.random.choice(self.sizes) if self.sizes else self.size()
        self.publish_next(confirms, queues, size, self.is_fanned)


class DefaultFeeder(Feeder):
    """Default queues."""

    queues = (b"default-kept", b"default-eaten")


class LazyFeeder(Feeder):
    """Lazy queues."""

    queues = (b"lazy-kept", b"lazy-eaten")


class FanFeeder(Feeder):
    """Three queues at a time, whose large contents are stored once."""

    queues = FANNED
    is_fanned = True


class BulkFeeder(Feeder):
    """Many small messages, so that segments of the index fill up and go."""

    queues = (b"bulk",)
    sizes = (0, 10, 30)


class Taker(MixedWorker):
    """Consumes `queue` and settles in every way; keeps some."""

    queue = b""
    # How many of ten are given back.
    requeues = 2

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        channel.qos(self.random.choice((20, 100, 1000)))
        channel.consume(self.queue, b"taker")
        held: dict[int, int] = {}
        # Acked since the last tick.
        acked: set[int] = set()
        latest = 0
        while True:
            confirms.read(0.02)
            messages = [item for item in channel.events if isinstance(item, Message)]
            for message in messages:
                channel.events.remove(message)
                number = number_of(message.body)
                if not message.deliver.redelivered:
                    assert number > latest, f"{self.queue!r}: {number} after {latest}"
                    latest = number
                held[message.deliver.delivery_tag] = number
            if len(held) > 5:
                acked |= self._settle(channel, held)
            if acked and self.random.random() < 0.5:
                self.tick(confirms, self.queue, acked)
                acked = set()

    def _settle(self, channel: ChannelPeer, held: dict[int, int]) -> set[int]:
        """Some of what is held; returns what was acked or thrown away."""
        tags = sorted(held)
        how = self.random.randrange(10)
        settled: set[int] = set()
        if how < self.requeues:
            chosen = self.random.sample(tags, 2)
            for tag in chosen:
                if how == 0:
                    channel.nack(tag)
                else:
                    channel.reject(tag)
                del held[tag]
            return settled
        if how < 6:
            # All up to one of them, at once.
            upto = self.random.choice(tags)
            chosen = [tag for tag in tags if tag <= upto]
            settled = {held.pop(tag) for tag in chosen}
            # Before it is sent: from then on it may have been done.
            self.ledger.acked[self.queue] |= settled
            channel.ack(upto, True)
        else:
            chosen = self.random.sample(tags, max(1, len(tags) * 2 // 3))
            settled = {held.pop(tag) for tag in chosen}
            self.ledger.acked[self.queue] |= settled
            for tag in chosen:
                if self.random.random() < 0.1:
                    channel.reject(tag, False)
                else:
                    channel.ack(tag)
        self.done += len(settled)
        return settled


class DefaultTaker(Taker):
    """Of the default queue."""

    queue = b"default-eaten"


class LazyTaker(Taker):
    """Of the lazy queue."""

    queue = b"lazy-eaten"


class FanTaker(Taker):
    """Of one of those fanned out to: it gives up its references, the others keep theirs."""

    queue = b"fan-eaten"


class BulkTaker(Taker):
    """Of the queue with many messages; nothing goes back."""

    queue = b"bulk"
    requeues = 0


class Purger(MixedWorker):
    """Publishes, and throws everything away now and then."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        published: dict[bytes, set[int]] = {queue: set() for queue in PURGED}
        while True:
            queue = self.random.choice(PURGED)
            for _ in range(self.random.randrange(1, 30)):
                published[queue].add(self.publish(confirms, queue))
            self.breathe(confirms)
            if self.random.random() < 0.2:
                # What the checks after the start have left there goes too.
                gone = published[queue] | self.ledger.confirmed[queue]
                self.ledger.acked[queue] |= gone
                channel.send(QueuePurge(queue))
                channel.expect(QueuePurgeOk)
                self.tick(confirms, queue, gone)
                published[queue] = set()


class Cycler(MixedWorker):
    """Declares a queue, publishes to it, deletes it, and so on: nothing of a queue's former life may come back."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        ledger = self.ledger
        published: dict[bytes, set[int]] = {name: set() for name in CYCLED}
        while True:
            name = self.random.choice(CYCLED)
            # Until it is answered, both is right.
            ledger.deleted.discard(name)
            channel.declare(name, durable=True, arguments=LAZY if b"lazy" in name else b"")
            ledger.declared.add(name)
            published[name] |= {
                self.publish(confirms, name) for _ in range(self.random.randrange(60))
            }
            self.breathe(confirms)
            if self.random.random() < 0.3:
                continue
            # Not all of them are confirmed yet.
            gone = published[name] | ledger.confirmed[name]
            published[name] = set()
            ledger.acked[name] |= gone
            ledger.declared.discard(name)
            channel.delete(name)
            ledger.deleted.add(name)
            ledger.acked_for_good[name] |= gone
            time.sleep(0.01)


class Transactor(MixedWorker):
    """Publishes and acks in transactions, some of which are rolled back."""

    def work(self, channel: ChannelPeer) -> None:
        ledger = self.ledger
        channel.send(TxSelect())
        channel.expect(TxSelectOk)
        while True:
            queue = self.random.choice(TX)
            numbers = {ledger.number() for _ in range(self.random.randrange(1, 12))}
            # Not committed, so none of them may survive.
            ledger.transient |= numbers
            for number in sorted(numbers):
                channel.publish(queue, body_of(number, self.size()), PERSISTENT)
            acked = self._ack_some(channel, queue)
            if self.random.random() < 0.25:
                channel.send(TxRollback())
                channel.expect(TxRollbackOk)
                continue
            ledger.transient -= numbers
            ledger.acked[queue] |= acked
            channel.send(TxCommit())
            channel.expect(TxCommitOk)
            ledger.confirmed[queue] |= numbers
            self.done += len(numbers)

    def _ack_some(self, channel: ChannelPeer, queue: bytes) -> set[int]:
        """In the transaction that is open; returns their numbers. What is rolled back stays unacked."""
        acked: set[int] = set()
        for _ in range(self.random.randrange(5)):
            item = channel.call(BasicGet(queue))
            if not isinstance(item, Message):
                break
            acked.add(number_of(item.body))
            channel.ack(item.got.delivery_tag)
        return acked


class Expirer(MixedWorker):
    """Publishes what expires: by the queue's argument, and by the message's property, short or too long to matter."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        while True:
            for _ in range(self.random.randrange(1, 10)):
                self._publish_one(confirms)
            self.breathe(confirms)
            time.sleep(0.01)

    def _publish_one(self, confirms: Confirms) -> None:
        number = self.ledger.number()
        self.done += 1
        queue = self.random.choice(EXPIRING)
        properties = PERSISTENT
        ttl_ms = QUEUE_TTL_MS
        if queue == b"message-ttl":
            ttl_ms = MESSAGE_TTL_MS if self.random.random() < 0.5 else 3_600_000
            properties = Properties(delivery_mode=2, expiration=b"%d" % ttl_ms).encode()
        lifetime = Lifetime(time.monotonic() + ttl_ms / 1000, float("inf"))
        self.mixed.lifetimes[number] = lifetime

        def on_confirmed() -> None:
            lifetime.latest_s = time.monotonic() + ttl_ms / 1000
            self.ledger.confirmed[queue].add(number)

        confirms.publish(queue, body_of(number, self.size()), properties, b"", on_confirmed)


class Volatile(MixedWorker):
    """Queues that are not durable, whose pages lie where everything goes at a start; reads back what it can."""

    def work(self, channel: ChannelPeer) -> None:
        for queue, arguments in VOLATILE.items():
            channel.declare(queue, arguments=arguments)
        while True:
            queue = self.random.choice(list(VOLATILE))
            for _ in range(self.random.randrange(1, 40)):
                number = self.ledger.number()
                is_persistent = self.random.random() < 0.5
                channel.publish(
                    queue, body_of(number, self.size()), PERSISTENT if is_persistent else TRANSIENT
                )
                self.done += 1
            count = channel.count(queue)
            if count > 100:
                numbers = [
                    number_of(channel.get(queue, True).body)
                    for _ in range(self.random.randrange(100))
                ]
                assert numbers == sorted(set(numbers)), f"{queue!r}: out of order or doubled"


MIXED_WORKERS: Final = (
    DefaultFeeder,
    LazyFeeder,
    FanFeeder,
    BulkFeeder,
    DefaultTaker,
    LazyTaker,
    FanTaker,
    BulkTaker,
    Purger,
    Cycler,
    Transactor,
    Expirer,
    Volatile,
)
