"""An entry: one message in one queue from publish to ack; and what queue and consumer may call.

A client or reader that has a message unacked returns it through `Entry.queue`, a `QueueEnd`; the
holder need not know the kind of the queue.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Destination
from warrenmq.store.model.message import (
    ABSENT,
    INDEXED,
    NOT_JOURNALED,
    Message,
    Position,
    QueueLedger,
)

# Forms: where the content and the position of an entry are; see `backing/variable_queue.py`.
ALPHA: Final = 0  # content in memory
BETA: Final = 1  # content in a content store, position in memory only
GAMMA: Final = 2  # content on disk, position in the index and in memory


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueEnd(Destination):
    """The side of a queue that consumers and all holders of its unacked messages may call."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name, True)

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Let an unacked entry go for `reason` (`leave_reason.py`): it may become a dead letter."""
        raise RuntimeError("abstract")

    def let_go(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle an unacked entry that has become a dead letter for `reason`."""
        raise RuntimeError("abstract")

    def return_count(self, entry: Entry) -> i64:
        """How often `entry` was returned, if the queue counts that; else 0."""
        raise RuntimeError("abstract")

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        """Return unacked entries, marked redelivered, to their original places; deliver again."""
        raise RuntimeError("abstract")

    def begin_return(self) -> None:
        """Deliver nothing until `end_return`: messages return in several calls of `requeue`."""
        # A queue of another node, and one that has moved, takes each part as it comes.

    def end_return(self) -> None:
        """Deliver again, from the next turn on."""

    def deliver_ready(self, now_ms: i64) -> None:
        """Deliver ready messages while a consumer has room and the head is in memory."""
        raise RuntimeError("abstract")

    def consumer_can_take(self, consumer: Consumer) -> None:
        """Let a consumer with room again wait for messages, last among those of its priority."""
        raise RuntimeError("abstract")

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        """Remove a consumer; True when the queue has none left and must be auto-deleted."""
        raise RuntimeError("abstract")

    def serve(self, now_ms: i64) -> None:
        """Serve all that wait for the head, which may have been loaded or may have expired.

        Called in the queue's share of a turn.
        """
        raise RuntimeError("abstract")


@mypyc_attr(acyclic=True)
class Entry(Position):
    """A position that a queue holds; while it is unacked, it also knows its consumer.

    The cycle collector does not track entries, since a queue may hold millions. Code that drops a
    queue or a channel therefore empties its containers, so that no cycle through entries remains.
    """

    def __init__(
        self, message: Message, ledger: QueueLedger, seq: i64, expiry_ms: i64, queue: QueueEnd
    ) -> None:
        super().__init__(message, ledger, seq, expiry_ms)
        self.queue: QueueEnd = queue
        # The consumer that has the entry unacked; None for basic.get and reader groups.
        self.consumer: Consumer | None = None
        # The channel's delivery tag of the entry; set while it is unacked.
        self.delivery_tag: i64 = 0
        # The form as which the queue's accounts count the entry. The store sets `has_content` in
        # the midst of a load; `form` becomes ALPHA when the load ends.
        self.form: i64 = ALPHA

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.seq < other.seq

    def is_on_disk(self) -> bool:
        """Whether the content can be dropped from memory without writing anything."""
        return self.journal_state == INDEXED or (
            self.journal_state == NOT_JOURNALED and self.content_ref is not None
        )

    def drop_content(self) -> None:
        """Drop the content from memory; a copy must be on disk."""
        self.message = ABSENT
        self.has_content = False
        self.form = GAMMA if self.journal_state == INDEXED else BETA


class EntryLedger(QueueLedger):
    """The ledger of a queue that exists on this node: the store loads entries for it."""

    def __init__(self, queue_id: i64, queue: QueueEnd) -> None:
        super().__init__(queue_id)
        # None: the queue is deleted; the store reads its index only to release references.
        self.queue: QueueEnd | None = queue

    def make_position(self, message: Message, seq: i64, expiry_ms: i64) -> Position:
        queue = self.queue
        if queue is None:
            return Position(message, self, seq, expiry_ms)
        return Entry(message, self, seq, expiry_ms, queue)


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer:
    """One basic.consume. `prefetch_count` 0 = no limit; the channel's limits are in `can_take`."""

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
        # The place where the consumer waits: its queue's circle for a message, or a rotation for
        # room that consumers share. None: the consumer waits for acks, as its own prefetch is full.
        self.waits_in: WaitingPlace | None = None
        self.is_cancelled: bool = False

    def can_take(self) -> bool:
        """Whether the consumer can be given one more message at this moment."""
        raise RuntimeError("abstract")

    def wait_for_room(self) -> None:
        """Wait for room; called when the consumer has left the circle, as it cannot take more."""

    def stop_waiting(self) -> None:
        """Leave the circle or the rotation; called on a cancel."""
        place = self.waits_in
        if place is not None:
            place.remove(self)

    def deliver(self, entry: Entry) -> None:
        """Send `entry` to the client.

        The queue has counted the entry as unacked (or settled it, for no-ack) already.
        """
        raise RuntimeError("abstract")

    def shares_room(self) -> bool:
        """Whether the consumer shares a prefetch with others of its channel."""
        raise RuntimeError("abstract")

    def reserve(self, count: i64) -> i64:
        """Keep shared room for at most `count` messages from another node; returns for how many."""
        raise RuntimeError("abstract")

    def release(self, count: i64) -> None:
        """Free the shared room that was reserved for `count` messages."""
        raise RuntimeError("abstract")

    def serve_others(self, now_ms: i64) -> None:
        """Serve consumers that wait for shared room, some of which is free again."""
        raise RuntimeError("abstract")

    def wait_in_turn(self) -> None:
        """Wait for shared room, behind all others that wait, unless its own prefetch is full."""
        raise RuntimeError("abstract")

    def on_queue_deleted(self) -> None:
        """Send the client a consumer cancel notification, as the queue is deleted."""
        raise RuntimeError("abstract")

    def on_queue_moved(self) -> bool:
        """Whether the consumer is to be subscribed again at the queue's new master.

        If not, it is gone, and its client is told if it wants to be.
        """
        raise RuntimeError("abstract")


class WaitingPlace:
    """A place where consumers wait (`waiting_consumers.py`); a consumer is in one at a time."""

    def remove(self, consumer: Consumer) -> None:
        """Remove `consumer`, which waits here."""
        raise RuntimeError("abstract")
