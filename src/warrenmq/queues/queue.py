"""A queue: publish, deliver, settle, requeue (S48, S49).

An arriving message goes straight to a waiting consumer when no message is ready before it, else it
waits. `backing` has the messages, `demand` knows which consumers and readers want them. The queue
joins both: older messages go first, expired messages go to no consumer, and a consumer without room
gets nothing.

The head may be on disk. Delivery stops there and begins a load. When the load arrives, the queue
gets its share of the turn (`PagedQueue.run_slice`), which also does all that takes long, in slices:
paging, purges, expiry.

Only the holder of an unacked entry (a channel, a reader group) has a reference to it; the queue
counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.consumer_use import ConsumerUse
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.delta import UNKNOWN
from warrenmq.queues.entry import Consumer, Entry, EntryLedger, QueueEnd
from warrenmq.queues.head_demand import HeadDemand
from warrenmq.queues.leave_reason import EXPIRED
from warrenmq.queues.paged_queue import PagedQueue
from warrenmq.queues.purging import Purge
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.read_ahead import keep_ahead, want_head
from warrenmq.queues.settings import NO_LIMIT, QueueSettings, lower_ttl
from warrenmq.queues.transit import LARGE_BYTES, Transit
from warrenmq.queues.turn import SLICE_MESSAGES
from warrenmq.queues.variable_queue import EMPTY, LOADING, READY
from warrenmq.queues.waiting_consumers import ConsumerCircle
from warrenmq.store.message import Message

# `is_behind`: with fewer waiting messages a queue just has traffic.
BACKLOG_MIN: Final = 500
# `is_behind`: when the last delivery of a waiting message is longer ago, the consumers are slow,
# not the broker.
SERVED_RECENTLY_MS: Final = 2


class Queue(QueueEnd):
    """One classic queue: its declaration (`definition`), its current `settings`, its messages."""

    def __init__(self, definition: QueueDefinition, host: QueueHost, now_ms: i64) -> None:
        super().__init__(definition.name)
        self.id: i64 = definition.id
        self.durable = definition.durable
        self.definition: QueueDefinition = definition
        self.settings: QueueSettings = definition.settings
        self.demand: HeadDemand = HeadDemand()
        self.backing: PagedQueue = PagedQueue(
            EntryLedger(definition.id, self),
            self.demand,
            definition.durable,
            self.settings.is_lazy,
            host,
        )
        self.had_consumer: bool = False
        self.last_used_ms: i64 = now_ms
        # When a waiting message was last delivered to a consumer (ms).
        self.served_ms: i64 = 0
        self.consumer_use: ConsumerUse = ConsumerUse(now_ms)
        # The circle of `demand`; every message asks it.
        self._circle: ConsumerCircle = self.demand.circle
        # The room of `host` for large messages; every message asks it.
        self._transit: Transit = host.memory.transit
        # Callbacks of polling reader groups, each called once when messages become ready.
        self._ready_watchers: list[Callable[[], None]] = []

    # -- figures -----------------------------------------------------------------------------------

    @property
    def ledger(self) -> EntryLedger:
        """The ledger, which identifies this queue to the store and to its vhost."""
        return self.backing.ledger

    @property
    def next_seq(self) -> int:
        """Seq id that the next published message gets."""
        return self.backing.ledger.next_seq

    @property
    def ready_count(self) -> int:
        """Messages that wait in the queue."""
        return self.backing.ready.count

    @property
    def unacked_count(self) -> int:
        """Messages that are delivered or reserved and not settled yet."""
        return self.backing.unacked.count

    @property
    def consumers(self) -> list[Consumer]:
        """The queue's consumers, the oldest first."""
        return self.demand.consumers

    @property
    def is_deleted(self) -> bool:
        """Whether the queue was deleted."""
        return self.backing.is_deleted

    @property
    def exclusive_consumer(self) -> bool:
        """Whether one consumer has exclusive access to the queue."""
        consumers = self.demand.consumers
        return len(consumers) == 1 and consumers[0].exclusive

    def is_behind(self, now_ms: i64) -> bool:
        """Whether messages pile up although consumers are being served at this moment."""
        return (
            self.backing.ready.count > BACKLOG_MIN and now_ms - self.served_ms <= SERVED_RECENTLY_MS
        )

    # -- settings ----------------------------------------------------------------------------------

    def apply(self, settings: QueueSettings) -> None:
        """Replace the settings.

        A time to live applies to messages that arrive later, as it is noted on arrival.
        """
        before = self.settings
        self.settings = settings
        if settings.is_lazy != before.is_lazy:
            self.backing.memory.set_mode(settings.is_lazy)
        if settings.need_timer():
            self.backing.host.expect_timer(self.backing.ledger)

    # -- publish and deliver -----------------------------------------------------------------------

    def publish(
        self, message: Message, expiration_ms: i64, now_ms: i64, is_known: bool = False
    ) -> None:
        """Take a routed message: deliver it at once, or let it wait.

        `expiration_ms`: the message's own time to live (NO_LIMIT: none). `is_known`: a consumer may
        have had the message before, so it is marked redelivered.
        """
        backing = self.backing
        ttl_ms = self.settings.message_ttl_ms
        expiry_ms: i64 = 0
        if ttl_ms != NO_LIMIT or expiration_ms != NO_LIMIT:
            expiry_ms = now_ms + lower_ttl(ttl_ms, expiration_ms)
        entry = backing.make_entry(self, message, expiry_ms)
        if is_known:
            entry.redelivered = True
        size = entry.body_bytes
        if backing.ready.count == 0 and (
            size <= LARGE_BYTES or self._transit.admits(backing, size)
        ):
            consumer = self._circle.next_ready()
            if consumer is not None:
                if consumer.no_ack:
                    backing.pass_by(entry, True, now_ms)
                else:
                    backing.pass_by(entry, False, now_ms)
                    consumer.unacked_count += 1
                    entry.consumer = consumer
                consumer.deliver(entry)
                return
            self.consumer_use.stop(now_ms)
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self.leave(entry, EXPIRED, now_ms)
                return
        backing.append(entry, now_ms)
        if len(self._ready_watchers) > 0:
            self._notify_watchers()

    def deliver_ready(self, now_ms: i64) -> None:
        backing = self.backing
        ready = backing.ready
        if not self.consumer_use.is_ready and not self._circle.is_empty():
            self.consumer_use.resume(now_ms)
        if ready.count == 0 or self.demand.is_paused:
            return
        if not backing.memory.is_changed:
            backing.memory.touch()
        fetched: i64 = 0
        while ready.count > 0:
            if ready.head_state() != READY or not self._transit.admits(
                backing, ready.head().body_bytes
            ):
                break
            consumer = self._circle.next_ready()
            if consumer is None:
                self.consumer_use.stop(now_ms)
                break
            self.served_ms = now_ms
            entry = ready.fetch()
            fetched += 1
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self.leave(entry, EXPIRED, now_ms)
                if fetched >= SLICE_MESSAGES:
                    backing.on_arrival()
                    break
                continue
            if consumer.no_ack:
                backing.hand_out(entry, True, now_ms)
            else:
                backing.hand_out(entry, False, now_ms)
                consumer.unacked_count += 1
                entry.consumer = consumer
            consumer.deliver(entry)
        if ready.count > ready.ram_count and len(self.demand.consumers) > 0:
            keep_ahead(backing, fetched)

    def serve(self, now_ms: i64) -> None:
        self.drop_expired_head(now_ms)
        if self.is_deleted or not self.demand.is_paused:
            self.demand.serve_waiters(now_ms)
        self.deliver_ready(now_ms)

    def head_state(self, now_ms: i64) -> i64:
        """The state of the head: EMPTY, READY, or LOADING.

        Drops expired messages; at LOADING a caller waits by `when_head`.
        """
        if self.demand.is_paused:
            return LOADING if self.backing.ready.count > 0 else EMPTY
        self.demand.wanted_ms = now_ms
        if not self.drop_expired_head(now_ms):
            return LOADING
        return self.backing.ready.head_state()

    def when_head(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the time once the head may be in memory.

        The callback checks the head, and may wait again.
        """
        self.demand.waiters.append(callback)
        want_head(self.backing)

    def get(self, no_ack: bool, now_ms: i64) -> Entry | None:
        """basic.get: the oldest live entry, counted as unacked unless `no_ack`.

        None: `head_state` says why.
        """
        if self.head_state(now_ms) != READY:
            return None
        backing = self.backing
        backing.memory.touch()
        ready = backing.ready
        entry = ready.fetch()
        backing.hand_out(entry, no_ack, now_ms)
        if ready.count > ready.ram_count:
            keep_ahead(backing, 1)
        return entry

    # -- leave and requeue -------------------------------------------------------------------------

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        if reason == EXPIRED:
            self.backing.counters.expired += 1
            self.backing.drop(entry, reason, now_ms)
        else:
            self.backing.settle(entry, reason, now_ms)

    def drop_expired_head(self, now_ms: i64) -> bool:
        """Drop expired messages at the head, where alone expiry acts (protocol 7.2).

        False when the head is expired but has to be dropped in a later turn.
        """
        backing = self.backing
        ready = backing.ready
        dropped: i64 = 0
        while ready.count > 0:
            if not ready.has_head_entry():
                expiry_ms = ready.delta.first_expiry_ms
                if backing.has_expiring and (expiry_ms == UNKNOWN or 0 < expiry_ms <= now_ms):
                    want_head(backing)
                return True
            expiry_ms = ready.head().expiry_ms
            if expiry_ms == 0 or expiry_ms > now_ms:
                return True
            if dropped >= SLICE_MESSAGES:
                backing.on_arrival()
                return False
            self.leave(ready.fetch(), EXPIRED, now_ms)
            dropped += 1
        backing.has_expiring = False
        return True

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        backing = self.backing
        backing.requeue(entries, now_ms)
        if backing.is_deleted:
            return
        self.drop_expired_head(now_ms)
        backing.loader.fetches_until_read_ahead = 0
        if len(self.demand.waiters) > 0:
            backing.on_arrival()
        self.deliver_ready(now_ms)
        if backing.memory.pages:
            backing.memory.expect_paging()
        if backing.ready.count > 0 and len(self._ready_watchers) > 0:
            self._notify_watchers()

    def purge(self, now_ms: i64) -> Purge:
        """Drop every ready message.

        The messages are gone when this returns, and are settled a slice at a time.
        """
        if len(self.demand.waiters) > 0:
            self.backing.on_arrival()
        return self.backing.purge(now_ms)

    # -- consumers ---------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer; delivery starts with the next `deliver_ready`."""
        self.demand.consumers.append(consumer)
        self.had_consumer = True
        self._circle.add(consumer)

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        consumers = self.demand.consumers
        if consumer in consumers:
            consumers.remove(consumer)
        consumer.is_cancelled = True
        consumer.stop_waiting()
        self.last_used_ms = now_ms
        if self.backing.memory.pages:
            self.backing.memory.expect_paging()
        return (
            self.definition.auto_delete
            and self.had_consumer
            and len(consumers) == 0
            and not self.is_deleted
        )

    def consumer_can_take(self, consumer: Consumer) -> None:
        if consumer.waits_in is None and not consumer.is_cancelled:
            self._circle.add(consumer)

    def delete(self, now_ms: i64) -> list[Consumer]:
        """Drop all messages; returns the consumers whose clients must be notified."""
        self.backing.delete(now_ms)
        consumers = self.demand.consumers
        self.demand.consumers = []
        for consumer in consumers:
            consumer.is_cancelled = True
            consumer.stop_waiting()
        self.demand.serve_waiters(now_ms)
        self._notify_watchers()
        return consumers

    # -- reader groups -----------------------------------------------------------------------------

    def watch_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a message becomes ready or the queue is deleted."""
        self._ready_watchers.append(callback)

    def unwatch_ready(self, callback: Callable[[], None]) -> None:
        """Forget a watcher that was not called yet."""
        if callback in self._ready_watchers:
            self._ready_watchers.remove(callback)

    def resume_deliveries(self) -> None:
        """Resume deliveries; a reader group has taken back what it had reserved before a start."""
        self.demand.is_paused = False
        self.backing.on_arrival()

    # -- inside ------------------------------------------------------------------------------------

    def _notify_watchers(self) -> None:
        watchers = self._ready_watchers
        self._ready_watchers = []
        for watcher in watchers:
            watcher()
