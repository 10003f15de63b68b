"""The buckets of delayed messages: a hidden queue for each stretch of time in which some are due.

Messages that are due within four minutes are in buckets of a second, later ones in buckets of two
minutes, and those that are due in nine hours or more in buckets of almost five hours. When the time
of a wide bucket comes near, its messages move on to narrower ones. So a message is written three
times at most, and no more than a few hundred buckets exist, whatever the number of messages.

Each bucket is durable and paged like any queue: what waits long is on disk only. No client can
name, bind or consume one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.read_ahead import want_head
from warrenmq.queues.backing.variable_queue import READY
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Consumer, Entry
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.model.message import Message

# The width of a bucket of each kind is 2 ** shift ms: 1 s, 131 s, 4.7 h.
SHIFTS: Final = (10, 17, 24)
# Bits of a bucket's number that hold the start of its time, in widths since 1970.
_START_BITS: Final = 48


def bucket_number(due_ms: i64, now_ms: i64) -> i64:
    """The number of the bucket for a message that is due at `due_ms` (since 1970)."""
    kind: i64 = 0
    for width in SHIFTS[1:]:
        if due_ms < now_ms + (2 << width):
            break
        kind += 1
    return (kind << _START_BITS) | (due_ms >> SHIFTS[kind])


class DelayBucket(LeveledQueue):
    """The messages that are due within one stretch of time, in order of arrival."""

    def __init__(self, number: i64, ledger_id: i64, host: QueueHost) -> None:
        kind: i64 = number >> _START_BITS
        shift: i64 = SHIFTS[kind]
        start: i64 = number & ((1 << _START_BITS) - 1)
        # Messages that wait for minutes need not be in memory.
        settings = QueueSettings(is_lazy=kind > 0)
        definition = QueueDefinition(
            b"delayed messages", ledger_id, True, False, None, b"", settings
        )
        super().__init__(definition, host)
        # The message must outlive a restart, even if its publisher did not ask for it.
        self.backing.journals_transient = True
        self.number: i64 = number
        # The bucket's messages are due in [start_ms, end_ms).
        self.start_ms: i64 = start << shift
        self.end_ms: i64 = (start + 1) << shift
        # No message can arrive in the bucket from this time on (`bucket_number`).
        self.closed_ms: i64 = self.end_ms
        # The messages are taken out from this time on: to be published, or for narrower buckets.
        self.drain_ms: i64 = self.start_ms - (1 << shift)
        if kind > 0:
            self.closed_ms = self.end_ms - (2 << shift)
            self.drain_ms = self.closed_ms
        self._is_waiting: bool = False

    def add(self, message: Message, due_ms: i64, is_known: bool, now_ms: i64) -> None:
        """Keep `message` until `due_ms`; `is_known`: a consumer may have had it before."""
        entry = self.backing.make_entry(self, message, due_ms)
        entry.redelivered = is_known
        self.backing.append(entry, now_ms)

    def take(self, now_ms: i64) -> Entry | None:
        """Take the oldest message, which is unacked then; None: there is none in memory yet."""
        ready = self.backing.ready
        if ready.count == 0:
            return None
        # A lazy bucket would page a loaded head out again before it is taken.
        self.demand.wanted_ms = now_ms
        if ready.head_state() != READY:
            if not self._is_waiting:
                self._is_waiting = True
                self.demand.waiters.append(self._on_head)
            want_head(self.backing)
            return None
        entry = ready.fetch()
        self.backing.begin_leaving(entry, now_ms)
        return entry

    def is_empty(self) -> bool:
        """Whether the bucket has no message, ready or unacked."""
        return self.backing.ready.count == 0 and self.backing.unacked.count == 0

    def _on_head(self, _now_ms: int) -> None:
        self._is_waiting = False
        self.backing.host.wake()

    # -- the side of a queue -----------------------------------------------------------------------

    def let_go(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        self.backing.end_leaving(entry, reason, now_ms)

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        self.let_go(entry, reason, now_ms)

    def serve(self, now_ms: i64) -> None:
        self.demand.serve_waiters(now_ms)

    def deliver_ready(self, now_ms: i64) -> None:
        """A bucket has no consumers."""

    def return_count(self, _entry: Entry) -> i64:
        return 0

    def requeue(self, _entries: list[Entry], _now_ms: i64) -> None:
        raise RuntimeError("nobody returns messages to a bucket")

    def consumer_can_take(self, _consumer: Consumer) -> None:
        raise RuntimeError("a bucket has no consumers")

    def remove_consumer(self, _consumer: Consumer, _now_ms: i64) -> bool:
        raise RuntimeError("a bucket has no consumers")
