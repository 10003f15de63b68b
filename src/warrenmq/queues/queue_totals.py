"""Sums of figures over many queues, for pages of metrics: ten thousand queues take milliseconds.

The figures have the names of the columns of `warrenctl list_queues`.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.queue import Queue


class QueueTotals:
    """The sums over all queues that were added. Sizes in bytes."""

    def __init__(self) -> None:
        self.queues: i64 = 0
        self.paused: i64 = 0
        self.consumers: i64 = 0
        self.messages_ready: i64 = 0
        self.messages_unacknowledged: i64 = 0
        # Contents in memory.
        self.messages_ready_ram: i64 = 0
        self.messages_unacknowledged_ram: i64 = 0
        self.messages_ram: i64 = 0
        # Messages that outlive a restart.
        self.messages_persistent: i64 = 0
        self.messages_paged_out: i64 = 0
        self.message_bytes_ready: i64 = 0
        self.message_bytes_unacknowledged: i64 = 0
        self.message_bytes_ram: i64 = 0
        self.message_bytes_persistent: i64 = 0
        self.message_bytes_paged_out: i64 = 0
        self.memory: i64 = 0
        # Ready messages by form; delta is the rest.
        self.alpha: i64 = 0
        self.beta: i64 = 0
        self.gamma: i64 = 0

    @property
    def messages(self) -> i64:
        """Ready and unacked messages."""
        return self.messages_ready + self.messages_unacknowledged

    @property
    def message_bytes(self) -> i64:
        """Bytes of the bodies of ready and unacked messages."""
        return self.message_bytes_ready + self.message_bytes_unacknowledged

    def add(self, queue: Queue) -> None:
        """Count `queue` in: one queue more, with its consumers, messages and bytes."""
        ready, unacked = queue.ready_count, queue.unacked_count
        self.queues += 1
        if queue.is_paused:
            self.paused += 1
        self.consumers += len(queue.consumers)
        self.messages_ready += ready
        self.messages_unacknowledged += unacked
        if queue.durable:
            self.messages_persistent += ready + unacked
        for backing in queue.backings():
            self._add_messages(backing)
            self._add_bytes(backing)
            if queue.durable:
                self._add_persistent(backing)

    def _add_messages(self, backing: PagedQueue) -> None:
        ready = backing.ready
        self.messages_ready_ram += ready.ram_count
        self.messages_unacknowledged_ram += backing.unacked.ram_count
        self.messages_ram += backing.memory.ram_count
        self.messages_paged_out += ready.count - ready.ram_count
        self.alpha += ready.ram_count
        self.beta += ready.beta_count
        self.gamma += ready.gamma_count

    def _add_bytes(self, backing: PagedQueue) -> None:
        ready, unacked = backing.ready, backing.unacked
        self.message_bytes_ready += ready.body_bytes
        self.message_bytes_unacknowledged += unacked.body_bytes
        self.message_bytes_ram += ready.alpha_bytes + unacked.content_bytes
        self.message_bytes_paged_out += (
            ready.beta_bytes + ready.gamma_bytes + ready.delta.content_bytes
        )
        self.memory += backing.memory.current_bytes()

    def _add_persistent(self, backing: PagedQueue) -> None:
        self.messages_persistent -= backing.transient_count
        size = backing.ready.body_bytes + backing.unacked.body_bytes - backing.transient_bytes
        # After a start, the bytes of messages on disk are an estimate.
        self.message_bytes_persistent += max(size, 0)
