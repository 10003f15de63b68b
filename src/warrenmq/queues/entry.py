"""An entry: one message in one queue, from publish to ack; and what its holders know of the queue and of each other.

Whoever has a message unacked gives it back through its `queue`, a `QueueEnd`: it need not know what kind of queue that is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Destination
from warrenmq.store.message import ABSENT, INDEXED, NOT_JOURNALED, Message, Position, QueueLedger

# Where the content and the position of an entry are; see `variable_queue.py`.
ALPHA: Final = 0  # content in memory
BETA: Final = 1  # content in a content store, position in memory only
GAMMA: Final = 2  # content on disk, position in the index and in memory


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueEnd(Destination):
    """The end of a queue at which messages leave it: what its consumers, and all who hold its messages, may ask of it."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name, True)

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """An entry leaves the queue for `reason` (`leave_reason.py`): an unacked one, or the head when it has expired."""
        raise RuntimeError("abstract")

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        """Unacked entries return to their original places, marked redelivered; then delivery goes on."""
        raise RuntimeError("abstract")

    def deliver_ready(self, now_ms: i64) -> None:
        """Give ready messages to consumers for as long as somebody can take one and the head is in memory."""
        raise RuntimeError("abstract")

    def consumer_can_take(self, consumer: Consumer) -> None:
        """The consumer has room again: it waits for messages, behind the others of its priority."""
        raise RuntimeError("abstract")

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        """Take a consumer out; True when the queue must be auto-deleted for want of consumers."""
        raise RuntimeError("abstract")

    def serve(self, now_ms: i64) -> None:
        """The head may have come from disk, or be expired: whoever waits for it looks again. Called in the queue's share of
        a turn."""
        raise RuntimeError("abstract")


@mypyc_attr(acyclic=True)
class Entry(Position):
    """A position that a queue holds; while it is unacked it also knows who has it.

    Entries are not tracked by the cycle collector (a queue may hold millions): whoever drops a queue or a channel
    empties its containers, so that no cycle through them stays behind.
    """

    def __init__(
        self, message: Message, ledger: QueueLedger, seq: i64, expiry_ms: i64, queue: QueueEnd
    ) -> None:
        super().__init__(message, ledger, seq, expiry_ms)
        self.queue: QueueEnd = queue
        # Set while it is out: the consumer (None for basic.get and reader groups) and the channel's delivery tag.
        self.consumer: Consumer | None = None
        self.delivery_tag: i64 = 0
        # As what its queue counts it. `has_content` is the store's word and turns true in the midst of a load; this
        # becomes ALPHA at its end.
        self.form: i64 = ALPHA

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.seq < other.seq

    def is_on_disk(self) -> bool:
        """May its content be dropped from memory without anything being written?"""
        return self.journal_state == INDEXED or (
            self.journal_state == NOT_JOURNALED and self.content_ref is not None
        )

    def drop_content(self) -> None:
        """Give up the content in memory; it is on disk."""
        self.message = ABSENT
        self.has_content = False
        self.form = GAMMA if self.journal_state == INDEXED else BETA


class EntryLedger(QueueLedger):
    """The log of a queue that is here: what the store loads for it are entries."""

    def __init__(self, queue_id: i64, queue: QueueEnd) -> None:
        super().__init__(queue_id)
        # None: it was deleted, and only the store reads its index, to release what it refers to.
        self.queue: QueueEnd | None = queue

    def make_position(self, message: Message, seq: i64, expiry_ms: i64) -> Position:
        queue = self.queue
        if queue is None:
            return Position(message, self, seq, expiry_ms)
        return Entry(message, self, seq, expiry_ms, queue)


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer:
    """One basic.consume. `prefetch_count` 0 = no limit; the channel's own limits are in `can_take`."""

    def __init__(
        self,
        queue: QueueEnd,
        tag: bytes,
        no_ack: bool,
        exclusive: bool,
        priority: i64,
        prefetch_count: i64,
    ) -> None:
        self.queue: QueueEnd = queue
        self.tag: bytes = tag
        self.no_ack: bool = no_ack
        self.exclusive: bool = exclusive
        self.priority: i64 = priority
        self.prefetch_count: i64 = prefetch_count
        self.unacked_count: i64 = 0
        # Where it waits: for a message in its queue's circle, for room it shares in a rotation. None: its own prefetch is full.
        self.waits_in: WaitingPlace | None = None
        self.is_cancelled: bool = False

    def can_take(self) -> bool:
        """May it be given one more message now?"""
        raise RuntimeError("abstract")

    def wait_for_room(self) -> None:
        """Wait elsewhere for room: called when the consumer has left the circle because it cannot take more."""

    def stop_waiting(self) -> None:
        """Leave the circle or rotation, on a cancel."""
        place = self.waits_in
        if place is not None:
            place.remove(self)

    def deliver(self, entry: Entry) -> None:
        """Send it `entry`. The queue has counted the entry as unacked (or settled it, for no-ack) already."""
        raise RuntimeError("abstract")

    def on_queue_deleted(self) -> None:
        """The queue is gone: tell the client (consumer cancel notification)."""
        raise RuntimeError("abstract")


class WaitingPlace:
    """Where a consumer waits; in one at a time (`waiting_consumers.py`)."""

    def remove(self, consumer: Consumer) -> None:
        """`consumer`, which waits here, waits no longer."""
        raise RuntimeError("abstract")
