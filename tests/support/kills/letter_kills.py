"""The kill test of dead letters: a node is killed while messages go from queue to queue.

After each start a confirmed persistent message must be in exactly one queue of each of its families
(`letter_load.py`), unless it was acked in one: a crash neither loses a dead letter nor leaves it
both where it died and where it went. A dead letter that was delivered may come again, until its ack
is durable. Sometimes the start itself is killed. At the end everything is drained, and nothing may
be left of it.
"""

from collections.abc import Callable

from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.killed_node import KilledNode, await_all
from tests.support.kills.ledger import Confirms, connect
from tests.support.kills.letter_load import (
    FAMILIES,
    HOMES,
    LETTER_WORKERS,
    QUEUES,
    LetterLedger,
    declare_letter_queues,
)


class Reading:
    """A consumer of every queue, which holds all messages unacked."""

    def __init__(self, channel: ChannelPeer, ledger: LetterLedger) -> None:
        self.channel = channel
        self.ledger = ledger
        # Delivery tags by queue and number.
        self.tags: dict[bytes, dict[int, int]] = {queue: {} for queue in QUEUES}
        # Numbers of the messages that have died.
        self.dead: set[int] = set()
        for queue in QUEUES:
            channel.consume(queue, queue)

    def read(self) -> None:
        """Take what comes until nothing comes for a moment; no queue may have a message twice."""
        channel = self.channel
        while channel.events or channel.peer.read(0.05):
            while channel.events:
                message = channel.events.popleft()
                assert isinstance(message, Message), message
                queue = message.deliver.consumer_tag
                number, deaths = self.ledger.deaths(queue, message)
                if deaths > 0:
                    self.dead.add(number)
                assert number not in self.tags[queue], f"{queue!r}: {number} is doubled"
                self.tags[queue][number] = message.deliver.delivery_tag

    def received(self) -> int:
        """The number of messages that came."""
        return sum(map(len, self.tags.values()))

    def is_complete(self) -> bool:
        """Whether every confirmed message that is not acked is here, and no queue has more."""
        self.read()
        return not any(self.missing().values()) and not any(map(self.channel.count, QUEUES))

    def missing(self) -> dict[tuple[bytes, bytes], set[int]]:
        """Confirmed messages that were not acked and are not here, by family."""
        acked = self.ledger.acked
        return {
            (home, other): self.ledger.confirmed[home]
            - acked[home]
            - acked[other]
            - self.tags[home].keys()
            - self.tags[other].keys()
            for home, families in FAMILIES.items()
            for _, other in families
        }

    def lack(self) -> str:
        """A line about what is missing."""
        lost = {family: sorted(numbers)[:10] for family, numbers in self.missing().items()}
        return f"confirmed and lost: {lost}"

    def of(self, queue: bytes, home: bytes) -> set[int]:
        """Numbers of the messages from `home` that are in `queue`."""
        return {number for number in self.tags[queue] if self.ledger.homes[number] == home}


class LetterKills(KilledNode):
    """One node and its ledger through any number of kills."""

    def __init__(self, node: BrokerProcess, seed: int) -> None:
        super().__init__(node, seed)
        self.ledger = LetterLedger()

    def run(
        self, kills: int, on_round: Callable[[int], None] = lambda _: None, longest_s: float = 1.2
    ) -> None:
        """Kill the node `kills` times; AssertionError for the first broken promise.

        May be called again, with the node that the call before has left running.
        """
        if self.node.process is None:
            self.start()
        peer = connect(self.node)
        declare_letter_queues(peer.channel())
        for number in range(1, kills + 1):
            peer.drop()
            self.kill_under(
                [
                    kind(self.node, self.ledger, self.random.getrandbits(30))
                    for kind in LETTER_WORKERS
                ],
                longest_s,
            )
            self.keep_image()
            if self.random.random() < 0.1:
                self.kill_a_start()
            self.start()
            peer = connect(self.node)
            self._check(peer, self.random.choice((0.3, 0.8, 0.95, 1.0)))
            on_round(number)
        peer.close()

    def _check(self, peer: Peer, share: float) -> None:
        """Read all queues, compare, and ack `share` of the messages durably."""
        channel = peer.channel()
        reading = Reading(channel, self.ledger)
        await_all(reading.is_complete, reading.received, reading.lack)
        self._compare(reading)
        confirms = Confirms(channel)
        for queue, tags in reading.tags.items():
            chosen = {number for number in tags if self.random.random() < share}
            self.ledger.acked[queue] |= chosen
            for number in chosen:
                channel.ack(tags[number])
            self.ledger.tick(confirms, queue, chosen)
            self.done["read after starts"] += len(tags)
        confirms.drain()
        # The other messages return to their queues, where they expire or have no room.
        channel.close()

    def _compare(self, reading: Reading) -> None:
        """Compare the messages found with the promises."""
        ledger = self.ledger
        for home in HOMES:
            for family in FAMILIES[home]:
                here, there = (reading.of(queue, home) for queue in family)
                assert not here & there, f"in both of {family}: {sorted(here & there)[:10]}"
                found = here | there
                for queue in family:
                    risen = ledger.acked_for_good[queue] & found
                    assert not risen, f"acked in {queue!r}, and in {family}: {sorted(risen)[:10]}"
                # Messages that a consumer had as dead letters, and that have to die once more.
                self.done["doubled by crashes"] += len(ledger.acked[family[1]] & here)
                for queue in family:
                    # The crash has undone these acks.
                    ledger.acked[queue] -= found
                ghosts = ledger.transient & found
                assert not ghosts, f"{family}: transient and there: {sorted(ghosts)[:10]}"
                ledger.confirmed[home] |= found
                self.done[f"dead letters of {home.decode()}"] += len(found & reading.dead)

    def finish(self) -> None:
        """Drain everything: nothing may be left in queues and on disk, then and after a start."""
        peer = connect(self.node)
        self._check(peer, 1.0)
        peer.close()
        self.await_small()
        assert self.node.stop() == 0
        self.start()
        peer = connect(self.node)
        channel = peer.channel()
        assert [channel.count(queue) for queue in QUEUES] == [0] * len(QUEUES)
        peer.close()
        assert self.node.stop() == 0
        self.check_log()
