"""The figures of a queue: the parts of the variable queue, the forms of its messages, its rates.

All figures are kept up to date anyway, so taking them costs the same whatever the queue's length.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.queue import Queue
from warrenmq.queues.variable_queue import UNLIMITED


class FormFigures:
    """Ready messages of one form, and their bytes of addresses, properties and bodies."""

    def __init__(self, count: i64, size_bytes: i64) -> None:
        self.count: i64 = count
        self.size_bytes: i64 = size_bytes


class QueueFigures:
    """One queue at this moment.

    Sizes in bytes, rates in messages per second, counts since the start of the node.
    """

    def __init__(self, queue: Queue) -> None:
        backing = queue.backing
        ready = backing.ready
        memory = backing.memory
        counters = backing.counters
        self.name: bytes = queue.name
        self.queue_id: i64 = queue.id
        self.durable: bool = queue.durable
        self.is_lazy: bool = memory.is_lazy
        self.ready: i64 = ready.count
        self.unacked: i64 = queue.unacked_count
        self.consumers: i64 = len(queue.consumers)
        # The parts, youngest first (S56).
        self.q1: i64 = ready.q1.count
        self.q2: i64 = ready.q2.count
        self.delta_part: i64 = ready.delta.count
        self.q3: i64 = ready.q3.count
        self.q4: i64 = ready.q4.count
        # The forms (S50-S53). After a start, the bytes of delta are an estimate.
        self.alpha: FormFigures = FormFigures(ready.ram_count, ready.alpha_bytes)
        self.beta: FormFigures = FormFigures(ready.beta_count, ready.beta_bytes)
        self.gamma: FormFigures = FormFigures(ready.gamma_count, ready.gamma_bytes)
        self.delta: FormFigures = FormFigures(ready.delta.count, ready.delta.content_bytes)
        # Bytes of memory, overhead and unacked messages included.
        self.ram_bytes: i64 = memory.current_bytes()
        # Contents in memory, unacked messages included.
        self.ram_count: i64 = memory.ram_count
        self.target_ram_count: int | None = None
        if memory.target_ram_count < UNLIMITED:
            self.target_ram_count = memory.target_ram_count
        # Rates, measured every few seconds while the queue is active.
        rates = memory.rates
        is_active = memory.is_active
        self.in_rate: float = rates.ingress if is_active else 0.0
        self.out_rate: float = rates.egress if is_active else 0.0
        self.ack_in_rate: float = rates.ack_ingress if is_active else 0.0
        self.ack_out_rate: float = rates.ack_egress if is_active else 0.0
        self.published: i64 = counters.published
        self.delivered: i64 = counters.delivered
        self.settled: i64 = counters.settled
        self.requeued: i64 = counters.requeued
        self.expired: i64 = counters.expired
        self.next_seq: i64 = queue.ledger.next_seq
        self.indexed_upto: i64 = queue.ledger.indexed_upto
