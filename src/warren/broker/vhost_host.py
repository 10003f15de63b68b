"""What the queues of a vhost ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from warren.queues.entry import Entry
from warren.queues.queue_host import QueueHost
from warren.store.message import QueueLog
from warren.store.queue_store import QueueStore

if TYPE_CHECKING:
    from warren.broker.vhost import Vhost


class VhostHost(QueueHost):
    """Answers for `vhost`."""

    def __init__(self, vhost: Vhost) -> None:
        settings = vhost.store.settings
        super().__init__(
            vhost.broker.memory_account,
            settings.embed_below,
            vhost.broker.settings.msg_store_io_batch_size,
            settings.segment_entries,
        )
        self.vhost: Vhost = vhost

    def open_store(self, log: QueueLog, is_durable: bool) -> QueueStore:
        """The store of a new queue."""
        return self.vhost.store.add_queue(log, is_durable)

    def expect_timer(self, log: QueueLog) -> None:
        """The broker's timer must look at the queue of `log` from now on: messages in it expire."""
        self.vhost.broker.timed_queues[self.vhost.queues_by_id[log.queue_id]] = None

    def wake(self) -> None:
        """There will be something to do at the end of this turn."""
        self.vhost.broker.wake()

    def on_out_lost(self, log: QueueLog, lost: list[Entry]) -> None:
        """The contents of these unacked entries cannot be had; they are settled, and a reader group that has them forgets
        them."""
        for watcher in self.vhost.loss_watchers:
            watcher(log, lost)

    def find_out(self, log: QueueLog, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue with seq ids in [first, end), whoever has them, in any order."""
        return self.vhost.find_out(log, first, end)
