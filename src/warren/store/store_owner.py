"""Whom the store of a vhost asks about the queues in it."""

from mypy_extensions import i64, mypyc_attr

from warren.store.message import JournalFile, Position


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreOwner:
    """Whom the store asks about queues, and tells what went wrong."""

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

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """Bytes of a file could not be used; a copy is in lost+found."""
        raise RuntimeError("abstract")

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """Messages of a queue cannot be had any more: so many of those from `first_seq` to `last_seq`.

        `cause` is one of a few texts.
        """
        raise RuntimeError("abstract")

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """A content in one of the content stores cannot be had any more; nobody looks which queues refer to it."""
        raise RuntimeError("abstract")
