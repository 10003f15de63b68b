"""The figures of a queue: the parts of the variable queue, the forms of its messages, its rates.

All figures are kept up to date anyway, so taking them costs the same whatever the queue's length.
The figures of a priority queue are the sums over its levels.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.queue import Queue


class FormFigures:
    """Ready messages of one form, and their bytes of addresses, properties and bodies."""

    def __init__(self, count: i64, size_bytes: i64) -> None:
        self.count: i64 = count
        self.size_bytes: i64 = size_bytes

    def add(self, count: i64, size_bytes: i64) -> None:
        """Add the messages of another level, and their bytes."""
        self.count += count
        self.size_bytes += size_bytes


class QueueFigures:
    """One queue at this moment.

    Sizes in bytes, rates in messages per second, counts since the start of the node.
    """

    def __init__(self, queue: Queue) -> None:
        self.name: bytes = queue.name
        self.queue_id: i64 = queue.id
        self.durable: bool = queue.durable
        self.is_lazy: bool = queue.backing.memory.is_lazy
        self.ready: i64 = queue.ready_count
        self.unacked: i64 = queue.unacked_count
        self.consumers: i64 = len(queue.consumers)
        # The parts, youngest first (S56).
        self.q1: i64 = 0
        self.q2: i64 = 0
        self.delta_part: i64 = 0
        self.q3: i64 = 0
        self.q4: i64 = 0
        # The forms (S50-S53). After a start, the bytes of delta are an estimate.
        self.alpha: FormFigures = FormFigures(0, 0)
        self.beta: FormFigures = FormFigures(0, 0)
        self.gamma: FormFigures = FormFigures(0, 0)
        self.delta: FormFigures = FormFigures(0, 0)
        # Bytes of the bodies of ready and unacked messages.
        self.body_bytes: i64 = 0
        # Bytes of memory, overhead and unacked messages included.
        self.ram_bytes: i64 = 0
        # Contents in memory, unacked messages included.
        self.ram_count: i64 = 0
        # None: the contents in memory have no limit.
        self.target_ram_count: int | None = 0
        # Rates, measured every few seconds while the queue is active.
        self.in_rate: float = 0.0
        self.out_rate: float = 0.0
        self.ack_in_rate: float = 0.0
        self.ack_out_rate: float = 0.0
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.settled: i64 = 0
        self.requeued: i64 = 0
        self.expired: i64 = 0
        # Seq ids of the level of priority 0; the other levels have their own.
        self.next_seq: i64 = queue.ledger.next_seq
        self.indexed_upto: i64 = queue.ledger.indexed_upto
        for backing in queue.backings():
            self._add_ready(backing)
            self._add_traffic(backing)

    def _add_ready(self, backing: PagedQueue) -> None:
        ready = backing.ready
        self.q1 += ready.q1.count
        self.q2 += ready.q2.count
        self.delta_part += ready.delta.count
        self.q3 += ready.q3.count
        self.q4 += ready.q4.count
        self.alpha.add(ready.ram_count, ready.alpha_bytes)
        self.beta.add(ready.beta_count, ready.beta_bytes)
        self.gamma.add(ready.gamma_count, ready.gamma_bytes)
        self.delta.add(ready.delta.count, ready.delta.content_bytes)
        self.body_bytes += ready.body_bytes + backing.unacked.body_bytes

    def _add_traffic(self, backing: PagedQueue) -> None:
        memory = backing.memory
        self.ram_bytes += memory.current_bytes()
        self.ram_count += memory.ram_count
        target = self.target_ram_count
        if memory.target_ram_count >= UNLIMITED:
            self.target_ram_count = None
        elif target is not None:
            self.target_ram_count = target + memory.target_ram_count
        if memory.is_active:
            rates = memory.rates
            self.in_rate += rates.ingress
            self.out_rate += rates.egress
            self.ack_in_rate += rates.ack_ingress
            self.ack_out_rate += rates.ack_egress
        counters = backing.counters
        self.published += counters.published
        self.delivered += counters.delivered
        self.settled += counters.settled
        self.requeued += counters.requeued
        self.expired += counters.expired
