"""The load of the kill test of dead letters: queues that give up messages for every reason.

A message is published to one queue (its *home*). From there it dies into both queues of a fanout
exchange, or, between WORK and RETRY, back and forth. A *family* is a home with one queue that gets
its dead letters: until its message is acked, it is in exactly one queue of each family.

The rules of `ledger.py` hold: what was answered must stand; for the rest both outcomes are right.
"""

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

DEAD = b"dead"
LIMITED, AGING, REJECTING = b"limited", b"aging", b"rejecting"
WORK, RETRY = b"work", b"retry"
MORGUE, ARCHIVE = b"morgue", b"archive"
TICKS = b"ticks"
LIMIT, TTL_MS, PRIORITIES = 40, 60, 4
HOMES: Final = (LIMITED, AGING, REJECTING, WORK)
QUEUES: Final[dict[bytes, bytes]] = {
    # The oldest messages are on disk only, and are read to die.
    LIMITED: table(x__max__length=LIMIT, x__queue__mode="lazy", x__dead__letter__exchange="dead"),
    AGING: table(x__message__ttl=TTL_MS, x__dead__letter__exchange="dead"),
    REJECTING: table(x__max__priority=PRIORITIES, x__dead__letter__exchange="dead"),
    WORK: table(x__dead__letter__exchange="", x__dead__letter__routing__key="retry"),
    RETRY: table(
        x__message__ttl=TTL_MS, x__dead__letter__exchange="", x__dead__letter__routing__key="work"
    ),
    MORGUE: b"",
    ARCHIVE: table(x__queue__mode="lazy"),
}
FAMILIES: Final[dict[bytes, tuple[tuple[bytes, bytes], ...]]] = {
    **{home: ((home, MORGUE), (home, ARCHIVE)) for home in (LIMITED, AGING, REJECTING)},
    WORK: ((WORK, RETRY),),
}
# The only reason for which a queue gives up messages.
REASONS: Final = {
    LIMITED: "maxlen",
    AGING: "expired",
    REJECTING: "rejected",
    WORK: "rejected",
    RETRY: "expired",
}


def declare_letter_queues(channel: ChannelPeer) -> None:
    """Declare all queues, and the exchange of the dead letters with its bindings; durable."""
    channel.exchange(DEAD, b"fanout", durable=True)
    for queue, arguments in QUEUES.items():
        channel.declare(queue, durable=True, arguments=arguments)
    for queue in (MORGUE, ARCHIVE):
        channel.bind(queue, DEAD)
    # A message here serves its confirm, which shows that acks sent before it are durable.
    channel.declare(TICKS, durable=True, arguments=table(x__max__length=1))


class LetterLedger(Ledger):
    """A ledger that also has the home of each message, by number."""

    def __init__(self) -> None:
        super().__init__(tuple(QUEUES))
        self.homes: dict[int, bytes] = {}

    def deaths(self, queue: bytes, message: Message) -> tuple[int, int]:
        """The number of a message found in `queue`, and how often it has died.

        Its home and its deaths must be those of a message that can be there.
        """
        number = number_of(message.body)
        home = self.homes[number]
        headers = message.properties.headers
        found = to_python(decode_table(headers)).get("x-death", []) if headers else []
        assert isinstance(found, list)
        counts = {(each["queue"].encode(), each["reason"]): each["count"] for each in found}
        assert len(counts) == len(found), f"{number}: a queue and reason twice in {found}"
        rejected = counts.get((WORK, "rejected"), 0)
        expected = {
            WORK: {(WORK, "rejected"): rejected, (RETRY, "expired"): rejected},
            RETRY: {(WORK, "rejected"): rejected, (RETRY, "expired"): rejected - 1},
            MORGUE: {(home, REASONS[home]): 1},
            ARCHIVE: {(home, REASONS[home]): 1},
        }.get(queue, {})
        assert any(queue in family for family in FAMILIES[home]), f"{number} of {home!r}: {queue!r}"
        assert counts == {death: count for death, count in expected.items() if count > 0}, (
            f"{number} of {home!r} in {queue!r} has died so: {found}"
        )
        return number, sum(counts.values())

    def tick(self, confirms: Confirms, queue: bytes, acked: set[int]) -> None:
        """Publish a message whose confirm says that the acks sent before it are durable."""

        def on_confirmed() -> None:
            self.acked_for_good[queue] |= acked

        confirms.publish(TICKS, b"", Properties(delivery_mode=2).encode(), b"", on_confirmed)


class LetterFeeder(BurstWorker):
    """Publishes bursts of all sizes and priorities to all homes, a tenth of them transient."""

    def __init__(self, node: BrokerProcess, ledger: LetterLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.letters = ledger

    def publish_one(self, confirms: Confirms) -> None:
        ledger = self.letters
        number = ledger.number()
        home = self.random.choice(HOMES)
        ledger.homes[number] = home
        is_transient = self.random.random() < 0.1
        if is_transient:
            ledger.transient.add(number)

        def on_confirmed() -> None:
            if not is_transient:
                ledger.confirmed[home].add(number)

        mode = 1 if is_transient else 2
        properties = Properties(delivery_mode=mode, priority=self.random.randrange(PRIORITIES + 1))
        body = body_of(number, self.random.choice(SIZES))
        confirms.publish(home, body, properties.encode(), b"", on_confirmed)


class Settler(Worker):
    """Consumes `queue`; acks some messages, rejects a share of others, and leaves some unacked."""

    queue = b""
    rejects = 0.0

    def __init__(self, node: BrokerProcess, ledger: LetterLedger, seed: int) -> None:
        super().__init__(node, ledger, seed)
        self.letters = ledger

    def work(self, channel: ChannelPeer) -> None:
        confirms = Confirms(channel)
        channel.qos(50)
        channel.consume(self.queue)
        held: dict[int, int] = {}
        acked: set[int] = set()
        # A message comes once until the node is killed, or once after each of its deaths.
        seen: set[tuple[int, int]] = set()
        while True:
            confirms.read(0.02)
            for message in [item for item in channel.events if isinstance(item, Message)]:
                channel.events.remove(message)
                stay = self.letters.deaths(self.queue, message)
                assert stay not in seen, f"{self.queue!r}: {stay} is doubled without a crash"
                seen.add(stay)
                held[message.deliver.delivery_tag] = stay[0]
            if len(held) > 5:
                acked |= self._settle(channel, held)
            if acked and self.random.random() < 0.5:
                self.letters.tick(confirms, self.queue, acked)
                acked = set()

    def _settle(self, channel: ChannelPeer, held: dict[int, int]) -> set[int]:
        """Settle most of the unacked messages; returns the numbers of those acked."""
        acked: set[int] = set()
        for tag in self.random.sample(sorted(held), len(held) * 2 // 3):
            number = held.pop(tag)
            self.done += 1
            if self.random.random() < self.rejects:
                channel.reject(tag, False)
                continue
            # From the moment in which it is sent, the ack may take effect.
            self.ledger.acked[self.queue].add(number)
            acked.add(number)
            channel.ack(tag)
        return acked


class Judge(Settler):
    """Rejects half of the messages of a priority queue."""

    queue = REJECTING
    rejects = 0.5


class Retrier(Settler):
    """Rejects most messages of a queue that gets them back after a while."""

    queue = WORK
    rejects = 0.7


class Undertaker(Settler):
    """Acks dead letters."""

    queue = MORGUE


LETTER_WORKERS: Final = (LetterFeeder, Judge, Retrier, Undertaker)
