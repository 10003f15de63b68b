"""The interface through which a vhost's store asks about its queues."""

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.model.message import JournalFile, Position


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreHost:
    """The store's access to the queues of its vhost. Ranges are seq ids, `end` exclusive."""

    def retire(self, file: JournalFile) -> bool:
        """Move a slice of the file's live positions to the indexes; True when none is left."""
        raise RuntimeError("abstract")

    def index(self, queue_id: i64, upto: i64, limit: i64) -> None:
        """Move live positions of a queue below seq id `upto` to its index, at most `limit`."""
        raise RuntimeError("abstract")

    def is_empty(self, queue_id: i64) -> bool:
        """Whether the queue has no message at all, ready or unacked."""
        raise RuntimeError("abstract")

    def indexed_in_memory(self, queue_id: i64, first: i64, end: i64) -> list[Position]:
        """The indexed positions of [first, end) that the queue has in memory, ascending.

        Ready and unacked messages count.
        """
        raise RuntimeError("abstract")
