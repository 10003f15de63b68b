"""A queue: publish, deliver, settle, requeue (S48, S49).

An arriving message goes straight to a waiting consumer when no message is ready before it, else it
waits. `backing` has the messages, `demand` knows which consumers and readers want them. The queue
joins both: older messages go first, expired messages go to no consumer, and a consumer without room
gets nothing.

The head may be on disk. Delivery stops there and begins a load. When the load arrives, the queue
gets its share of the turn (`PagedQueue.run_slice`), which also does all that takes long, in slices:
paging, purges, expiry, drops over a limit.

A priority queue serves the highest of its levels that has messages.

A message that the queue's dead-letter rule concerns does not leave at once. It stays unacked until
the vhost has handed it over, and then calls `let_go`.

Only the holder of an unacked entry (a channel, a reader group) has a reference to it; the queue
counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.delta import UNKNOWN
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.backing.purging import QueuePurge
from warrenmq.queues.backing.read_ahead import keep_ahead, want_head
from warrenmq.queues.backing.variable_queue import EMPTY, LOADING, READY
from warrenmq.queues.backing.waiting_consumers import ConsumerCircle
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.consumer_use import ConsumerUse
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import ALPHA, Consumer, Entry
from warrenmq.queues.hand_out_gate import OPEN
from warrenmq.queues.leave_reason import ACKED, DELIVERY_LIMIT, EXPIRED, MAXLEN
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.memory.transit import LARGE_BYTES, Transit
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.settings import (
    DROP_HEAD,
    NO_LIMIT,
    REJECT_PUBLISH_DLX,
    DeadLetterRule,
    LengthLimit,
    QueueSettings,
    lower_limit,
)
from warrenmq.queues.turn import SLICE_MESSAGES
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.model.epochs import epoch_of
from warrenmq.store.model.message import Message

# `is_behind`: with fewer waiting messages a queue just has traffic.
BACKLOG_MIN: Final = 500
# `is_behind`: when the last delivery of a waiting message is longer ago, the consumers are slow,
# not the broker.
SERVED_RECENTLY_MS: Final = 2


class Queue(LeveledQueue):
    """One classic queue: its declaration (`definition`), its current `settings`, its messages."""

    def __init__(self, definition: QueueDefinition, host: QueueHost, now_ms: i64) -> None:
        super().__init__(definition, host)
        # How many messages the queue may have; None: any number.
        self.limit: LengthLimit | None = self.settings.limit
        # A copy of a queue whose master is another node: it is in the store and serves nobody. Its
        # messages come and go by the master's operations only (`mirror/backing.py`).
        self.is_hidden: bool = False
        # None: no other node has a copy, and a confirm waits for this node's journal only. Set it
        # with `VhostQueues.set_confirm_source`.
        self.confirm_source: ConfirmSource | None = None
        # How often messages of a quorum queue were returned, by seq id: those that were.
        self.return_counts: dict[int, int] = {}
        # As RabbitMQ's quorum queues do, keep transient messages too.
        self.backing.journals_transient = definition.settings.traits.is_quorum
        self.last_used_ms: i64 = now_ms
        self.consumer_use: ConsumerUse = ConsumerUse(now_ms)
        # The circle of `demand`; every message asks it.
        self._circle: ConsumerCircle = self.demand.circle
        # The room of `host` for large messages; every message asks it.
        self._transit: Transit = host.memory.transit

    def is_behind(self, now_ms: i64) -> bool:
        return (
            self.ready_count > BACKLOG_MIN
            and now_ms - self.consumer_use.served_ms <= SERVED_RECENTLY_MS
        )

    @property
    def incarnation(self) -> i64:
        """The number that tells the lives of one name apart, the same on all nodes with a copy.

        The birth of the queue in its cluster; on a lone node its id, which is never used twice.
        """
        birth = self.definition.birth
        return birth if birth != 0 else self.id

    # -- settings ----------------------------------------------------------------------------------

    def apply(self, settings: QueueSettings) -> None:
        """Replace the settings.

        A time to live applies to messages that arrive later, as it is noted on arrival.
        """
        before = self.settings
        self.settings = settings
        self.limit = settings.limit
        if settings.is_lazy != before.is_lazy:
            for backing in self.backings():
                backing.memory.set_mode(settings.is_lazy)
        if settings.need_timer():
            self.backing.host.expect_timer(self.backing.ledger)
        if self.limit is not None:
            # The turn drops what is over the limit.
            self.backing.on_arrival()

    def set_paused(self, is_paused: bool) -> None:
        """Hand out nothing, or resume handing out.

        Publishes, acks, expiry, limits and dead letters continue while the queue is paused. Its
        messages are no heads: basic.get finds the queue empty, and reader groups wait.
        """
        self.is_paused = is_paused
        # In its next turn the queue delivers, or tells those who wait for its head.
        self.set_gate(self.gate)
        if not is_paused:
            self.demand.notify_ready()

    # -- publish and deliver -----------------------------------------------------------------------

    def publish(
        self,
        message: Message,
        expiration_ms: i64,
        now_ms: i64,
        is_known: bool = False,
        priority: i64 = 0,
        may_refuse: bool = True,
    ) -> bool:
        """Deliver the message at once, or let it wait; see `MessageTaker.publish`."""
        backing = self.backing
        if may_refuse:
            # Dead letters and staged messages may not be refused: publishes of clients may.
            backing.counters.routed += 1
        levels = self.levels
        ready_count = backing.ready.count
        if levels is not None:
            ready_count = levels.ready_count
        limit = self.limit
        if limit is not None and may_refuse and self._refuses(limit, message):
            return False
        if levels is not None and priority > 0:
            backing = self._level(levels, priority)
        ttl_ms = self.settings.message_ttl_ms
        expiry_ms: i64 = 0
        if ttl_ms != NO_LIMIT or expiration_ms != NO_LIMIT:
            expiry_ms = now_ms + lower_limit(ttl_ms, expiration_ms)
        entry = backing.make_entry(self, message, expiry_ms)
        if is_known:
            entry.redelivered = True
            # Note the earlier delivery, or a mirror that learns them anew would drop the mark.
            backing.store.note_delivered(entry.seq, entry.seq)
        size = entry.body_bytes
        if (
            ready_count == 0
            and now_ms < self.demand.gate.until_ms
            and (size <= LARGE_BYTES or self._transit.admits(backing, size))
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
                return True
            self.consumer_use.stop(now_ms)
        if (
            ttl_ms == 0
            and self.settings.dead_letters is None
            and not self.settings.traits.is_quorum
        ):
            # Nothing has to make room for what the queue never keeps. A quorum queue keeps it until
            # it is the head.
            self._drop(backing, entry, EXPIRED, now_ms)
            return True
        if limit is not None and not self._make_room(limit, backing, size, now_ms):
            self._drop(backing, entry, MAXLEN, now_ms)
            return True
        if ready_count == 0 and expiry_ms != 0 and expiry_ms <= now_ms:
            self._drop(backing, entry, EXPIRED, now_ms)
            return True
        backing.append(entry, now_ms)
        if limit is not None and backing.has_expiring:
            # The dropped messages may have been in front of expired ones.
            self.drop_expired_head(now_ms)
        if len(self.demand.ready_watchers) > 0:
            self.demand.notify_ready()
        return True

    def has_room(self) -> bool:
        source = self.confirm_source
        return source is None or source.has_room()

    def is_drained(self) -> bool:
        source = self.confirm_source
        return source is None or source.is_drained()

    def confirm_party(self, is_for_last: bool = False) -> ConfirmParty | None:
        source = self.confirm_source
        return None if source is None else source.party()

    def deliver_ready(self, now_ms: i64) -> None:
        if not self.consumer_use.is_ready and not self._circle.is_empty():
            self.consumer_use.resume(now_ms)
        levels = self.levels
        if levels is None:
            self._deliver_from(self.backing, now_ms)
            return
        for level in levels.levels:
            if level.ready.count > 0:
                self._deliver_from(level, now_ms)
                if level.ready.count > 0:
                    return

    def _deliver_from(self, backing: PagedQueue, now_ms: i64) -> None:
        ready = backing.ready
        if ready.count == 0 or self.demand.awaits_older or now_ms >= self.demand.gate.until_ms:
            return
        if not backing.memory.is_changed:
            backing.memory.touch()
        fetched: i64 = 0
        while ready.has_head_entry():
            head = ready.head()
            if head.form != ALPHA or not self._transit.admits(backing, head.body_bytes):
                break
            if head.expiry_ms != 0 and head.expiry_ms <= now_ms:
                if not self._may_drop(backing, now_ms):
                    break
                if fetched >= SLICE_MESSAGES:
                    backing.on_arrival()
                    break
                fetched += 1
                self._drop(backing, ready.fetch(), EXPIRED, now_ms)
                continue
            consumer = self._circle.next_ready()
            if consumer is None:
                self.consumer_use.stop(now_ms)
                break
            self.consumer_use.served_ms = now_ms
            entry = ready.fetch()
            fetched += 1
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
        if self.is_hidden:
            return
        self._trim_head(now_ms)
        if not self.demand.is_held(now_ms) or self.is_paused or self.is_deleted:
            self.demand.serve_waiters(now_ms)
        self.deliver_ready(now_ms)

    def head_state(self, now_ms: i64) -> i64:
        """The state of the head: EMPTY, READY, or LOADING.

        Drops expired messages; at LOADING a caller waits by `when_head`. A paused queue is EMPTY.
        """
        if self.is_paused:
            return EMPTY
        if self.demand.is_held(now_ms):
            return LOADING if self.ready_count > 0 else EMPTY
        self.demand.wanted_ms = now_ms
        if not self.drop_expired_head(now_ms):
            return LOADING
        return self._top().ready.head_state()

    def count_late_publish(self) -> None:
        """Count a client's publish that waited at a delayed exchange, and is not refused."""
        self.backing.counters.routed += 1

    def count_empty_get(self) -> None:
        """Count a basic.get that is answered without a message."""
        self.backing.counters.got_empty += 1

    def when_head(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the time once the head may be in memory.

        The callback checks the head, and may wait again.
        """
        self.demand.waiters.append(callback)
        want_head(self._top())

    def get(self, no_ack: bool, now_ms: i64) -> Entry | None:
        """basic.get: the oldest live entry, counted as unacked unless `no_ack`.

        None: `head_state` says why.
        """
        if self.head_state(now_ms) != READY:
            return None
        backing = self._top()
        backing.memory.touch()
        ready = backing.ready
        entry = ready.fetch()
        backing.hand_out(entry, no_ack, now_ms)
        if no_ack:
            backing.counters.got_settled += 1
        else:
            backing.counters.got_unacked += 1
        if ready.count > ready.ram_count:
            keep_ahead(backing, 1)
        # get-ok tells how many remain, and the next message may be expired.
        self.drop_expired_head(now_ms)
        return entry

    # -- leave and requeue -------------------------------------------------------------------------

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        levels = self.levels
        backing = self.backing if levels is None else levels.of_ledger(entry.ledger)
        if reason == ACKED:
            backing.counters.acked += 1
        else:
            rule = self.settings.dead_letters
            if rule is not None and not backing.is_deleted:
                backing.unacked.leaving_count += 1
                backing.host.dead_letter(entry, reason, rule)
                return
        if len(self.return_counts) > 0:
            self.return_counts.pop(entry.seq, None)
        backing.settle(entry, reason, now_ms)

    def let_go(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle an entry that `QueueHost.dead_letter` was given: it is handed over."""
        if len(self.return_counts) > 0:
            self.return_counts.pop(entry.seq, None)
        self.backing_of(entry.ledger).end_leaving(entry, reason, now_ms)

    def settle_stale(self, level: i64, seq: i64, epoch: i64, reason: i64, now_ms: i64) -> None:
        backing = self.level_at(level)
        if backing is None or backing.is_deleted or epoch_of(backing.ledger.epochs, seq) > epoch:
            return
        ready = backing.ready
        place = ready.index_of_seq(seq)
        if place >= ready.entry_count or ready.at(place).seq != seq:
            # A message that is on disk only stays, and is delivered again: nothing in memory tells
            # whether it is still there.
            return
        (entry,) = ready.take_range(place, 1)
        if reason == ACKED:
            backing.counters.acked += 1
        rule = self.settings.dead_letters if reason != ACKED else None
        if rule is None:
            backing.drop(entry, reason, now_ms)
        else:
            backing.begin_leaving(entry, now_ms)
            backing.host.dead_letter(entry, reason, rule)
        self.return_counts.pop(seq, None)

    def on_stale_freed(self, consumer: Consumer) -> None:
        """Nothing: the consumer waits in the queue's circle, or comes back to it."""

    def _may_drop(self, backing: PagedQueue, now_ms: i64) -> bool:
        """Whether the head may be dropped now; if not, the queue gets a turn when it may."""
        if self.demand.is_restoring:
            return False
        return self.settings.dead_letters is None or (
            now_ms < self.gate.until_ms and backing.host.admits_dead_letter(backing)
        )

    def _drop(self, backing: PagedQueue, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Drop `entry`, which was the head or has just arrived, for `reason`."""
        if reason == EXPIRED:
            backing.counters.expired += 1
        if len(self.return_counts) > 0:
            self.return_counts.pop(entry.seq, None)
        rule = self.settings.dead_letters
        if rule is None:
            backing.drop(entry, reason, now_ms)
        else:
            backing.begin_leaving(entry, now_ms)
            backing.host.dead_letter(entry, reason, rule)

    def drop_expired_head(self, now_ms: i64) -> bool:
        """Drop expired messages at the head, where alone expiry acts (protocol 7.2).

        False when the head is expired but has to be dropped in a later turn.
        """
        levels = self.levels
        if levels is None:
            return self._drop_expired(self.backing, now_ms)
        for level in levels.levels:
            if not self._drop_expired(level, now_ms):
                return False
            if level.ready.count > 0:
                break
        return True

    def _drop_expired(self, backing: PagedQueue, now_ms: i64) -> bool:
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
            if not self._may_drop(backing, now_ms):
                return False
            self._drop(backing, ready.fetch(), EXPIRED, now_ms)
            dropped += 1
        backing.has_expiring = False
        return True

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        if self.settings.traits.is_quorum:
            entries = self._within_delivery_limit(entries, now_ms)
        self._take_back(entries, False, now_ms)

    def put_back(self, entries: list[Entry], now_ms: i64) -> None:
        """Return unacked entries that no client has had to their places; deliver again.

        They are marked redelivered only if a later message of their level was handed out.
        """
        self._take_back(entries, True, now_ms)

    def _take_back(self, entries: list[Entry], is_unseen: bool, now_ms: i64) -> None:
        levels = self.levels
        if levels is None:
            self.backing.requeue(entries, now_ms, is_unseen)
        else:
            for level in levels.levels:
                own = [entry for entry in entries if entry.ledger is level.ledger]
                if len(own) > 0:
                    level.requeue(own, now_ms, is_unseen)
        if self.backing.is_deleted:
            return
        self._trim_head(now_ms)
        if len(self.demand.waiters) > 0:
            self.backing.on_arrival()
        self.deliver_ready(now_ms)
        for backing in self.backings():
            backing.loader.fetches_until_read_ahead = 0
            if backing.memory.pages:
                backing.memory.expect_paging()
        if len(self.demand.ready_watchers) > 0 and self.ready_count > 0:
            self.demand.notify_ready()

    def _within_delivery_limit(self, entries: list[Entry], now_ms: i64) -> list[Entry]:
        """Count the return of `entries`; those that were returned too often leave the queue."""
        limit = self.settings.delivery_limit
        kept: list[Entry] = []
        for entry in entries:
            count: i64 = self.return_counts.get(entry.seq, 0) + 1
            if limit != NO_LIMIT and count > limit:
                self.leave(entry, DELIVERY_LIMIT, now_ms)
            else:
                self.return_counts[entry.seq] = count
                kept.append(entry)
        return kept

    def return_count(self, entry: Entry) -> i64:
        count: int = self.return_counts.get(entry.seq, 0)
        return count

    def purge(self, now_ms: i64) -> QueuePurge:
        """Drop every ready message.

        The messages are gone when this returns, and are settled a slice at a time. Copies on other
        nodes drop them a little later, which the purge waits for.
        """
        if len(self.demand.waiters) > 0:
            self.backing.on_arrival()
        counts = self.return_counts
        if len(counts) > 0:
            unacked = self.backing.find_unacked(0, self.backing.ledger.next_seq)
            self.return_counts = {
                entry.seq: counts[entry.seq] for entry in unacked if entry.seq in counts
            }
        purges = [backing.purge(now_ms) for backing in self.backings()]
        return QueuePurge(purges, self.confirm_party())

    # -- limits ------------------------------------------------------------------------------------

    def is_full_for(self, message: Message) -> bool:
        limit = self.limit
        return limit is not None and self._is_over(limit, message)

    def refused_rule(self) -> DeadLetterRule | None:
        limit = self.limit
        if limit is None or limit.overflow != REJECT_PUBLISH_DLX:
            return None
        return self.settings.dead_letters

    def _is_over(self, limit: LengthLimit, message: Message) -> bool:
        return limit.overflow != DROP_HEAD and limit.is_exceeded(
            self.ready_count + 1, self.ready_body_bytes + len(message.body)
        )

    def _refuses(self, limit: LengthLimit, message: Message) -> bool:
        """Whether `limit` refuses a published message; it may become a dead letter."""
        if not self._is_over(limit, message):
            return False
        rule = self.refused_rule()
        if rule is not None:
            self.backing.host.dead_letter_refused(self, message, rule)
        return True

    def _trim_head(self, now_ms: i64) -> None:
        """Drop messages over the limit, then expired ones, which may have been behind those."""
        limit = self.limit
        if limit is not None and limit.overflow == DROP_HEAD:
            self._drop_over(limit, self.backing, 0, 0, now_ms)
        self.drop_expired_head(now_ms)

    def _make_room(self, limit: LengthLimit, level: PagedQueue, size: i64, now_ms: i64) -> bool:
        """Drop ready messages until one of `size` bytes fits into `level`.

        False if it cannot fit, or would be the head and the next to be dropped.
        """
        if limit.overflow != DROP_HEAD:
            return True
        self._drop_over(limit, level, 1, size, now_ms)
        return self._head_level(level).ready.count > 0 or not limit.is_exceeded(
            self.ready_count + 1, self.ready_body_bytes + size
        )

    def _drop_over(
        self, limit: LengthLimit, lowest: PagedQueue, more: i64, more_bytes: i64, now_ms: i64
    ) -> None:
        """Drop the head, of no level below `lowest`, until `more` of `more_bytes` bytes have room.

        What takes long, or has to be read from disk first, is dropped in later turns.
        """
        dropped: i64 = 0
        backing = self._head_level(lowest)
        while backing.ready.count > 0 and limit.is_exceeded(
            self.ready_count + more, self.ready_body_bytes + more_bytes
        ):
            if not self._may_drop(backing, now_ms):
                return
            if not backing.ready.has_head_entry():
                want_head(backing)
                return
            if dropped >= SLICE_MESSAGES:
                backing.on_arrival()
                return
            self._drop(backing, backing.ready.fetch(), MAXLEN, now_ms)
            dropped += 1
            if self.levels is not None:
                backing = self._head_level(lowest)

    # -- consumers ---------------------------------------------------------------------------------

    def admits_consumer(self, exclusive: bool) -> bool:
        """Whether a consumer, `exclusive` or not, may join the others."""
        traits = self.settings.traits
        return traits.is_quorum or not (
            self.exclusive_consumer
            or (exclusive and (traits.is_single_active or len(self.consumers) > 0))
        )

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer; delivery starts with the next `deliver_ready`."""
        self.demand.add(consumer)

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        consumer.is_cancelled = True
        consumer.stop_waiting()
        if self.demand.remove(consumer):
            self.backing.on_arrival()
        self.last_used_ms = now_ms
        for backing in self.backings():
            if backing.memory.pages:
                backing.memory.expect_paging()
        return (
            self.definition.auto_delete
            and self.demand.had_consumer
            and len(self.demand.consumers) == 0
            and not self.is_deleted
        )

    def consumer_can_take(self, consumer: Consumer) -> None:
        if consumer.waits_in is None and not consumer.is_cancelled:
            self._circle.add(consumer)

    def hide(self) -> list[Consumer]:
        """Become a hidden copy, as another node is the master now; returns the consumers.

        Call `end_hiding` when the queue is known as the other node's.
        """
        self.begin_hidden()
        self.confirm_source = None
        self.is_paused = False
        self.set_gate(OPEN)
        return self.demand.release_all()

    def begin_hidden(self) -> None:
        """Be a copy, new or restored, of a queue whose master is another node."""
        self.is_hidden = True
        self.follow_seqs()

    def end_hiding(self, now_ms: i64) -> None:
        """Call all that wait for messages; they find the queue hidden."""
        self.demand.serve_waiters(now_ms)
        self.demand.notify_ready()

    def unhide(self, now_ms: i64) -> None:
        """Serve clients, from the next turn on: this node is the queue's master now."""
        self.is_hidden = False
        self.last_used_ms = now_ms
        for backing in self.backings():
            backing.store.is_copy = False
            backing.on_arrival()

    def delete(self, now_ms: i64) -> list[Consumer]:
        """Drop all messages; returns the consumers whose clients must be notified."""
        for backing in self.backings():
            backing.delete(now_ms)
        consumers = self.demand.take_all()
        self.demand.serve_waiters(now_ms)
        self.demand.notify_ready()
        return consumers

    # -- reader groups -----------------------------------------------------------------------------

    def watch_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a message becomes ready or the queue is deleted."""
        self.demand.ready_watchers.append(callback)

    def unwatch_ready(self, callback: Callable[[], None]) -> None:
        """Forget a watcher that was not called yet."""
        if callback in self.demand.ready_watchers:
            self.demand.ready_watchers.remove(callback)

    def resume_deliveries(self) -> None:
        """Resume deliveries; a reader group has taken back what it had reserved."""
        self.demand.restoring_count -= 1
        self.backing.on_arrival()
