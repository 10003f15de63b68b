"""Clients that record every promise of a broker that is being killed.

Publishers, consumers and declarers work in threads of their own until their sockets end. After the
restart, a confirmed publish must be there; an ack sent before a publish that was confirmed must
have taken effect; an answered declaration must stand. For everything else both outcomes are right.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.support.awaiting import PATIENCE_S
from tests.support.brokers.amqp_frames import PERSISTENT, SocketLink
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warrenmq.wire.properties import Properties

FAN = b"fan"
FAN_QUEUES = (b"fan-1", b"fan-2")
DIRECT = b"direct"
EATEN = b"eaten"
TICKS = b"ticks"
DURABLE_QUEUES = (*FAN_QUEUES, DIRECT, EATEN, TICKS)
VOLATILE = b"volatile"
# Body sizes (bytes) below and above the limit for embedded contents, some of the size of the loop's
# buffers, and large ones.
SIZES = (0, 1, 30, 200, 200, 1000, 1000, 4000, 4095, 4096, 4097, 20_000, 70_000)
LARGE = 1 << 20
WINDOW = 300
WORK_TIMEOUT_S = 60.0
TRANSIENT = Properties(delivery_mode=1).encode()


def body_of(number: int, size: int) -> bytes:
    """A body with its number and size; the same number and size give the same bytes."""
    return b"%d:%d:" % (number, size) + random.Random(number).randbytes(size)


def number_of(body: bytes) -> int:
    """The number of a body; every byte of the body is checked."""
    number, size, _ = body.split(b":", 2)
    assert body == body_of(int(number), int(size)), f"message {int(number)} is damaged"
    return int(number)


def connect(node: BrokerProcess) -> Peer:
    """An open connection to the node."""
    return Peer(SocketLink(node.host, node.port)).open()


class Ledger:
    """Every promise so far, by queue and message number."""

    def __init__(self, queues: tuple[bytes, ...] = DURABLE_QUEUES) -> None:
        self.next_number = 1
        self.lock = threading.Lock()
        self.confirmed: dict[bytes, set[int]] = {queue: set() for queue in queues}
        self.transient: set[int] = set()
        # Messages whose ack was sent, by queue.
        self.acked: dict[bytes, set[int]] = {queue: set() for queue in queues}
        # Messages whose ack is durable, by queue.
        self.acked_for_good: dict[bytes, set[int]] = {queue: set() for queue in queues}
        # Queues whose declaration was answered and whose deletion was not requested.
        self.declared: set[bytes] = set()
        # Queues whose binding was answered.
        self.bound: set[bytes] = set()
        # Queues whose deletion was answered.
        self.deleted: set[bytes] = set()

    def number(self) -> int:
        """Return a new message number."""
        with self.lock:
            self.next_number += 1
            return self.next_number - 1


class Worker(threading.Thread):
    """Runs `work`, which subclasses define, until the broker is gone.

    `failure` is any other error that ended it.
    """

    def __init__(self, node: BrokerProcess, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self.node = node
        self.ledger = ledger
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        try:
            peer = connect(self.node)
            self.work(peer.channel())
        except (EOFError, OSError):
            return
        except (Exception, AmqpError) as error:  # the test shows any error at its end
            self.failure = error

    def work(self, channel: ChannelPeer) -> None:
        """Run the load of one client until its socket ends."""
        raise NotImplementedError

    def publish_next(
        self, confirms: "Confirms", queues: tuple[bytes, ...], size: int, is_fanned: bool
    ) -> None:
        """Publish the ledger's next message to one queue, or by the exchange to all of `queues`.

        A share of the messages is transient.
        """
        ledger = self.ledger
        number = ledger.number()
        is_transient = self.random.random() < 0.15

        def on_confirmed() -> None:
            if not is_transient:
                for queue in queues:
                    ledger.confirmed[queue].add(number)

        if is_transient:
            ledger.transient.add(number)
        confirms.publish(
            b"" if is_fanned else queues[0],
            body_of(number, size),
            TRANSIENT if is_transient else PERSISTENT,
            FAN if is_fanned else b"",
            on_confirmed,
        )


class Confirms:
    """Publishes of a channel without confirm; `on_confirmed` runs for each, in order."""

    def __init__(self, channel: ChannelPeer) -> None:
        self.channel = channel
        self.next_tag = 1
        self.waiting: dict[int, Callable[[], None]] = {}
        channel.send(ConfirmSelect())
        channel.expect(ConfirmSelectOk)

    def publish(
        self,
        key: bytes,
        body: bytes,
        properties: bytes,
        exchange: bytes,
        on_confirmed: Callable[[], None],
    ) -> None:
        self.waiting[self.next_tag] = on_confirmed
        self.next_tag += 1
        self.channel.publish(key, body, properties, exchange)

    def read(self, timeout_s: float) -> bool:
        """Read one frame and handle all confirms so far; False when no frame comes in time."""
        if not self.channel.peer.read(timeout_s):
            return False
        events = [item for item in self.channel.events if isinstance(item, BasicAck)]
        for item in events:
            self.channel.events.remove(item)
            tags = (
                [tag for tag in self.waiting if tag <= item.delivery_tag]
                if item.multiple
                else [item.delivery_tag]
            )
            for tag in tags:
                self.waiting.pop(int(tag))()
        return True

    def drain(self) -> None:
        """Wait until everything is confirmed."""
        while self.waiting:
            assert self.read(PATIENCE_S), "no confirm"


class BurstWorker(Worker):
    """Publishes bursts by `publish_one`, which subclasses define; limits outstanding confirms."""

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        while True:
            for _ in range(self.random.randrange(1, 40)):
                self.publish_one(confirms)
                self.done += 1
            while confirms.read(0.0001 if len(confirms.waiting) < WINDOW else 5):
                pass

    def publish_one(self, confirms: Confirms) -> None:
        """Publish one message of a burst."""
        raise NotImplementedError


class Publisher(BurstWorker):
    """Publishes bursts of all sizes to one queue or by a fanout exchange, some transient."""

    def publish_one(self, confirms: Confirms) -> None:
        size = LARGE if self.random.random() < 0.004 else self.random.choice(SIZES)
        is_fanned = self.random.random() < 0.4
        queues = FAN_QUEUES if is_fanned else (self.random.choice((DIRECT, EATEN)),)
        self.publish_next(confirms, queues, size, is_fanned)


class Eater(Worker):
    """Consumes and acks; the confirms of its own publishes show that earlier acks are durable."""

    def work(self, channel: ChannelPeer) -> None:
        ledger = self.ledger
        confirms = Confirms(channel)
        channel.send(BasicQos(0, 50))
        channel.expect(BasicQosOk)
        channel.send(BasicConsume(EATEN, b"eater"))
        channel.expect(BasicConsumeOk)
        while True:
            confirms.read(0.02)
            messages = [item for item in channel.events if isinstance(item, Message)]
            for message in messages:
                channel.events.remove(message)
                # Leave some messages unacked.
                if self.random.random() < 0.9:
                    channel.send(BasicAck(message.deliver.delivery_tag))
                    ledger.acked[EATEN].add(number_of(message.body))
                    self.done += 1
            if messages and self.random.random() < 0.5:
                self._tick(confirms, ledger.acked[EATEN].copy())

    def _tick(self, confirms: Confirms, acked: set[int]) -> None:
        number = self.ledger.number()

        def on_confirmed() -> None:
            self.ledger.confirmed[TICKS].add(number)
            self.ledger.acked_for_good[EATEN] |= acked

        confirms.publish(TICKS, body_of(number, 5), PERSISTENT, b"", on_confirmed)


class Declarer(Worker):
    """Declares and binds durable queues, and deletes some."""

    def work(self, channel: ChannelPeer) -> None:
        ledger = self.ledger
        while True:
            name = b"declared-%d" % ledger.number()
            channel.declare(name, durable=True)
            ledger.declared.add(name)
            channel.bind(name, FAN + b"-declared", name)
            ledger.bound.add(name)
            self.done += 1
            if self.random.random() < 0.5:
                victim = self.random.choice(sorted(ledger.declared))
                # Until the deletion is answered, the queue may exist or not.
                ledger.declared.discard(victim)
                channel.send(QueueDelete(victim))
                channel.expect(QueueDeleteOk)
                ledger.deleted.add(victim)
            time.sleep(0.005)


def let_work(workers: Sequence[Worker], seconds: float, least: int) -> None:
    """Let workers run for `seconds`, then until each has done `least` pieces of work."""
    time.sleep(seconds)
    deadline = time.monotonic() + WORK_TIMEOUT_S
    while any(worker.done < least and worker.is_alive() for worker in workers):
        assert time.monotonic() < deadline, {
            type(worker).__name__: worker.done for worker in workers
        }
        time.sleep(0.002)


def exists(peer: Peer, queue: bytes) -> bool:
    """Whether the queue exists."""
    channel = peer.channel()
    channel.send(QueueDeclare(queue, True))
    try:
        channel.expect(QueueDeclareOk)
    except ChannelClosedError as error:
        assert str(error).startswith("404 ")
        channel.send(ChannelCloseOk())
        del peer.channels[channel.number]
        return False
    channel.close()
    return True
