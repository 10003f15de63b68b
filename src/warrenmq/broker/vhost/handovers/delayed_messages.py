"""Delayed messages: published to a delayed exchange, and routed when their time has come.

A message with a delay is kept in the bucket for the time at which it is due (`delay_buckets.py`).
Shortly before, it is taken out of the bucket and waits in a heap, by time. When it is due, it is
routed by the bindings of that moment and handed over (`handovers.py`), so a crash finds it in the
bucket or in its queues. It is never early. It is late by up to the 50 ms of the broker's timer, and
by more if more than TAKEN_MESSAGES_MAX are due within a second or two.

The buckets are parts without an owner in the definitions: a start finds them by their numbers.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.content.properties import PublishProperties, inspect_properties
from warrenmq.broker.definitions.metadata import DeleteQueuePart, PutQueuePart
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.handovers.delay_buckets import DelayBucket, bucket_number
from warrenmq.broker.vhost.handovers.handovers import Handovers
from warrenmq.broker.vhost.handovers.taken_entries import TakenEntries
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.copies import CopyOptions, CopyWaiter, distant_of, local_of
from warrenmq.queues.backing.loading import EntryContents
from warrenmq.queues.entry import ALPHA, Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.routing.delay import X_DELAY, delay_ms
from warrenmq.routing.exchange import Exchange
from warrenmq.store.model.message import NOT_JOURNALED, Message, MovedMessage, QueueLedger
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.field_types import TAG_LONG, TAG_SIGNED_INT
from warrenmq.wire.properties import decode_properties

# Messages that one turn takes out of buckets, and messages that it publishes.
SLICE_MESSAGES: Final = 1024
# Steps (`VhostQueues.route_steps`) at which a turn publishes no more, as for dead letters.
SLICE_STEPS: Final = 4096
# Messages, and bytes of their content, that may wait in the heap.
TAKEN_MESSAGES_MAX: Final = 65_536
TAKEN_BYTES_MAX: Final = 32 * 1024 * 1024
# Contents that are read from disk together.
_LOAD_MESSAGES: Final = 256
_INT_MAX: Final = (1 << 31) - 1
_NEVER_MS: Final = 1 << 62


class DelayedMessages:
    """The delayed messages of one vhost."""

    def __init__(self, vhost: VhostQueues, handovers: Handovers) -> None:
        self._vhost: VhostQueues = vhost
        self.handovers: Handovers = handovers
        # Buckets by number.
        self.buckets: dict[int, DelayBucket] = {}
        # Messages that were taken out of buckets and are not due yet: when they are due, a number
        # that keeps messages of one time in order, the entry.
        self._heap: list[tuple[int, int, Entry]] = []
        self._taken_count: i64 = 0
        # The entries of the heap and those whose content is being read.
        self._taken: TakenEntries = TakenEntries()
        # When `advance` has something to do (ms).
        self._next_ms: i64 = _NEVER_MS
        self.slice_steps: i64 = SLICE_STEPS
        # The properties of the last message that was due.
        self._properties: PublishProperties = PublishProperties(b"\x00\x00")
        vhost.host.unacked_finders.append(self._taken.find)
        vhost.host.loss_watchers.append(self._forget_lost)

    # -- arrival -----------------------------------------------------------------------------------

    def keep(
        self, message: Message, exchange: Exchange, headers: bytes, is_known: bool, now_ms: i64
    ) -> None:
        """Keep `message`, which has to wait at `exchange` (`Router.route`).

        `headers`: the body of its headers table. `is_known`: a consumer may have had it before.
        """
        name = exchange.name
        if message.exchange() != name:
            # The message came here through other exchanges, and goes on from here.
            key = message.routing_key()
            address = bytes([len(name)]) + name + bytes([len(key)]) + key
            message = Message(address, message.properties, message.body, message.persistent, now_ms)
        due_ms = now_ms + delay_ms(decode_table(headers))
        self._bucket(due_ms, now_ms).add(message, due_ms, is_known, now_ms)

    def keep_all(
        self,
        message: Message,
        exchanges: list[Exchange],
        headers: bytes,
        is_known: bool,
        now_ms: i64,
    ) -> None:
        """Keep `message` for each of `exchanges`, as `keep` does."""
        for exchange in exchanges:
            self.keep(message, exchange, headers, is_known, now_ms)

    def _bucket(self, due_ms: i64, now_ms: i64) -> DelayBucket:
        number = bucket_number(due_ms, now_ms)
        bucket = self.buckets.get(number)
        if bucket is None:
            vhost = self._vhost
            ledger_id = vhost.node.next_queue_id()
            vhost.add_part(PutQueuePart(vhost.name, ledger_id, 0, number))
            bucket = self.restore(number, ledger_id)
        return bucket

    # -- start -------------------------------------------------------------------------------------

    def restore(self, number: i64, ledger_id: i64) -> DelayBucket:
        """Create a bucket; after a start it gets its messages later."""
        bucket = DelayBucket(number, ledger_id, self._vhost.host)
        self.buckets[number] = bucket
        self._next_ms = min(self._next_ms, bucket.drain_ms)
        return bucket

    # -- figures -----------------------------------------------------------------------------------

    def waiting_count(self) -> i64:
        """Messages that wait, and those that are due and not in their queues yet."""
        count: i64 = 0
        for bucket in self.buckets.values():
            count += bucket.backing.ready.count + bucket.backing.unacked.count
        return count

    # -- turns -------------------------------------------------------------------------------------

    def tick(self, now_ms: i64) -> None:
        """Ask for a turn if there is something to do; called by the broker's timer."""
        if self._next_ms <= now_ms or self.handovers.remote.is_due(now_ms):
            self._vhost.node.wake()

    def advance(self, now_ms: i64) -> bool:
        """Publish what is due, and take out of buckets what soon will be; True if more is left."""
        if self._next_ms > now_ms:
            return False
        has_more = self._publish_due(now_ms)
        left: i64 = SLICE_MESSAGES
        next_ms: i64 = _NEVER_MS
        for bucket in list(self.buckets.values()):
            if bucket.drain_ms > now_ms:
                next_ms = min(next_ms, bucket.drain_ms)
                continue
            taken = self._drain(bucket, left, now_ms)
            left -= taken
            if bucket.closed_ms <= now_ms and bucket.is_empty():
                self._remove(bucket, now_ms)
            else:
                # The bucket may get more, or waits for its messages or for the journal.
                next_ms = min(next_ms, now_ms + 1)
        if len(self._heap) > 0:
            next_ms = min(next_ms, i64(self._heap[0][0]))
        self._next_ms = next_ms
        return has_more or left <= 0

    def _drain(self, bucket: DelayBucket, limit: i64, now_ms: i64) -> i64:
        """Take at most `limit` messages out of `bucket`; returns their number."""
        taken: i64 = 0
        while taken < limit:
            if (
                self._taken.count >= TAKEN_MESSAGES_MAX
                or self._taken.content_bytes >= TAKEN_BYTES_MAX
                or not self.handovers.admits(bucket.backing)
            ):
                break
            entry = bucket.take(now_ms)
            if entry is None:
                break
            taken += 1
            due_ms = entry.expiry_ms
            number = bucket_number(due_ms, now_ms)
            if number != bucket.number and due_ms > now_ms:
                self._move_on(entry, number, now_ms)
            else:
                self._taken.add(entry)
                self._push(entry)
        return taken

    def _push(self, entry: Entry) -> None:
        self._taken_count += 1
        heappush(self._heap, (entry.expiry_ms, self._taken_count, entry))

    def _move_on(self, entry: Entry, number: i64, now_ms: i64) -> None:
        """Hand a message over to a narrower bucket."""
        message = entry.message
        self.handovers.take(entry)
        copy = _copy(entry, message.address, message.properties, message.persistent, now_ms)
        self._bucket(entry.expiry_ms, now_ms).add(copy, entry.expiry_ms, entry.redelivered, now_ms)
        self._let_go(entry, copy, now_ms)

    def _let_go(self, entry: Entry, copy: Message, now_ms: i64) -> None:
        if isinstance(copy, MovedMessage):
            self.handovers.on_moved(entry, ACKED, copy)
        else:
            self.handovers.settle(entry, ACKED, now_ms)

    def _publish_due(self, now_ms: i64) -> bool:
        """Publish a slice of the messages that are due; True if others are due as well."""
        heap = self._heap
        absent: list[Entry] = []
        published: i64 = 0
        vhost = self._vhost
        steps_end: i64 = vhost.route_steps + self.slice_steps
        has_share = True
        while len(heap) > 0 and heap[0][0] <= now_ms:
            entry = heap[0][2]
            bucket = entry.queue
            assert isinstance(bucket, DelayBucket)
            has_share = published < SLICE_MESSAGES and vhost.route_steps < steps_end
            if not has_share or not self.handovers.admits(bucket.backing):
                break
            heappop(heap)
            if not self._taken.has(entry):
                # The content is lost, and the bucket has settled the entry.
                continue
            if entry.form != ALPHA:
                absent.append(entry)
                if len(absent) >= _LOAD_MESSAGES:
                    break
                continue
            self._taken.remove(entry)
            self.handovers.take(entry)
            self._publish(entry, now_ms)
            published += 1
        if len(absent) > 0:
            self._load(absent)
        return not has_share

    def _publish(self, entry: Entry, now_ms: i64) -> None:
        vhost = self._vhost
        message = entry.message
        exchange = vhost.router.exchanges.get(message.exchange())
        if exchange is None:
            # The delayed messages of a deleted exchange are gone, as in RabbitMQ.
            self.handovers.settle(entry, ACKED, now_ms)
            return
        raw = _after_delay(message.properties)
        if raw != self._properties.source:
            self._properties = inspect_properties(raw)
        properties = self._properties
        keys = [message.routing_key(), *properties.extra_routing_keys]
        waits: list[Exchange] = []
        queues = vhost.route(exchange, keys, properties.headers, raw, waits)
        if len(queues) == 0 and len(waits) == 0:
            self.handovers.settle(entry, ACKED, now_ms)
            return
        distant = distant_of(queues)
        due = _DueMessage(self, entry, local_of(queues), waits, properties)
        due.copy = _copy(entry, message.address, raw, properties.persistent, now_ms)
        if len(distant) == 0:
            due.on_copied(now_ms)
        else:
            options = CopyOptions(properties.expiration_ms, properties.priority, entry.redelivered)
            # No MOVE yet: a copy of a mirrored queue that has it may be replaced by another one.
            copy = Message(message.address, raw, message.body, properties.persistent, now_ms)
            self.handovers.remote.send(due, distant, copy, options, now_ms)

    def arrive(self, due: _DueMessage, now_ms: i64) -> None:
        """Publish `due` to its queues on this node, and let it go."""
        entry = due.entry
        if not self.handovers.has(entry):
            # The content is lost, and the bucket has settled the entry.
            return
        properties = due.properties
        is_known = entry.redelivered
        handovers = self._vhost.host.handovers
        assert handovers is not None
        copy = due.copy
        if len(due.queues) == 1 and len(due.waits) == 0 and isinstance(copy, MovedMessage):
            moved = handovers.move_refused(due.queues[0], copy, now_ms)
            if moved is not None:
                self._let_go(entry, moved, now_ms)
                return
        takers = handovers.takers(due.queues, due.copy, now_ms)
        ttl_ms, priority = properties.expiration_ms, properties.priority
        arrive(takers, due.copy, ttl_ms, priority, now_ms, is_known, may_refuse=False)
        for taker in takers:
            if isinstance(taker, Queue):
                taker.count_late_publish()
        exchange = self._vhost.router.exchanges.get(due.copy.exchange())
        if exchange is not None:
            exchange.publish_out += len(takers)
        self.keep_all(due.copy, due.waits, properties.headers, is_known, now_ms)
        self._let_go(entry, due.copy, now_ms)

    def _load(self, entries: list[Entry]) -> None:
        """Read the contents of entries that are due, and push the entries back."""
        for bucket in self.buckets.values():
            own = [entry for entry in entries if entry.queue is bucket]
            if len(own) > 0:
                bucket.backing.loader.submit(
                    EntryContents(
                        bucket.backing, own, self._taken.has, _Loaded(self, own).on_contents
                    )
                )

    def on_contents(self, entries: list[Entry]) -> None:
        """Push back the entries whose contents were read; lost ones are forgotten already."""
        for entry in entries:
            if self._taken.has(entry):
                self._push(entry)
        self._next_ms = 0
        self._vhost.node.wake()

    def _forget_lost(self, _ledger: QueueLedger, lost: list[Entry]) -> None:
        for entry in lost:
            if self._taken.has(entry):
                self._taken.remove(entry)
                bucket = entry.queue
                if isinstance(bucket, DelayBucket):
                    bucket.backing.unacked.leaving_count -= 1

    def _remove(self, bucket: DelayBucket, now_ms: i64) -> None:
        vhost = self._vhost
        del self.buckets[bucket.number]
        bucket.backing.delete(now_ms)
        vhost.host.forget(bucket)
        vhost.add_changes([DeleteQueuePart(vhost.name, bucket.definition.id)])


class _Loaded:
    """Entries of one bucket whose contents are being read."""

    def __init__(self, delayed: DelayedMessages, entries: list[Entry]) -> None:
        self._delayed: DelayedMessages = delayed
        self._entries: list[Entry] = entries

    def on_contents(self, _lost: list[Entry]) -> None:
        """Publish them with the others that are due."""
        self._delayed.on_contents(self._entries)


class _DueMessage(CopyWaiter):
    """A message that is due: the queues of this node and the exchanges that get its `copy`."""

    def __init__(
        self,
        delayed: DelayedMessages,
        entry: Entry,
        queues: list[MessageTaker],
        waits: list[Exchange],
        properties: PublishProperties,
    ) -> None:
        self.entry: Entry = entry
        self.queues: list[MessageTaker] = queues
        self.waits: list[Exchange] = waits
        self.properties: PublishProperties = properties
        self.copy: Message = entry.message
        self._delayed: DelayedMessages = delayed

    def on_copied(self, now_ms: i64) -> None:
        self._delayed.arrive(self, now_ms)


def _copy(entry: Entry, address: bytes, raw: bytes, persistent: bool, now_ms: i64) -> Message:
    """The message of `entry` to be published once more; with a MOVE if the entry is on disk."""
    body = entry.message.body
    if entry.journal_state == NOT_JOURNALED:
        return Message(address, raw, body, persistent, now_ms)
    return MovedMessage(address, raw, body, persistent, now_ms, entry.ledger.queue_id, entry.seq)


def _after_delay(raw: bytes) -> bytes:
    """The property block of a message that has waited: `x-delay` is negative."""
    decoded = decode_properties(raw)
    headers = decoded.headers
    if headers is None:
        return raw
    table = decode_table(headers)
    waited = delay_ms(table)
    table[X_DELAY] = Field(TAG_SIGNED_INT if waited <= _INT_MAX else TAG_LONG, -waited)
    decoded.headers = encode_table(table)
    return decoded.encode()
