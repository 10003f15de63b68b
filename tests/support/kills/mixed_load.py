"""The workers of the long kill test, each of which records the broker's promises in a ledger.

The load has default and lazy queues, small and large messages, persistent and transient ones, to
one queue or several; acks one by one, in bulk and out of order; requeues and rejects; purges;
queues deleted and declared again; transactions; expiry; queues that are not durable. Each queue has
one publisher, so the numbers in it rise. The rules of `ledger.py` hold: what was answered must
stand; for everything else both outcomes are right.
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
# Messages that nearly fill a segment of 16384 entries.
NEAR_SEGMENT_END = 16_250

KEPT, EATEN = (
    (b"default-kept", b"lazy-kept"),
    (b"default-eaten", b"lazy-eaten", b"fan-eaten", b"bulk"),
)
FANNED = (b"fan-default", b"fan-lazy", b"fan-eaten")
PURGED, TX = (b"default-purged", b"lazy-purged"), (b"default-tx", b"lazy-tx")
CYCLED = (b"default-cycled", b"lazy-cycled")
# Queue whose messages expire by its argument, and queue of which some expire by themselves.
EXPIRING = (b"queue-ttl", b"message-ttl")
# Queues that must exist after every start, with the arguments of their declaration.
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
    """Earliest and latest time (monotonic seconds) at which a message expires."""

    earliest_s: float
    latest_s: float


class MixedLedger(Ledger):
    """A ledger that also has the lifetimes of messages, by number."""

    def __init__(self) -> None:
        super().__init__((*LASTING, *CYCLED))
        self.lifetimes: dict[int, Lifetime] = {}


def declare_lasting(channel: ChannelPeer) -> None:
    """Declare the durable queues, and the fanout exchange with its bindings."""
    for queue, arguments in LASTING.items():
        channel.declare(queue, durable=True, arguments=arguments)
    channel.exchange(FAN, b"fanout", durable=True)
    for queue in FANNED:
        channel.bind(queue, FAN)


def begin_near_a_segment_end(channel: ChannelPeer) -> None:
    """Nearly fill the first segment of the queues' indexes, so that it ends under the load."""
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
    """A worker with a mixed ledger."""

    def __init__(self, node: BrokerProcess, ledger: MixedLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.mixed = ledger

    def size(self) -> int:
        """Size (bytes) of a new message; some are larger than any file of the message store."""
        return LARGE if self.random.random() < 0.003 else self.random.choice(SIZES)

    def publish(self, confirms: Confirms, queue: bytes, size: int = -1) -> int:
        """Publish a persistent message to one durable queue; returns its number."""
        number = self.ledger.number()
        self.done += 1
        body = body_of(number, self.size() if size < 0 else size)
        confirms.publish(
            queue, body, PERSISTENT, b"", lambda: self.ledger.confirmed[queue].add(number)
        )
        return number

    def tick(self, confirms: Confirms, queue: bytes, acked: set[int]) -> None:
        """Publish a message whose confirm says that the acks sent before it are durable."""
        number = self.ledger.number()

        def on_confirmed() -> None:
            self.ledger.confirmed[TICKS].add(number)
            self.ledger.acked_for_good[queue] |= acked

        confirms.publish(TICKS, body_of(number, 5), PERSISTENT, b"", on_confirmed)

    def breathe(self, confirms: Confirms) -> None:
        """Take confirms; wait for them while many are outstanding."""
        while confirms.read(0.0001 if len(confirms.waiting) < 300 else 5):
            pass


class Feeder(MixedWorker):
    """Publishes bursts of all sizes to one of `queues`, or to all by the exchange."""

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
    """Publishes to default queues."""

    queues = (b"default-kept", b"default-eaten")


class LazyFeeder(Feeder):
    """Publishes to lazy queues."""

    queues = (b"lazy-kept", b"lazy-eaten")


class FanFeeder(Feeder):
    """Publishes to three queues at a time, whose large contents are stored once."""

    queues = FANNED
    is_fanned = True


class BulkFeeder(Feeder):
    """Publishes many small messages, so that segments of the index fill up and are deleted."""

    queues = (b"bulk",)
    sizes = (0, 10, 30)


class Taker(MixedWorker):
    """Consumes `queue` and settles in every way; leaves some messages unacked."""

    queue = b""
    # Settles of ten that requeue.
    requeues = 2

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        channel.qos(self.random.choice((20, 100, 1000)))
        channel.consume(self.queue, b"taker")
        held: dict[int, int] = {}
        # Numbers acked since the last tick.
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
        """Settle some unacked messages; returns the numbers of those acked or rejected for good."""
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
            # Ack all messages up to one of them at once.
            upto = self.random.choice(tags)
            chosen = [tag for tag in tags if tag <= upto]
            settled = {held.pop(tag) for tag in chosen}
            # Record the acks before they are sent: from then on they may take effect.
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
    """Consumes the default queue."""

    queue = b"default-eaten"


class LazyTaker(Taker):
    """Consumes the lazy queue."""

    queue = b"lazy-eaten"


class FanTaker(Taker):
    """Consumes one queue of the fanout, which releases references; other queues keep theirs."""

    queue = b"fan-eaten"


class BulkTaker(Taker):
    """Consumes the queue with many messages; requeues nothing."""

    queue = b"bulk"
    requeues = 0


class Purger(MixedWorker):
    """Publishes, and purges from time to time."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        published: dict[bytes, set[int]] = {queue: set() for queue in PURGED}
        while True:
            queue = self.random.choice(PURGED)
            for _ in range(self.random.randrange(1, 30)):
                published[queue].add(self.publish(confirms, queue))
            self.breathe(confirms)
            if self.random.random() < 0.2:
                # The purge also drops what the checks after the start have left in the queue.
                gone = published[queue] | self.ledger.confirmed[queue]
                self.ledger.acked[queue] |= gone
                channel.send(QueuePurge(queue))
                channel.expect(QueuePurgeOk)
                self.tick(confirms, queue, gone)
                published[queue] = set()


class Cycler(MixedWorker):
    """Declares a queue, publishes, deletes it, and repeats; a deleted message must never return."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        ledger = self.ledger
        published: dict[bytes, set[int]] = {name: set() for name in CYCLED}
        while True:
            name = self.random.choice(CYCLED)
            # Until the declaration is answered, the queue may exist or not.
            ledger.deleted.discard(name)
            channel.declare(name, durable=True, arguments=LAZY if b"lazy" in name else b"")
            ledger.declared.add(name)
            published[name] |= {
                self.publish(confirms, name) for _ in range(self.random.randrange(60))
            }
            self.breathe(confirms)
            if self.random.random() < 0.3:
                continue
            # The set includes messages that are not confirmed yet.
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
            # Until the commit, none of these messages may survive.
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
        """Get and ack some messages in the open transaction; returns their numbers.

        Messages of a rolled-back transaction stay unacked.
        """
        acked: set[int] = set()
        for _ in range(self.random.randrange(5)):
            item = channel.call(BasicGet(queue))
            if not isinstance(item, Message):
                break
            acked.add(number_of(item.body))
            channel.ack(item.got.delivery_tag)
        return acked


class Expirer(MixedWorker):
    """Publishes messages that expire by the queue's argument or by their own property."""

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
    """Publishes to queues that are not durable, whose pages a start deletes; gets some back."""

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
