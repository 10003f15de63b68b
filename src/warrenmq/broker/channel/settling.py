"""The unacked messages of a channel, and methods that settle very many of them at once.

A basic.ack or basic.nack with `multiple`, a basic.recover and the end of a channel may settle all
that the channel has unacked. Above LONG_MESSAGES they do so a slice in each turn, so that no other
client waits long. The messages stay in the channel's window until their slice comes, the oldest
first. A queue delivers nothing while it takes messages back: those that are ready may be younger
than those that are still to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.unacked import UnackedWindow
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.queues.entry import Entry, QueueEnd
from warrenmq.queues.stale_entry import StaleEnd
from warrenmq.queues.turn import DONE, MORE, TurnShare, TurnShares
from warrenmq.store.model.message import QueueLedger

# Up to so many messages are settled at once, within some 10 ms.
LONG_MESSAGES: Final = 8192
SLICE_MESSAGES: Final = 1024


class SettlingChannel(FlowHost):
    """A channel with its unacked messages."""

    def __init__(self, number: i64) -> None:
        super().__init__(number)
        self.is_closed: bool = False
        self.unacked: UnackedWindow = UnackedWindow()

    def settle_upto(self, tag: i64, requeue: bool, reason: i64) -> None:
        """Requeue all unacked messages up to `tag`, or let them leave for `reason`; 0 means all.

        Raises ChannelException if no message has the tag.
        """
        unacked = self.unacked
        if unacked.count > LONG_MESSAGES and self.transaction is None and unacked.has(tag):
            last = unacked.last_tag() if tag == 0 else tag
            _LongSettle(self, self.turns(), last, requeue, reason, _nothing).start()
        else:
            self.settle_entries(unacked.take_named(tag, True), requeue, reason)

    def requeue_all(self, finish: Callable[[], None]) -> None:
        """Requeue all unacked messages, then call `finish`."""
        unacked = self.unacked
        if unacked.count > LONG_MESSAGES:
            _LongSettle(self, self.turns(), unacked.last_tag(), True, 0, finish).start()
        else:
            self.requeue(unacked.take_all())
            finish()

    def turns(self) -> TurnShares:
        """The turns of the channel's vhost."""
        raise RuntimeError("abstract")

    def settle_entries(self, entries: list[Entry], requeue: bool, reason: i64) -> None:
        """Requeue entries taken from the unacked window, or let them leave for `reason`.

        In a transaction both take effect at the commit.
        """
        raise RuntimeError("abstract")

    def requeue(self, entries: list[Entry]) -> None:
        """Return entries to their queues."""
        raise RuntimeError("abstract")

    def set_time(self, now_ms: i64) -> None:
        """Do what follows at the time `now_ms`, and have its output sent."""
        raise RuntimeError("abstract")

    def collect_unacked(
        self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]
    ) -> None:
        self.unacked.collect(ledger, first, end, found)
        if self.transaction is not None:
            self.transaction.collect(ledger, first, end, found)

    def replace_unacked(self, ledger: QueueLedger, level: i64, end: StaleEnd) -> None:
        self.unacked.replace(ledger, level, end)
        if self.transaction is not None:
            self.transaction.replace(ledger, level, end)


class _LongSettle(TurnShare):
    """Requeues all that `channel` has unacked up to `tag`, or lets it leave for `reason`.

    An open channel is suspended meanwhile. At the end, `finish` is called.
    """

    def __init__(
        self,
        channel: SettlingChannel,
        turns: TurnShares,
        tag: i64,
        requeue: bool,
        reason: i64,
        finish: Callable[[], None],
    ) -> None:
        super().__init__(turns)
        self._channel: SettlingChannel = channel
        self._tag: i64 = tag
        self._requeue: bool = requeue
        self._reason: i64 = reason
        self._finish: Callable[[], None] = finish
        # A channel that defers publishes in an alarm is suspended already.
        self._suspends: bool = not channel.is_suspended and not channel.is_closed
        # Queues that deliver nothing until they have all of the messages.
        self._waiting_queues: list[QueueEnd] = []

    def start(self) -> None:
        """Settle the first slice now, and the others in later turns."""
        if self._suspends:
            self._channel.suspend()
        if self._requeue:
            self._waiting_queues = self._channel.unacked.queues_upto(self._tag)
            for queue in self._waiting_queues:
                queue.begin_return()
        self._settle_slice()
        self.ask_for_turn()

    def run_slice(self, now_ms: i64) -> i64:
        self.is_listed = False
        self._channel.set_time(now_ms)
        if self._settle_slice():
            return MORE
        for queue in self._waiting_queues:
            queue.end_return()
        self._finish()
        if self._suspends:
            self._channel.resume(now_ms)
        return DONE

    def is_wanted(self) -> bool:
        return False

    def _settle_slice(self) -> bool:
        """Settle a slice; returns whether there was one."""
        channel = self._channel
        entries = channel.unacked.take_oldest(self._tag, SLICE_MESSAGES)
        self.steps_used = len(entries)
        if self._requeue:
            channel.requeue(entries)
        else:
            channel.settle_entries(entries, False, self._reason)
        return len(entries) > 0


def _nothing() -> None:
    pass
