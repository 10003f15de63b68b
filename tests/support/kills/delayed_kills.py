"""The kill test of delayed messages: a node is killed while messages wait and while they are due.

No message may ever be early. After a few kills everything that is due by then must be in its queues
once, unless it was acked there, and the node must count all others as waiting. A message that was
delivered may come again after a crash, until its ack is durable.
"""

import shutil
from collections.abc import Callable

from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren_json
from tests.support.kills.delayed_load import (
    DAY_MS,
    DELAYED_WORKERS,
    DUE,
    SHORT_MS,
    WIDE_MS,
    DelayedLedger,
    clock_ms,
    declare_delayed,
)
from tests.support.kills.killed_node import KilledNode, await_all
from tests.support.kills.ledger import Confirms, connect


def seconds_to_move() -> float:
    """Seconds until messages move on from the wide bucket whose time comes next."""
    width_ms = WIDE_MS // 2
    return (width_ms - clock_ms() % width_ms) / 1000


class Reading:
    """A consumer of both queues, which acks every message."""

    def __init__(self, channel: ChannelPeer, ledger: DelayedLedger) -> None:
        self.channel = channel
        self.ledger = ledger
        # Numbers of the messages that came, by queue.
        self.found: dict[bytes, set[int]] = {queue: set() for queue in DUE}
        for queue in DUE:
            channel.consume(queue, queue)

    def read(self) -> None:
        """Take what comes until nothing comes for a moment; no queue may have a message twice."""
        channel = self.channel
        while channel.events or channel.peer.read(0.05):
            while channel.events:
                message = channel.events.popleft()
                assert isinstance(message, Message), message
                number = self.ledger.arrived(message)
                queue = message.deliver.consumer_tag
                assert number not in self.found[queue], f"{queue!r}: {number} is doubled"
                self.found[queue].add(number)
                channel.ack(message.deliver.delivery_tag)

    def received(self) -> int:
        """The number of messages that came."""
        return sum(map(len, self.found.values()))

    def missing(self, now_ms: int) -> dict[bytes, set[int]]:
        """Confirmed messages that are due, were not acked and are not here, by queue."""
        ledger = self.ledger
        return {
            queue: {
                number
                for number in ledger.confirmed[queue] - ledger.acked[queue] - found
                if ledger.due_ms[number] <= now_ms
            }
            for queue, found in self.found.items()
        }


class DelayedKills(KilledNode):
    """One node and its ledger through any number of kills."""

    def __init__(self, node: BrokerProcess, seed: int) -> None:
        super().__init__(node, seed)
        self.ledger = DelayedLedger()

    def run(
        self,
        kills: int,
        on_round: Callable[[int], None] = lambda _: None,
        longest_s: float = 1.2,
        kills_a_check: int = 5,
        aims_at_moves: bool = True,
    ) -> None:
        """Kill the node `kills` times; AssertionError for the first broken promise.

        `aims_at_moves`: wait for the moment at which messages move on from a wide bucket, when it
        is near, and kill the node then.
        """
        images = self.node.directory
        self.start()
        peer = connect(self.node)
        declare_delayed(peer.channel())
        for number in range(1, kills + 1):
            peer.drop()
            workers = [
                kind(self.node, self.ledger, self.random.getrandbits(30))
                for kind in DELAYED_WORKERS
            ]
            move_s = seconds_to_move()
            if aims_at_moves and move_s < longest_s + 3:
                self.kill_under(workers, move_s + 0.3, move_s)
                self.done["kills at a move"] += 1
            else:
                self.kill_under(workers, longest_s)
            # All copies since the last check.
            self.image = images / f"image-{number % kills_a_check}"
            self.keep_image()
            if self.random.random() < 0.1:
                self.kill_a_start()
            self.start()
            peer = connect(self.node)
            if number % kills_a_check == 0:
                self._check(peer)
                for image in images.glob("image-*"):
                    shutil.rmtree(image)
            on_round(number)
        peer.close()

    def _check(self, peer: Peer) -> None:
        """Read and ack all that is due, and compare; all else must wait."""
        ledger = self.ledger
        channel = peer.channel()
        reading = Reading(channel, ledger)
        end_ms = max(
            (due for number, due in ledger.due_ms.items() if ledger.delays_ms[number] <= SHORT_MS),
            default=0,
        )
        waiting: list[str] = []

        def is_complete() -> bool:
            reading.read()
            if any(reading.missing(max(end_ms, clock_ms())).values()):
                return False
            count = self._waiting()
            now_ms = clock_ms()
            later = {number for number, due_ms in ledger.due_ms.items() if due_ms > now_ms}
            least = len(ledger.confirmed[DUE[0]] & later)
            most = len(ledger.due_ms.keys() - ledger.seen)
            waiting[:] = [f"{count} wait, of {least} at least and {most} at most"]
            return least <= count <= most

        def lack() -> str:
            lost = reading.missing(clock_ms()).items()
            texts = [f"{queue!r}: {sorted(numbers)[:10]}" for queue, numbers in lost]
            return f"confirmed and lost: {texts}; {waiting}"

        await_all(is_complete, reading.received, lack)
        self._compare(reading)
        confirms = Confirms(channel)
        for queue, found in reading.found.items():
            ledger.acked[queue] |= found
            ledger.tick(confirms, queue, found)
        confirms.drain()
        channel.close()

    def _compare(self, reading: Reading) -> None:
        """Compare the messages found with the promises."""
        ledger = self.ledger
        for queue, found in reading.found.items():
            risen = ledger.acked_for_good[queue] & found
            assert not risen, f"{queue!r}: acked and back: {sorted(risen)[:10]}"
            # The crash has undone the acks of these.
            self.done["doubled by crashes"] += len(ledger.acked[queue] & found)
            ledger.confirmed[queue] |= found
            self.done["read after starts"] += len(found)
            self.done["moved on and due"] += sum(
                WIDE_MS < ledger.delays_ms[number] < DAY_MS for number in found
            )

    def _waiting(self) -> int:
        """Messages that wait, as the node counts them."""
        (vhost,) = warren_json("status", "--port", self.node.port)["vhosts"]
        return int(vhost["delayed"])

    def finish(self) -> None:
        """Stop and start the node: what has not been due must still wait."""
        assert self.node.stop() == 0
        self.start()
        peer = connect(self.node)
        self._check(peer)
        peer.close()
        self.done["still waiting"] = self._waiting()
        assert self.node.stop() == 0
        self.check_log()
