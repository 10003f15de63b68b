"""A queue: publish, deliver, settle, requeue (S48, S49).

An arriving message goes straight to a waiting consumer when nothing is ready before it, else it waits in the variable
queue. A persistent message in a durable queue is given to the journal on the way, except for a consumer without
acknowledgements: that message is gone when it is handed over and needs no record.

Entries that are out (unacked) are known to whoever holds them (a channel, a reader group); the queue counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warren.queues.arguments import NO_LIMIT, QueueArguments
from warren.queues.consumer import Consumer, ConsumerCircle
from warren.queues.entry import Entry
from warren.queues.variable_queue import VariableQueue
from warren.routing.destination import Destination
from warren.store.journal import Journal
from warren.store.message import NOT_JOURNALED, Message, Position, QueueLog

# `is_behind`: fewer waiting messages are just traffic; longer ago means the consumers are slow, not the broker.
BACKLOG_MIN: Final = 500
SERVED_RECENTLY_MS: Final = 2


class Queue(Destination):
    """One classic queue. `owner` is the connection an exclusive queue belongs to (None: not exclusive)."""

    def __init__(
        self,
        name: bytes,
        queue_id: i64,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: QueueArguments,
        journal: Journal,
        timed_queues: set[Queue],
        now_ms: i64,
    ) -> None:
        super().__init__(name, True)
        self.id: i64 = queue_id
        self.durable = durable
        self.auto_delete: bool = auto_delete
        self.owner: object | None = owner
        self.arguments: QueueArguments = arguments
        self.journal: Journal = journal
        self.log: QueueLog = QueueLog(queue_id)
        self.ready: VariableQueue = VariableQueue()
        self.unacked_count: i64 = 0
        self.circle: ConsumerCircle = ConsumerCircle()
        self.consumers: list[Consumer] = []
        self.had_consumer: bool = False
        self.is_deleted: bool = False
        self.message_ttl_ms: i64 = arguments.message_ttl_ms
        self.last_used_ms: i64 = now_ms
        # The queues that the broker's timer looks at; this one is among them while a ready message may expire.
        self._timed_queues: set[Queue] = timed_queues
        self.has_expiring: bool = False
        # When a waiting message was last given to a consumer.
        self.served_ms: i64 = 0
        self.published_count: i64 = 0
        self.delivered_count: i64 = 0
        self.settled_count: i64 = 0
        self.expired_count: i64 = 0
        # Called once, when messages become ready (reader groups that poll).
        self._ready_watchers: list[Callable[[], None]] = []

    # -- figures ---------------------------------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        """Seq id that the next published message gets."""
        return self.log.next_seq

    @property
    def ready_count(self) -> int:
        """Messages that wait."""
        return self.ready.count

    def has_timer(self) -> bool:
        """Must the broker's timer look at this queue, even while no message in it expires?"""
        return self.arguments.message_ttl_ms != NO_LIMIT or self.arguments.expires_ms != NO_LIMIT

    @property
    def exclusive_consumer(self) -> bool:
        """Does one consumer have the queue for itself?"""
        return len(self.consumers) == 1 and self.consumers[0].exclusive

    def is_behind(self, now_ms: i64) -> bool:
        """Do messages pile up although consumers are being served at this moment?"""
        return self.ready.count > BACKLOG_MIN and now_ms - self.served_ms <= SERVED_RECENTLY_MS

    # -- publish and deliver -----------------------------------------------------------------------------------

    def publish(self, message: Message, expiration_ms: i64, now_ms: i64) -> None:
        """Take a routed message. `expiration_ms` is the message's own time to live (NO_LIMIT: none)."""
        log = self.log
        seq = log.next_seq
        log.next_seq = seq + 1
        self.published_count += 1
        entry = Entry(message, log, seq, 0, self)
        if self.message_ttl_ms != NO_LIMIT or expiration_ms != NO_LIMIT:
            entry.expiry_ms = now_ms + _lower(self.message_ttl_ms, expiration_ms)
        if self.ready.count == 0:
            consumer = self.circle.next_ready()
            if consumer is not None:
                if consumer.no_ack:
                    self._count_delivered(entry)
                    consumer.deliver(entry)
                    return
                if self.durable and message.persistent:
                    self.journal.publish(entry, now_ms)
                self._hand_over(consumer, entry)
                return
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self.expired_count += 1
                return
        if entry.expiry_ms != 0:
            self._expect_expiry()
        if self.durable and message.persistent:
            self.journal.publish(entry, now_ms)
        self.ready.publish(entry)
        if len(self._ready_watchers) > 0:
            self._notify_watchers()

    def deliver_ready(self, now_ms: i64) -> None:
        """Give ready messages to consumers for as long as somebody can take one."""
        ready = self.ready
        while ready.count > 0:
            consumer = self.circle.next_ready()
            if consumer is None:
                return
            self.served_ms = now_ms
            entry = ready.fetch()
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self._drop_expired(entry, now_ms)
                continue
            if consumer.no_ack:
                self._count_delivered(entry)
                if entry.journal_state != NOT_JOURNALED:
                    self.journal.settle(entry, now_ms)
                consumer.deliver(entry)
            else:
                self._hand_over(consumer, entry)

    def get(self, no_ack: bool, now_ms: i64) -> Entry | None:
        """basic.get: the oldest live entry, counted as unacked unless `no_ack`."""
        self.drop_expired_head(now_ms)
        if self.ready.count == 0:
            return None
        entry = self.ready.fetch()
        self._count_delivered(entry)
        if no_ack:
            self.journal.settle(entry, now_ms)
        else:
            self.unacked_count += 1
        return entry

    # -- settle and requeue --------------------------------------------------------------------------------------

    def settle(self, entry: Entry, now_ms: i64) -> None:
        """An unacked entry is acked or rejected for good."""
        self.unacked_count -= 1
        self.settled_count += 1
        if entry.journal_state != NOT_JOURNALED:
            self.journal.settle(entry, now_ms)

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        """Unacked entries return to their original places, marked redelivered; then delivery goes on."""
        self.unacked_count -= len(entries)
        if self.is_deleted:
            for entry in entries:
                self.journal.settle(entry, now_ms)
            return
        entries.sort()
        for entry in entries:
            entry.consumer = None
            entry.redelivered = True
            if entry.expiry_ms != 0:
                self._expect_expiry()
        self.ready.requeue(entries)
        self.drop_expired_head(now_ms)
        self.deliver_ready(now_ms)
        if self.ready.count > 0 and len(self._ready_watchers) > 0:
            self._notify_watchers()

    def purge(self, now_ms: i64) -> i64:
        """Drop every ready message; returns how many."""
        count: i64 = self.ready.count
        while self.ready.count > 0:
            self.journal.settle(self.ready.fetch(), now_ms)
        return count

    def drop_expired_head(self, now_ms: i64) -> None:
        """Expiry acts at the head only (protocol 7.2)."""
        ready = self.ready
        while ready.count > 0:
            expiry_ms = ready.head().expiry_ms
            if expiry_ms == 0 or expiry_ms > now_ms:
                return
            self._drop_expired(ready.fetch(), now_ms)
        self.has_expiring = False

    # -- consumers -----------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer; delivery starts with the next `deliver_ready`."""
        self.consumers.append(consumer)
        self.had_consumer = True
        self.circle.add(consumer)

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        """Take a consumer out; True when the queue must be auto-deleted for want of consumers."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        consumer.is_cancelled = True
        self.circle.remove(consumer)
        self.last_used_ms = now_ms
        return self.auto_delete and self.had_consumer and len(self.consumers) == 0 and not self.is_deleted

    def consumer_can_take(self, consumer: Consumer) -> None:
        """The consumer has room again: it rejoins the circle at the end."""
        if not consumer.is_waiting and not consumer.is_cancelled:
            self.circle.add(consumer)

    def delete(self, now_ms: i64) -> list[Consumer]:
        """Drop all content; returns the consumers that must be told."""
        self.is_deleted = True
        self.journal.forget_queue(self.log)
        self.purge(now_ms)
        consumers = self.consumers
        self.consumers = []
        for consumer in consumers:
            consumer.is_cancelled = True
            self.circle.remove(consumer)
        self._notify_watchers()
        return consumers

    # -- reader groups -------------------------------------------------------------------------------------------

    def peek(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Ready entries from `from_seq` on, without taking them; at least one when there is one."""
        index = self.ready.index_of_seq(from_seq)
        count = self._count_within(index, max_messages, max_bytes)
        return [self.ready.at(index + offset) for offset in range(count)]

    def hold(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Take ready entries from `from_seq` on out of reach of consumers; they count as unacked."""
        index = self.ready.index_of_seq(from_seq)
        entries = self.ready.take_range(index, self._count_within(index, max_messages, max_bytes))
        self.unacked_count += len(entries)
        return entries

    def settle_held(self, entries: list[Entry], now_ms: i64) -> None:
        """Ack held entries."""
        for entry in entries:
            self.settle(entry, now_ms)

    def make_durable(self, entries: list[Entry], now_ms: i64) -> None:
        """Journal the entries that are not journaled yet (transient ones in a range that must survive)."""
        for entry in entries:
            if entry.journal_state == NOT_JOURNALED:
                message = entry.message
                # A copy of its own: the original may be shared with queues that keep it in memory only.
                entry.message = Message(
                    message.address,
                    message.properties,
                    message.body,
                    message.persistent,
                    message.timestamp_ms,
                )
                self.journal.publish(entry, now_ms)

    def watch_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a message becomes ready or the queue is deleted."""
        self._ready_watchers.append(callback)

    def unwatch_ready(self, callback: Callable[[], None]) -> None:
        """Forget a watcher that has not been called."""
        if callback in self._ready_watchers:
            self._ready_watchers.remove(callback)

    # -- recovery and relocation -----------------------------------------------------------------------------------

    def restore(self, positions: list[Position], log: QueueLog, is_clean: bool) -> None:
        """Take over the journal's live positions (ascending) after a start.

        After an unclean stop nobody knows what was delivered, so everything counts as redelivered (W29).
        """
        self.log.next_seq = log.next_seq
        self.log.delivered_upto = log.delivered_upto
        for position in positions:
            entry = Entry(position.message, self.log, position.seq, position.expiry_ms, self)
            entry.journal_state = position.journal_state
            entry.redelivered = position.redelivered or not is_clean or position.seq <= log.delivered_upto
            if entry.expiry_ms != 0:
                self._expect_expiry()
            self.ready.publish(entry)

    def ready_positions_in(self, file_number: i64) -> list[Entry]:
        """Ready entries whose record is in that journal file."""
        found: list[Entry] = []
        index: i64 = 0
        while index < self.ready.count:
            entry = self.ready.at(index)
            file = entry.message.file
            if file is not None and file.number == file_number:
                found.append(entry)
            index += 1
        return found

    # -- inside --------------------------------------------------------------------------------------------------

    def _hand_over(self, consumer: Consumer, entry: Entry) -> None:
        self._count_delivered(entry)
        self.unacked_count += 1
        consumer.unacked_count += 1
        entry.consumer = consumer
        consumer.deliver(entry)

    def _count_delivered(self, entry: Entry) -> None:
        self.delivered_count += 1
        if entry.seq > self.log.delivered_upto:
            self.log.delivered_upto = entry.seq

    def _expect_expiry(self) -> None:
        if not self.has_expiring:
            self.has_expiring = True
            self._timed_queues.add(self)

    def _drop_expired(self, entry: Entry, now_ms: i64) -> None:
        self.expired_count += 1
        if entry.journal_state != NOT_JOURNALED:
            self.journal.settle(entry, now_ms)

    def _count_within(self, index: i64, max_messages: i64, max_bytes: i64) -> i64:
        count: i64 = 0
        size_bytes: i64 = 0
        available: i64 = self.ready.count - index
        while count < available and count < max_messages:
            size_bytes += len(self.ready.at(index + count).message.body)
            if count > 0 and size_bytes > max_bytes:
                break
            count += 1
        return count

    def _notify_watchers(self) -> None:
        watchers = self._ready_watchers
        self._ready_watchers = []
        for watcher in watchers:
            watcher()


def _lower(queue_ttl_ms: i64, message_ttl_ms: i64) -> i64:
    if queue_ttl_ms == NO_LIMIT:
        return message_ttl_ms
    if message_ttl_ms == NO_LIMIT or queue_ttl_ms < message_ttl_ms:
        return queue_ttl_ms
    return message_ttl_ms
