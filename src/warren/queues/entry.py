"""An entry: one message in one queue, from publish to ack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from warren.store.message import ABSENT, INDEXED, NOT_JOURNALED, Message, Position, QueueLog

if TYPE_CHECKING:
    from warren.queues.consumer import Consumer
    from warren.queues.queue import Queue

# Where the content and the position of an entry are; see `variable_queue.py`.
ALPHA: Final = 0  # content in memory
BETA: Final = 1  # content in a content store, position in memory only
GAMMA: Final = 2  # content on disk, position in the index and in memory


@mypyc_attr(acyclic=True)
class Entry(Position):
    """A position that a queue holds; while it is unacked it also knows who has it.

    Entries are not tracked by the cycle collector (a queue may hold millions): whoever drops a queue or a channel
    empties its containers, so that no cycle through them stays behind.
    """

    def __init__(self, message: Message, log: QueueLog, seq: i64, expiry_ms: i64, queue: Queue) -> None:
        super().__init__(message, log, seq, expiry_ms)
        self.queue: Queue = queue
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
            self.journal_state == NOT_JOURNALED and self.content is not None
        )

    def drop_content(self) -> None:
        """Give up the content in memory; it is on disk."""
        self.message = ABSENT
        self.has_content = False
        self.form = GAMMA if self.journal_state == INDEXED else BETA


class EntryLog(QueueLog):
    """The log of a queue that is here: what the store loads for it are entries."""

    def __init__(self, queue_id: i64, queue: Queue) -> None:
        super().__init__(queue_id)
        # None: it was deleted, and only the store reads its index, to release what it refers to.
        self.queue: Queue | None = queue

    def make_position(self, message: Message, seq: i64, expiry_ms: i64) -> Position:
        queue = self.queue
        if queue is None:
            return Position(message, self, seq, expiry_ms)
        return Entry(message, self, seq, expiry_ms, queue)
