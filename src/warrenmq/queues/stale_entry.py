"""Deliveries of a queue of this node that is not its master any more, as their channels keep them.

The queue has taken the messages back: they belong to the new master. A client that settles one
settles it there. A delivery tag stays valid, and counts towards prefetch, until then (F18).
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry, QueueEnd
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import ABSENT, QueueLedger


class StaleEnd(QueueEnd):
    """Stands for `queue` as the holders of its stale entries know it."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.name)
        # The epoch in which the queue delivered them.
        self.epoch: i64 = queue.epoch
        self.ledger: QueueLedger = QueueLedger(0)
        self._queue: MessageTaker = queue

    def taker(self) -> MessageTaker:
        """The object that stands for the queue at this moment."""
        return self._queue.current()

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        assert isinstance(entry, StaleEntry)
        taker = self.taker()
        taker.settle_stale(entry.level, entry.seq, self.epoch, reason, now_ms)
        if entry.consumer is not None:
            taker.on_stale_freed(entry.consumer)

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        # The messages have returned to their places already.
        taker = self.taker()
        for entry in entries:
            if entry.consumer is not None:
                taker.on_stale_freed(entry.consumer)

    def return_count(self, entry: Entry) -> i64:
        return 0

    def deliver_ready(self, now_ms: i64) -> None:
        self.taker().deliver_ready(now_ms)


@mypyc_attr(acyclic=True)
class StaleEntry(Entry):
    """Takes the place of `entry`, a message of `level`, under the same delivery tag."""

    def __init__(self, entry: Entry, level: i64, end: StaleEnd) -> None:
        super().__init__(ABSENT, end.ledger, entry.seq, 0, end)
        self.level: i64 = level
        self.delivery_tag = entry.delivery_tag
        self.consumer = entry.consumer
