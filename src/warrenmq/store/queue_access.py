"""Whom the store of a vhost asks about the queues in it."""

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.message import JournalFile, Position


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueAccess:
    """Who has the queues."""

    def retire(self, file: JournalFile) -> bool:
        """Move what the journal file holds to the indexes, a slice at a time; True when nothing is left to move."""
        raise RuntimeError("abstract")

    def index(self, queue_id: i64, upto: i64, limit: i64) -> None:
        """Move live positions of a queue below seq id `upto` to its index, at most `limit`."""
        raise RuntimeError("abstract")

    def is_empty(self, queue_id: i64) -> bool:
        """Has the queue no message at all, ready or unacked?"""
        raise RuntimeError("abstract")

    def indexed_in_memory(self, queue_id: i64, first: i64, end: i64) -> list[Position]:
        """The positions of [first, end) that a queue has in memory, ready or unacked, and that are in its index; ascending."""
        raise RuntimeError("abstract")
