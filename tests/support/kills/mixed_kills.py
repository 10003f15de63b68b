"""The long kill test: a node under every kind of load is killed again and again, and checked.

After each start every confirmed message must be there, byte for byte, in order and once. Messages
with durable acks must stay away, and so must purged, deleted, rolled-back, transient and expired
ones. Sometimes the start itself is killed, or a clean stop follows. At the end everything is
drained, and nothing may be left of it.
"""

import time
from collections.abc import Callable

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.killed_node import KilledNode
from tests.support.kills.ledger import (
    TICKS,
    Confirms,
    body_of,
    connect,
    exists,
    number_of,
)
from tests.support.kills.mixed_load import (
    CYCLED,
    EXPIRING,
    LASTING,
    MIXED_WORKERS,
    VOLATILE,
    MixedLedger,
    begin_near_a_segment_end,
    declare_lasting,
)

# Time (s) between the node's reading of its clock and the delivery that follows: almost 0, unless
# the machine is busy.
SLACK_S = 2.0


class MixedKills(KilledNode):
    """One node and its ledger through any number of rounds."""

    def __init__(self, node: BrokerProcess, seed: int) -> None:
        super().__init__(node, seed)
        self.ledger = MixedLedger()

    def run(self, kills: int, on_round: Callable[[int], None] = lambda _: None) -> None:
        """Kill the node `kills` times; AssertionError for the first broken promise."""
        self.start()
        peer = connect(self.node)
        channel = peer.channel()
        declare_lasting(channel)
        begin_near_a_segment_end(channel)
        for number in range(1, kills + 1):
            peer.drop()
            self.kill_under(
                [
                    kind(self.node, self.ledger, self.random.getrandbits(30))
                    for kind in MIXED_WORKERS
                ]
            )
            self.keep_image()
            if self.random.random() < 0.1:
                self.kill_a_start()
            self.start()
            peer = connect(self.node)
            if self.random.random() < 0.1:
                self._check(peer, 0.0)
                peer.close()
                assert self.node.stop() == 0
                self.done["clean stops"] += 1
                self.start()
                peer = connect(self.node)
            self._check(peer, self.random.choice((0.3, 0.8, 0.8, 0.95, 1.0)))
            on_round(number)
        peer.close()

    # -- checks ------------------------------------------------------------------------------------

    def _check(self, peer: Peer, share: float) -> None:
        """Check all queues; settle `share` of the messages found, durably."""
        for queue in VOLATILE:
            assert not exists(peer, queue), f"{queue!r} is not durable"
        for queue in CYCLED:
            is_there = exists(peer, queue)
            assert is_there or queue not in self.ledger.declared, f"{queue!r} was declared"
            assert not is_there or queue not in self.ledger.deleted, f"{queue!r} was deleted"
        acked: dict[bytes, set[int]] = {}
        channels: list[ChannelPeer] = []
        for queue in self.ledger.confirmed:
            if queue in CYCLED and not exists(peer, queue):
                self._compare(queue, [], 0.0)
                continue
            # One channel per queue: an ack with `multiple` covers everything before it on the
            # channel.
            channel = peer.channel()
            channels.append(channel)
            started = time.monotonic()
            messages = read_all(channel, queue)
            numbers = self._compare(queue, messages, started)
            self.done["read after starts"] += len(numbers)
            # The messages were read from disk, so they count as confirmed; the acks of them were
            # lost.
            self.ledger.confirmed[queue] |= set(numbers)
            self.ledger.acked[queue] -= set(numbers)
            acked[queue] = self._settle_some(channel, messages, numbers, share)
            self.ledger.acked[queue] |= acked[queue]
        confirms = Confirms(channels[-1])
        number = self.ledger.number()
        confirms.publish(
            TICKS,
            body_of(number, 1),
            PERSISTENT,
            b"",
            lambda: self.ledger.confirmed[TICKS].add(number),
        )
        confirms.drain()
        for queue, numbers_acked in acked.items():
            self.ledger.acked_for_good[queue] |= numbers_acked
        for channel in channels:
            channel.close()

    def _compare(self, queue: bytes, messages: list[Message], started_s: float) -> list[int]:
        """Compare the messages found with the promises; returns their numbers."""
        ledger = self.ledger
        numbers = [number_of(message.body) for message in messages]
        found = set(numbers)
        assert len(numbers) == len(found), f"{queue!r}: doubled"
        # Several workers publish ticks, so only the order of other queues is checked.
        assert queue == TICKS or numbers == sorted(found), f"{queue!r}: out of order"
        lost = ledger.confirmed[queue] - ledger.acked[queue] - found
        if queue in EXPIRING:
            now_s = time.monotonic()
            lost = {number for number in lost if ledger.lifetimes[number].earliest_s > now_s}
            overdue = {
                number
                for number in found
                if ledger.lifetimes[number].latest_s + SLACK_S < started_s
            }
            assert not overdue, f"{queue!r}: expired and delivered: {sorted(overdue)[:10]}"
        assert not lost, (
            f"{queue!r}: confirmed and lost: {sorted(lost)[:10]} ({len(lost)}) beside {len(found)}"
        )
        risen = ledger.acked_for_good[queue] & found
        assert not risen, f"{queue!r}: settled and back: {sorted(risen)[:10]} ({len(risen)})"
        ghosts = ledger.transient & found
        assert not ghosts, f"{queue!r}: transient or rolled back, and there: {sorted(ghosts)[:10]}"
        return numbers

    def _settle_some(
        self, channel: ChannelPeer, messages: list[Message], numbers: list[int], share: float
    ) -> set[int]:
        """Ack the oldest messages with one ack and others one by one; returns their numbers."""
        count = int(len(messages) * share)
        front = count // 2
        if front:
            channel.ack(messages[front - 1].deliver.delivery_tag, True)
        rest = list(range(front, len(messages)))
        chosen = sorted(self.random.sample(rest, count - front)) if share < 1 else rest
        for index in chosen:
            channel.ack(messages[index].deliver.delivery_tag)
        return {numbers[index] for index in (*range(front), *chosen)}

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Drain everything: nothing may be left in queues and on disk, then and after a start."""
        peer = connect(self.node)
        self._check(peer, 1.0)
        channel = peer.channel()
        channel.ack(channel.get(TICKS).got.delivery_tag)
        for queue in LASTING:
            assert channel.count(queue) == 0, queue
        peer.close()
        self.await_small()
        assert self.node.stop() == 0
        self.start()
        peer = connect(self.node)
        channel = peer.channel()
        for queue in LASTING:
            assert channel.count(queue) == 0, queue
        peer.close()
        self.await_small()
        assert self.node.stop() == 0
        self.check_log()
        kept = [
            path
            for path in self.node.directory.glob("data/**/lost+found/*")
            if path.stat().st_size > 0
        ]
        # The store keeps the end of a write that the kill interrupted.
        assert all(path.name.endswith(".damaged") for path in kept), f"nothing was damaged: {kept}"


def read_all(channel: ChannelPeer, queue: bytes) -> list[Message]:
    """Consume every message of the queue without acks; some may expire meanwhile."""
    count = channel.count(queue)
    tag = channel.consume(queue)
    while len(channel.events) < count:
        if not channel.peer.read(1.0) and channel.count(queue) == 0:
            break
    channel.cancel(tag)
    messages = [item for item in channel.events if isinstance(item, Message)]
    channel.events.clear()
    return messages
