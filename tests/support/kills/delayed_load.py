"""The load of the kill test of delayed messages: publishes with delays, and a consumer.

Most messages wait for a few seconds at most. Some wait a little longer than the time after which a
message goes to a wide bucket, from which it moves on later; others wait for a day.
"""

import random
import time
from typing import Final

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import (
    SIZES,
    BurstWorker,
    Confirms,
    Ledger,
    Worker,
    body_of,
    number_of,
)
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import Properties

LATER = b"later"
KEY = b"key"
# Queues that get each message when it is due.
DUE: Final = (b"due-eaten", b"due-kept")
TICKS = b"ticks"
SHORTEST_MS, SHORT_MS = 200, 3000
# Longer delays begin in a bucket of 131 s.
WIDE_MS = 2 << 17
DAY_MS = 86_400_000


def declare_delayed(channel: ChannelPeer) -> None:
    """Declare the delayed exchange and its queues, durable."""
    channel.exchange(
        LATER, b"x-delayed-message", durable=True, arguments=table(x__delayed__type="direct")
    )
    for queue in DUE:
        channel.declare(queue, durable=True)
        channel.bind(queue, LATER, KEY)
    # A message here serves its confirm, which shows that acks sent before it are durable.
    channel.declare(TICKS, durable=True, arguments=table(x__max__length=1))


def clock_ms() -> int:
    """The time in whole ms since 1970, as the node counts it."""
    return time.time_ns() // 1_000_000


class DelayedLedger(Ledger):
    """A ledger that also has the delay of each message, and when it is due at the earliest."""

    def __init__(self) -> None:
        super().__init__(DUE)
        self.delays_ms: dict[int, int] = {}
        self.due_ms: dict[int, int] = {}
        # Messages that a consumer has had.
        self.seen: set[int] = set()

    def arrived(self, message: Message) -> int:
        """The number of a message that has come to a consumer, which must be due."""
        now_ms = clock_ms()
        number = number_of(message.body)
        early_ms = self.due_ms[number] - now_ms
        assert early_ms <= 0, f"{number} with {self.delays_ms[number]} ms is {early_ms} ms early"
        headers = message.properties.headers
        assert headers is not None
        assert to_python(decode_table(headers)) == {"x-delay": -self.delays_ms[number]}
        self.seen.add(number)
        return number

    def tick(self, confirms: Confirms, queue: bytes, acked: set[int]) -> None:
        """Publish a message whose confirm says that the acks sent before it are durable."""

        def on_confirmed() -> None:
            self.acked_for_good[queue] |= acked

        confirms.publish(TICKS, b"", Properties(delivery_mode=2).encode(), b"", on_confirmed)


def some_delay(choose: random.Random) -> int:
    """A delay in ms."""
    kind = choose.random()
    if kind < 0.06:
        return DAY_MS
    if kind < 0.12:
        return WIDE_MS + choose.randrange(1, SHORT_MS)
    return choose.randrange(SHORTEST_MS, SHORT_MS + 1)


class DelayedFeeder(BurstWorker):
    """Publishes bursts of all sizes and delays."""

    def __init__(self, node: BrokerProcess, ledger: DelayedLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.delayed = ledger

    def publish_one(self, confirms: Confirms) -> None:
        ledger = self.delayed
        number = ledger.number()
        delay_ms = some_delay(self.random)
        body = body_of(number, self.random.choice(SIZES))
        headers = table(**{"x-delay": delay_ms})

        def on_confirmed() -> None:
            for queue in DUE:
                ledger.confirmed[queue].add(number)

        ledger.delays_ms[number] = delay_ms
        # The node reads its clock later.
        ledger.due_ms[number] = clock_ms() + delay_ms
        properties = Properties(headers=headers, delivery_mode=2).encode()
        confirms.publish(KEY, body, properties, LATER, on_confirmed)


class DueTaker(Worker):
    """Consumes one of the queues, and acks most messages."""

    def __init__(self, node: BrokerProcess, ledger: DelayedLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.delayed = ledger

    def work(self, channel: ChannelPeer) -> None:
        ledger = self.delayed
        queue = DUE[0]
        confirms = Confirms(channel)
        channel.consume(queue)
        seen: set[int] = set()
        acked: set[int] = set()
        while True:
            confirms.read(0.02)
            for message in [item for item in channel.events if isinstance(item, Message)]:
                channel.events.remove(message)
                number = ledger.arrived(message)
                assert number not in seen, f"{number} is doubled without a crash"
                seen.add(number)
                self.done += 1
                if self.random.random() < 0.8:
                    # From the moment in which it is sent, the ack may take effect.
                    ledger.acked[queue].add(number)
                    acked.add(number)
                    channel.ack(message.deliver.delivery_tag)
            if acked and self.random.random() < 0.5:
                ledger.tick(confirms, queue, acked)
                acked = set()


DELAYED_WORKERS: Final = (DelayedFeeder, DueTaker)
