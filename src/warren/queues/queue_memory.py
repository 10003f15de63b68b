"""A queue's account of what it holds in memory, and its rates: what the memory monitor wants to know of it.

The queue does not tell with every message. What it does first in a turn puts it on its vhost's list of touched queues,
and at the end of the turn each of those tells once (`report`): a queue that does nothing is in no list (W16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from warren.queues.memory_account import ENTRY_BYTES, INFINITE, MESSAGE_BYTES, MemoryAccount, MemoryUser
from warren.queues.rates import Rates
from warren.queues.variable_queue import INFINITE as NO_TARGET

if TYPE_CHECKING:
    from warren.queues.queue import Queue


class QueueMemory(MemoryUser):
    """The account of one queue."""

    def __init__(self, account: MemoryAccount, queue: Queue) -> None:
        super().__init__(account)
        # None: it was deleted. Without the way back to it, it is freed with whatever held it last.
        self.queue: Queue | None = queue
        self.rates: Rates = Rates()

    def begin(self) -> None:
        """Something is about to happen after a pause, which must not thin the rates of what happens now."""
        queue = self.queue
        if queue is not None and not self.is_active:
            self.rates.start(
                queue.published_count, queue.delivered_count, _handed_out(queue), queue.settled_count
            )

    def report(self, now_ms: i64) -> None:
        """Something happened in this turn: tell how much the queue holds now, unacked messages included (S60)."""
        queue = self.queue
        if queue is None:
            return
        if not self.is_active:
            self.rates.start_time(now_ms)
        if queue.is_deleted:
            self.queue = None
            self.update(0)
            self.account.end(self)
            return
        self.update(self.held_bytes())

    def held_bytes(self) -> i64:
        """What the queue holds in memory at this moment."""
        queue = self.queue
        if queue is None:
            return 0
        return (
            queue.ready.ram_bytes
            + queue.out_bytes
            + ENTRY_BYTES * queue.unacked_count
            + MESSAGE_BYTES * (queue.unacked_count - queue.paged_out_count)
        )

    def sample_rates(self, now_ms: i64) -> None:
        queue = self.queue
        assert queue is not None
        rates = self.rates
        rates.sample(
            now_ms, queue.published_count, queue.delivered_count, _handed_out(queue), queue.settled_count
        )
        rates.sample_ram(queue.ready.ram_count, queue.unacked_count)

    def duration_s(self) -> float:
        return self.rates.duration_s()

    def set_duration(self, seconds: float) -> None:
        queue = self.queue
        assert queue is not None
        if seconds == INFINITE:
            queue.set_target(NO_TARGET)
            return
        target = min(seconds * self.rates.total(), float(NO_TARGET))
        count: i64 = int(target)
        queue.set_target(count)


def _handed_out(queue: Queue) -> i64:
    return queue.unacked_count + queue.settled_count + queue.requeued_count
