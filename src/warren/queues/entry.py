"""An entry: one message in one queue, from publish to ack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from warren.store.message import Message, Position, QueueLog

if TYPE_CHECKING:
    from warren.queues.consumer import Consumer
    from warren.queues.queue import Queue


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

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.seq < other.seq
