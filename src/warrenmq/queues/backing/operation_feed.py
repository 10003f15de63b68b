"""The feed of a queue's messages: each change, once, in the order in which it happens.

A copy of a queue needs no more than this feed. A message is named by its seq id. `PagedQueue`, and
loads that find a message damaged, notify the queue's feed if there is one. Moves between memory and
disk are not notified, as they change nothing. Settling is notified at once, also for messages
settled in slices, and may name seq ids that were settled before.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry
from warrenmq.store.model.runs import Runs


@mypyc_attr(allow_interpreted_subclasses=True)
class OperationFeed:
    """Receives the changes of one queue's messages. No method may change the queue."""

    def published(self, entry: Entry) -> None:
        """`entry` has arrived, behind all others.

        Its `redelivered` is set when it may have been delivered before a crash.
        """
        raise RuntimeError("abstract")

    def delivered(self, seq: i64) -> None:
        """The message is delivered or reserved, and not settled yet."""
        raise RuntimeError("abstract")

    def leaving(self, seq: i64) -> None:
        """The message is unacked: it becomes a dead letter, and is not delivered for that.

        One that just arrived may not have been notified before.
        """
        raise RuntimeError("abstract")

    def returned(self, seq: i64) -> None:
        """The unacked message is in its old place again, to be delivered once more."""
        raise RuntimeError("abstract")

    def put_back(self, seq: i64) -> None:
        """The unacked message is in its old place again; its delivery reached nobody."""
        raise RuntimeError("abstract")

    def settled(self, seq: i64, reason: i64) -> None:
        """The message is gone for `reason` (`queues/leave_reason.py`).

        For a message that never waited, this is the only notification.
        """
        raise RuntimeError("abstract")

    def settled_runs(self, runs: Runs, reason: i64) -> None:
        """Every message that had a seq id in one of `runs` is gone for `reason`."""
        raise RuntimeError("abstract")

    def readers_changed(self) -> None:
        """A reader group has another part in the queue than before, or none any more."""
        raise RuntimeError("abstract")

    def receipts_changed(self) -> None:
        """The queue has got messages of a sink, or a book of its receipts has ended."""
        raise RuntimeError("abstract")

    def level_began(self, level: i64) -> OperationFeed | None:
        """A level of the same queue begins, that of priority `level`: returns its feed."""
        return None
