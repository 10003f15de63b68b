"""The memory of one queue: what it holds, what it may hold, and its rates, for the memory monitor.

A queue does not report with every message. Its first operation in a turn puts it on its vhost's
list of changed queues (`touch`), and at the end of the turn each of these reports once (`report`):
a queue that does nothing is in no list (W16).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.queue_counters import QueueCounters
from warrenmq.queues.backing.unacked_account import UnackedAccount
from warrenmq.queues.backing.variable_queue import UNLIMITED, VariableQueue
from warrenmq.queues.entry import EntryLedger
from warrenmq.queues.memory.account import FOREVER_S, MemoryUser
from warrenmq.queues.memory.rates import Rates
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.turn import TurnShare

# A queue with more than one transient message in this many does not become deep.
TRANSIENT_SHARE: Final = 8


class QueueMemory(MemoryUser):
    """The memory of one queue, from its ready messages and its unacked ones.

    `share` does the paging.
    """

    def __init__(
        self,
        host: QueueHost,
        ledger: EntryLedger,
        ready: VariableQueue,
        out: UnackedAccount,
        counters: QueueCounters,
        share: TurnShare,
        is_lazy: bool,
    ) -> None:
        super().__init__(host.memory)
        self.rates: Rates = Rates()
        # Messages whose content may stay in memory; paging drops the content of the others.
        self.target_ram_count: i64 = UNLIMITED
        self.is_lazy: bool = is_lazy
        # A default queue with so much content in memory that it pages like a lazy one; it keeps the
        # oldest messages, for those who will want them soon.
        self.is_deep: bool = False
        # Paging must run for this queue: it is lazy or deep, or has a target.
        self.pages: bool = is_lazy
        self._host: QueueHost = host
        self._ledger: EntryLedger = ledger
        self._ready: VariableQueue = ready
        self._out: UnackedAccount = out
        self._counters: QueueCounters = counters
        # None: the queue was deleted and has reported. Without this reference back, it is freed
        # with its last holder.
        self._share: TurnShare | None = share
        self._is_deleted: bool = False

    # -- figures -----------------------------------------------------------------------------------

    @property
    def ram_count(self) -> i64:
        """Messages whose content is in memory, unacked ones included (S60)."""
        return self._ready.ram_count + self._out.ram_count

    def current_bytes(self) -> i64:
        """Bytes that the queue holds in memory; 0 after the last report of a deleted queue."""
        if self._share is None:
            return 0
        return self._ready.ram_bytes + self._out.ram_bytes

    # -- what it may hold --------------------------------------------------------------------------

    def set_mode(self, is_lazy: bool) -> None:
        """Switch between lazy and default mode.

        The queue pages or loads its messages in slices, over several turns.
        """
        self.is_lazy = is_lazy
        self.is_deep = False
        self._update_paging()

    def set_target(self, target_ram_count: i64) -> None:
        """Limit the contents that stay in memory; paging drops the content of other messages."""
        self.target_ram_count = target_ram_count
        self._update_paging()

    def expect_paging(self) -> None:
        """Ask for a turn if there is anything to page; for a queue that `pages`."""
        share = self._share
        if share is not None and (
            self.is_lazy or self.is_deep or self.ram_count > self.target_ram_count
        ):
            share.ask_for_turn()

    def _update_paging(self) -> None:
        self.pages = self.is_lazy or self.is_deep or self.target_ram_count < UNLIMITED
        if self.pages:
            self.expect_paging()

    def _measure_depth(self) -> None:
        """Begin to be deep with more than the room in memory; end with half of it and no delta.

        The bytes of a persistent message are on disk anyway, so a page costs an entry of an index.
        A transient one would have to be written, so a queue of these stays in memory as long as the
        node has memory.
        """
        ready = self._ready
        ledger = self._ledger
        room = self.account.deep_room()
        if self.is_deep:
            is_deep = ready.delta.count > 0 or ready.alpha_bytes > room // 2
        else:
            is_deep = (
                ready.alpha_bytes > room
                and ledger.is_durable
                and ledger.transient_count * TRANSIENT_SHARE <= ready.count
            )
        if is_deep != self.is_deep:
            self.is_deep = is_deep
            self._update_paging()

    # -- telling -----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Report the memory of this queue at the end of the turn; called before each change."""
        if not self.is_changed:
            self.is_changed = True
            if not self.is_active and self._share is not None:
                # Rates are averages over time: measure from here on, or idle time would lower them.
                counters = self._counters
                self.rates.start(
                    counters.published, counters.delivered, self._handed_out(), counters.settled
                )
            self._host.changed.append(self)

    def end(self) -> None:
        """The queue is deleted: the report at the end of this turn is the last one."""
        self._is_deleted = True
        self.touch()

    def report(self, now_ms: i64) -> None:
        if self._share is None:
            return
        if not self.is_active:
            self.rates.start_time(now_ms)
        if self._is_deleted:
            self._share = None
            self.update(0)
            self.account.end(self)
            return
        self.update(self.current_bytes())
        if not self.is_lazy:
            self._measure_depth()

    def sample_rates(self, now_ms: i64) -> None:
        counters = self._counters
        rates = self.rates
        rates.sample(
            now_ms, counters.published, counters.delivered, self._handed_out(), counters.settled
        )
        rates.sample_ram(self._ready.ram_count, self._out.count)

    def duration_s(self) -> float:
        return self.rates.duration_s()

    def set_duration(self, seconds: float) -> None:
        if seconds == FOREVER_S:
            self.set_target(UNLIMITED)
            return
        target = min(seconds * self.rates.total(), float(UNLIMITED))
        count: i64 = int(target)
        self.set_target(count)

    def _handed_out(self) -> i64:
        return self._out.count + self._counters.settled + self._counters.requeued
