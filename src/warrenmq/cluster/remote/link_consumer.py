"""A consumer of another node's client at a queue of this node; see `queues/remote/consumer.py`."""

from __future__ import annotations

from librt.strings import write_i32_be
from mypy_extensions import i32, i64

from warrenmq.cluster.remote.link_events import LinkEvents, LinkUnacked
from warrenmq.queues.entry import Consumer, Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote import link_records


class LinkConsumers:
    """The consumers of one link by number, and those that wait until the link has room."""

    def __init__(self) -> None:
        self.by_number: dict[int, LinkConsumer] = {}
        self.waiting: list[LinkConsumer] = []


class LinkConsumer(Consumer):
    """Consumer `number` of a link; it gets as much as its client's node gives it credit for."""

    def __init__(
        self,
        queue: Queue,
        tag: bytes,
        no_ack: bool,
        exclusive: bool,
        priority: i64,
        prefetch_count: i64,
        number: i64,
        events: LinkEvents,
        unacked: LinkUnacked,
        consumers: LinkConsumers,
    ) -> None:
        super().__init__(queue, tag, no_ack, exclusive, priority, prefetch_count)
        self.number: i64 = number
        # Messages, and bytes of their content, that may be delivered.
        self.credit: i64 = 0
        self.credit_bytes: i64 = 0
        # Whether the other node knows that a message is there.
        self._is_told: bool = False
        self.target: Queue = queue
        self._events: LinkEvents = events
        self._unacked: LinkUnacked = unacked
        self._consumers: LinkConsumers = consumers

    def add_credit(self, messages: i64, size: i64, asks: bool, now_ms: i64) -> None:
        """Deliver so many more messages and bytes; `asks`: report at once what cannot be used."""
        self.credit += messages
        self.credit_bytes += size
        if messages > 0:
            self._is_told = False
        self.come_back(now_ms)
        if asks and self.credit > 0:
            link_records.write_unused(self._events.begin(), self.number, self.credit)
            self.credit = 0

    def come_back(self, now_ms: i64) -> None:
        """Wait for messages again, and take those that are there."""
        queue = self.target
        if queue.demand.is_active(self):
            queue.consumer_can_take(self)
        queue.deliver_ready(now_ms)

    def can_take(self) -> bool:
        return self.credit > 0 and self.credit_bytes > 0 and self._events.has_room()

    def wait_for_room(self) -> None:
        if self.credit <= 0:
            if not self._is_told:
                self._is_told = True
                link_records.write_number(self._events.begin(), link_records.READY, self.number)
        elif self.credit_bytes > 0:
            self._consumers.waiting.append(self)

    def deliver(self, entry: Entry) -> None:
        queue = self.target
        self.credit -= 1
        self.credit_bytes -= entry.content_bytes
        if not self.no_ack:
            self._unacked.add(entry)
        out = self._events.begin()
        out.append(link_records.DELIVER)
        write_i32_be(out, i32(self.number))
        return_count: i64 = queue.return_count(entry) if entry.redelivered else 0
        link_records.write_delivery(
            out, queue.level_of(entry.ledger), entry.seq, entry.redelivered, return_count
        )
        link_records.write_message(out, entry.message)

    def on_queue_deleted(self) -> None:
        self._consumers.by_number.pop(self.number, None)
        link_records.write_number(self._events.begin(), link_records.CANCELLED, self.number)

    def on_queue_moved(self) -> bool:
        # The node of the client subscribes it again, at the new master.
        self.is_cancelled = True
        self.on_queue_deleted()
        return False
