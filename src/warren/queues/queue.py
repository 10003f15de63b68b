"""A queue: publish, deliver, settle, requeue (S48, S49).

An arriving message goes straight to a waiting consumer when nothing is ready before it, else it waits in the variable
queue. A persistent message in a durable queue is given to the journal on the way, except for a consumer without
acknowledgements: that message is gone when it is handed over and needs no record.

The head may be on disk. Delivery stops there, a load is begun, and when it arrives the queue asks for its share of the
turn (`work`), in which everything that takes long is done, too: paging, purges, expiry, each in slices.

Entries that are out (unacked) are known to whoever holds them (a channel, a reader group); the queue counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warren.queues.arguments import NO_LIMIT, QueueArguments, lower_ttl
from warren.queues.consumer import Consumer, ConsumerCircle
from warren.queues.entry import ALPHA, Entry, EntryLog
from warren.queues.loading import Loader
from warren.queues.paging import DONE, MORE, SLICE_MESSAGES, Progress, index_slice, page_slice
from warren.queues.purging import Purge, begin_purge, work_on_purges
from warren.queues.queue_host import QueueHost
from warren.queues.queue_memory import QueueMemory
from warren.queues.read_ahead import keep_ahead, want_head
from warren.queues.transit import Transit
from warren.queues.variable_queue import EMPTY, INFINITE, LOADING, READY, UNKNOWN, VariableQueue
from warren.routing.exchange import Destination
from warren.store.message import INDEXED, NOT_JOURNALED, Message, Position
from warren.store.queue_store import QueueStore

# `is_behind`: fewer waiting messages are just traffic; longer ago means the consumers are slow, not the broker.
BACKLOG_MIN: Final = 500
SERVED_RECENTLY_MS: Final = 2
# A client that gets messages one by one counts as a consumer for so long after each (ms).
GET_DEMAND_MS: Final = 1000


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
        host: QueueHost,
        now_ms: i64,
    ) -> None:
        super().__init__(name, True)
        self.id: i64 = queue_id
        self.durable = durable
        self.auto_delete: bool = auto_delete
        self.owner: object | None = owner
        self.arguments: QueueArguments = arguments
        self.host: QueueHost = host
        self.log: EntryLog = EntryLog(queue_id, self)
        self.store: QueueStore = host.open_store(self.log, durable)
        self.ready: VariableQueue = VariableQueue()
        self.unacked_count: i64 = 0
        # Of those, the ones whose content is not in memory, and the bytes of the content that is.
        self.paged_out_count: i64 = 0
        self.out_bytes: i64 = 0
        self.circle: ConsumerCircle = ConsumerCircle()
        self.consumers: list[Consumer] = []
        self.had_consumer: bool = False
        self.is_deleted: bool = False
        self.message_ttl_ms: i64 = arguments.message_ttl_ms
        self.last_used_ms: i64 = now_ms
        # A ready message may expire.
        self.has_expiring: bool = False
        # When a waiting message was last given to a consumer.
        self.served_ms: i64 = 0
        self.published_count: i64 = 0
        self.delivered_count: i64 = 0
        self.settled_count: i64 = 0
        self.requeued_count: i64 = 0
        self.expired_count: i64 = 0
        # Paging: see `paging.py`. `pages` is set while there is anything to look after.
        self.is_lazy: bool = arguments.is_lazy
        self.target_ram_count: i64 = INFINITE
        self.pages: bool = arguments.is_lazy
        self.memory: QueueMemory = QueueMemory(host.memory, self)
        self.is_touched: bool = False
        self.is_listed: bool = False
        self.loader: Loader = Loader()
        self.is_reading_ahead: bool = False
        # Steps that the last `work` took.
        self.worked_count: i64 = 0
        self.progress: Progress = Progress()
        # Nothing is handed out until a reader group has taken what it held before the start.
        self.is_held_back: bool = False
        # Transient messages are journaled, too: a reader group wants them to outlive a restart (`reader_group.py`).
        self.journals_transient: bool = False
        # Highest seq id that was unacked since the start.
        self.unacked_upto: i64 = 0
        self._transit: Transit = host.memory.transit
        self.has_arrivals: bool = False
        # When somebody last wanted the head, and the time of the last `work`.
        self._wanted_ms: i64 = -GET_DEMAND_MS
        self._worked_ms: i64 = 0
        # Fetches until the next look at what should be read ahead.
        self.until_look: i64 = 0
        self.purges: list[Purge] = []
        # Called once, when the head is there or the queue is empty, with the time.
        self.head_waiters: list[Callable[[int], None]] = []
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

    @property
    def ram_count(self) -> i64:
        """Messages whose content is in memory, unacked ones included (S60)."""
        return self.ready.ram_count + self.unacked_count - self.paged_out_count

    @property
    def first_ready_seq(self) -> int:
        """Where ready messages begin; where the next one will be when there is none. On disk only, it is a lower bound."""
        if self.ready.has_head_entry():
            return self.ready.head().seq
        return self.ready.delta.start if self.ready.count > 0 else self.log.next_seq

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

    def has_demand(self) -> bool:
        """Does anybody want the head?"""
        return (
            len(self.consumers) > 0
            or len(self.head_waiters) > 0
            or self._worked_ms - self._wanted_ms < GET_DEMAND_MS
        )

    def out_upto(self) -> i64:
        """No unacked message, and none that ever was, has a higher seq id."""
        return max(self.log.delivered_upto, self.unacked_upto)

    # -- publish and deliver -----------------------------------------------------------------------------------

    def publish(self, message: Message, expiration_ms: i64, now_ms: i64, is_known: bool = False) -> None:
        """Take a routed message. `expiration_ms`: its own time to live (NO_LIMIT: none). `is_known`: somebody may have it."""
        if not self.is_touched:
            self.touch()
        log = self.log
        seq = log.next_seq
        log.next_seq = seq + 1
        self.published_count += 1
        self.host.arrived_count += 1
        entry = Entry(message, log, seq, 0, self)
        entry.redelivered = is_known
        if self.message_ttl_ms != NO_LIMIT or expiration_ms != NO_LIMIT:
            entry.expiry_ms = now_ms + lower_ttl(self.message_ttl_ms, expiration_ms)
        if self.ready.count == 0 and self._transit.admits(self, entry.body_bytes):
            consumer = self.circle.next_ready()
            if consumer is not None:
                if consumer.no_ack:
                    self._count_delivered(entry)
                    consumer.deliver(entry)
                    return
                if self.durable and (message.persistent or self.journals_transient):
                    self.store.publish(entry, now_ms)
                self._hand_over(consumer, entry)
                return
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self.expired_count += 1
                return
        if entry.expiry_ms != 0:
            self.expect_expiry()
        if self.durable and (message.persistent or self.journals_transient):
            self.store.publish(entry, now_ms)
        self.ready.publish(entry)
        if self.pages and not self.is_listed:
            self._expect_paging()
        if len(self._ready_watchers) > 0:
            self._notify_watchers()

    def deliver_ready(self, now_ms: i64) -> None:
        """Give ready messages to consumers for as long as somebody can take one and the head is in memory."""
        if self.is_held_back:
            return
        if not self.is_touched:
            self.touch()
        ready = self.ready
        fetched: i64 = 0
        while ready.count > 0:
            if ready.head_state() != READY or not self._transit.admits(self, ready.head().body_bytes):
                break
            consumer = self.circle.next_ready()
            if consumer is None:
                break
            self.served_ms = now_ms
            entry = ready.fetch()
            fetched += 1
            if entry.expiry_ms != 0 and entry.expiry_ms <= now_ms:
                self._drop_expired(entry, now_ms)
                if fetched >= SLICE_MESSAGES:
                    self.on_arrival()
                    break
                continue
            if consumer.no_ack:
                self._count_delivered(entry)
                self._settle_record(entry, now_ms)
                consumer.deliver(entry)
            else:
                self._hand_over(consumer, entry)
        if ready.count > ready.ram_count and len(self.consumers) > 0:
            keep_ahead(self, fetched)

    def look_at_head(self, now_ms: i64) -> i64:
        """EMPTY, READY, or LOADING: then somebody has to wait for it (`when_head`). Drops what is expired."""
        if self.is_held_back:
            return LOADING if self.ready.count > 0 else EMPTY
        self._wanted_ms = now_ms
        if not self.drop_expired_head(now_ms):
            return LOADING
        return self.ready.head_state()

    def when_head(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the time once the head may be there. It looks again, and may wait again."""
        self.head_waiters.append(callback)
        want_head(self)

    def get(self, no_ack: bool, now_ms: i64) -> Entry | None:
        """basic.get: the oldest live entry, counted as unacked unless `no_ack`. None: look at the head to see why."""
        if self.look_at_head(now_ms) != READY:
            return None
        self.touch()
        entry = self.ready.fetch()
        self._count_delivered(entry)
        if no_ack:
            self._settle_record(entry, now_ms)
        else:
            self._count_out(entry)
        if self.ready.count > self.ready.ram_count:
            keep_ahead(self, 1)
        return entry

    # -- settle and requeue --------------------------------------------------------------------------------------

    def settle(self, entry: Entry, now_ms: i64) -> None:
        """An unacked entry is acked or rejected for good."""
        if not self.is_touched:
            self.touch()
        self.unacked_count -= 1
        self.settled_count += 1
        if entry.form == ALPHA:
            self.out_bytes -= entry.content_bytes
        else:
            self.paged_out_count -= 1
            entry.form = ALPHA
        if entry.seq >= self.log.indexed_upto:
            self.log.unindexed_out -= 1
            if entry.journal_state != NOT_JOURNALED or entry.content is not None:
                self.store.settle(entry, now_ms)
        elif not self.is_deleted:
            load = self.loader.current
            if load is not None:
                load.settled.add(entry.seq)
            self.store.settle(entry, now_ms)

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        """Unacked entries return to their original places, marked redelivered; then delivery goes on."""
        if not self.is_touched:
            self.touch()
        entries.sort()
        for entry in entries:
            self.unacked_count -= 1
            self.requeued_count += 1
            if entry.seq >= self.log.indexed_upto:
                self.log.unindexed_out -= 1
            if entry.form == ALPHA:
                self.out_bytes -= entry.content_bytes
            else:
                self.paged_out_count -= 1
        if self.is_deleted:
            for entry in entries:
                if entry.journal_state != INDEXED:
                    self._settle_record(entry, now_ms)
            return
        for entry in entries:
            entry.consumer = None
            entry.redelivered = True
            if entry.expiry_ms != 0:
                self.expect_expiry()
        self.ready.requeue(entries)
        self.drop_expired_head(now_ms)
        self.until_look = 0
        if len(self.head_waiters) > 0:
            self.on_arrival()
        self.deliver_ready(now_ms)
        if self.pages and not self.is_listed:
            self._expect_paging()
        if self.ready.count > 0 and len(self._ready_watchers) > 0:
            self._notify_watchers()

    def purge(self, now_ms: i64) -> Purge:
        """Drop every ready message: they are gone when this returns, and settled a slice at a time."""
        if len(self.head_waiters) > 0:
            self.on_arrival()
        if not self.is_touched:
            self.touch()
        return begin_purge(self, False, now_ms)

    def drop_expired_head(self, now_ms: i64) -> bool:
        """Expiry acts at the head only (protocol 7.2). False when the head is expired, and to be dropped in a later turn."""
        ready = self.ready
        dropped: i64 = 0
        while ready.count > 0:
            if not ready.has_head_entry():
                expiry_ms = ready.delta.first_expiry_ms
                if self.has_expiring and (expiry_ms == UNKNOWN or 0 < expiry_ms <= now_ms):
                    want_head(self)
                return True
            expiry_ms = ready.head().expiry_ms
            if expiry_ms == 0 or expiry_ms > now_ms:
                return True
            if dropped >= SLICE_MESSAGES:
                self.on_arrival()
                return False
            self._drop_expired(ready.fetch(), now_ms)
            dropped += 1
        self.has_expiring = False
        return True

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
        consumer.stop_waiting()
        self.last_used_ms = now_ms
        if self.pages and not self.is_listed:
            self._expect_paging()
        return self.auto_delete and self.had_consumer and len(self.consumers) == 0 and not self.is_deleted

    def consumer_can_take(self, consumer: Consumer) -> None:
        """The consumer has room again: it rejoins the circle at the end."""
        if consumer.waits_in is None and not consumer.is_cancelled:
            self.circle.add(consumer)

    def delete(self, now_ms: i64) -> list[Consumer]:
        """Drop all content; returns the consumers that must be told."""
        self.is_deleted = True
        if not self.is_touched:
            self.touch()
        begin_purge(self, True, now_ms)
        consumers = self.consumers
        self.consumers = []
        for consumer in consumers:
            consumer.is_cancelled = True
            consumer.stop_waiting()
        self._serve_waiters(now_ms)
        self._notify_watchers()
        return consumers

    # -- reader groups -------------------------------------------------------------------------------------------

    def peek(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Ready entries in memory from `from_seq` on, without taking them; at least one when there is one.

        None when the first one `is_on_disk`; they end where delta begins.
        """
        if self.ready.is_on_disk(from_seq):
            return []
        index = self.ready.index_of_seq(from_seq)
        count = self._count_within(index, max_messages, max_bytes)
        return [self.ready.at(index + offset) for offset in range(count)]

    def hold(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Take ready entries in memory from `from_seq` on out of reach of consumers; they count as unacked."""
        if self.ready.is_on_disk(from_seq):
            return []
        index = self.ready.index_of_seq(from_seq)
        entries = self.ready.take_range(index, self._count_within(index, max_messages, max_bytes))
        self.take_held(entries)
        return entries

    def watch_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a message becomes ready or the queue is deleted."""
        self._ready_watchers.append(callback)

    def unwatch_ready(self, callback: Callable[[], None]) -> None:
        """Forget a watcher that has not been called."""
        if callback in self._ready_watchers:
            self._ready_watchers.remove(callback)

    def release_hold(self) -> None:
        """A reader group has what it held before the start: deliveries may begin."""
        self.is_held_back = False
        self.on_arrival()

    # -- start-up ------------------------------------------------------------------------------------------------

    def restore_delta(self, start: i64, end: i64, count: i64, size_bytes: i64) -> None:
        """After a start, before `restore`: `count` messages of [start, end) are in the index (`size_bytes`: about)."""
        self.ready.restore_delta(start, end, count, size_bytes)
        if count > 0 and self.message_ttl_ms != NO_LIMIT:
            self.expect_expiry()

    def restore(self, positions: list[Position], is_clean: bool) -> None:
        """Take over live positions (ascending) that are in the journal only, after a start. `log` is restored already.

        After an unclean stop nobody knows what was delivered, so everything counts as redelivered (W29).
        """
        log = self.log
        if not is_clean:
            log.delivered_upto = max(log.delivered_upto, log.next_seq - 1)
        for position in positions:
            entry = Entry(position.message, log, position.seq, position.expiry_ms, self)
            entry.journal_state = position.journal_state
            # What is in the journal outlives restarts, whatever its publisher wanted.
            entry.persistent = True
            entry.has_content = position.has_content
            entry.content = position.content
            entry.body_bytes = position.body_bytes
            entry.content_bytes = position.content_bytes
            entry.redelivered = position.redelivered or position.seq <= log.delivered_upto
            if entry.expiry_ms != 0:
                self.expect_expiry()
            self.ready.restore(entry)

    # -- paging --------------------------------------------------------------------------------------------------

    def set_mode(self, is_lazy: bool) -> None:
        """Lazy or default; a live queue changes over a slice at a time."""
        self.is_lazy = is_lazy
        self._look_after_pages()

    def set_target(self, target_ram_count: i64) -> None:
        """How many messages may be in memory."""
        self.target_ram_count = target_ram_count
        self._look_after_pages()

    def index_upto(self, seq: i64, limit: i64) -> bool:
        """Move live positions below `seq` to the index, at most `limit`; True when none is left. Nothing leaves memory."""
        return self.is_deleted or index_slice(self, seq, limit) == DONE

    def work(self, now_ms: i64) -> i64:
        """The queue's share of a turn's end: what has arrived from disk, and a slice of what takes long.

        DONE, MORE, WAIT_FOR_SEAL, WAIT_FOR_DISK: whether, and when, it should be called again.
        """
        self.is_listed = False
        self.worked_count = 0
        self._worked_ms = now_ms
        outcome: i64 = DONE
        if len(self.purges) > 0 and work_on_purges(self, now_ms):
            outcome = MORE
        if self.has_arrivals:
            self.has_arrivals = False
            self.drop_expired_head(now_ms)
            self._serve_waiters(now_ms)
            self.deliver_ready(now_ms)
        if self.pages and not self.is_deleted:
            paged = page_slice(self)
            if outcome == DONE or paged == MORE:
                outcome = paged
        if self.memory.ram_bytes != self.memory.held_bytes():
            # What was paged is told like anything else, or the monitor would go on asking for it.
            self.touch()
        return outcome

    def ask_for_turn(self) -> None:
        """`work` is to be called at the end of this turn."""
        if not self.is_listed:
            self.is_listed = True
            self.host.paging.append(self)
            self.host.wake()

    def on_arrival(self) -> None:
        """Something has come from disk, or waits for the end of the turn: ask for a share of it."""
        self.has_arrivals = True
        self.ask_for_turn()

    def take_held(self, entries: list[Entry]) -> None:
        """Ready messages have become somebody's unacked ones."""
        self.touch()
        for entry in entries:
            self._count_out(entry)

    def expect_expiry(self) -> None:
        """A message that expires becomes ready."""
        if not self.has_expiring:
            self.has_expiring = True
            self.host.expect_timer(self)

    def touch(self) -> None:
        """What is in memory changes: the account is told at the end of the turn."""
        if not self.is_touched:
            self.is_touched = True
            self.memory.begin()
            self.host.touched.append(self)

    # -- inside --------------------------------------------------------------------------------------------------

    def _hand_over(self, consumer: Consumer, entry: Entry) -> None:
        self._count_delivered(entry)
        self._count_out(entry)
        consumer.unacked_count += 1
        entry.consumer = consumer
        consumer.deliver(entry)

    def _count_delivered(self, entry: Entry) -> None:
        self.delivered_count += 1
        if entry.seq > self.log.delivered_upto:
            self.log.delivered_upto = entry.seq

    def _count_out(self, entry: Entry) -> None:
        self.unacked_count += 1
        if entry.seq > self.unacked_upto:
            self.unacked_upto = entry.seq
        if entry.form == ALPHA:
            self.out_bytes += entry.content_bytes
        else:
            self.paged_out_count += 1
        if entry.seq >= self.log.indexed_upto:
            self.log.unindexed_out += 1

    def _settle_record(self, entry: Entry, now_ms: i64) -> None:
        if entry.journal_state != NOT_JOURNALED or entry.content is not None:
            self.store.settle(entry, now_ms)

    def _drop_expired(self, entry: Entry, now_ms: i64) -> None:
        self.touch()
        self.expired_count += 1
        # A load of its content that is under way must not find it unacked.
        entry.form = ALPHA
        self._settle_record(entry, now_ms)

    def _serve_waiters(self, now_ms: i64) -> None:
        if self.is_held_back and not self.is_deleted:
            return
        waiters = self.head_waiters
        self.head_waiters = []
        for waiter in waiters:
            waiter(now_ms)

    def _look_after_pages(self) -> None:
        self.pages = self.is_lazy or self.target_ram_count < INFINITE
        if self.pages and not self.is_listed:
            self._expect_paging()

    def _expect_paging(self) -> None:
        if self.is_lazy or self.ram_count > self.target_ram_count:
            self.ask_for_turn()

    def _count_within(self, index: i64, max_messages: i64, max_bytes: i64) -> i64:
        count: i64 = 0
        size_bytes: i64 = 0
        available: i64 = self.ready.run_length(index)
        while count < available and count < max_messages:
            size_bytes += self.ready.at(index + count).body_bytes
            if count > 0 and size_bytes > max_bytes:
                break
            count += 1
        return count

    def _notify_watchers(self) -> None:
        watchers = self._ready_watchers
        self._ready_watchers = []
        for watcher in watchers:
            watcher()
