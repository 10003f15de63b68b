"""What is told of a queue's messages: each change, once, in the order in which it happens.

Whoever keeps a copy of a queue needs no more than this. A message is its seq id. `PagedQueue`, and the loads that find a
message damaged, tell a sink when there is one; what moves a message between memory and disk is not told, as it changes
nothing. Settling is told at once, also of what is settled in slices, and may be told of seq ids that were settled before.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry
from warrenmq.store.runs import Runs


@mypyc_attr(allow_interpreted_subclasses=True)
class OperationFeed:
    """Whom one queue tells. No method may change the queue."""

    def published(self, entry: Entry) -> None:
        """`entry` has arrived, behind all others. Its `redelivered` may be set: it may have been given away before a crash."""
        raise RuntimeError("abstract")

    def delivered(self, seq: i64) -> None:
        """Somebody has it, and has not settled it."""
        raise RuntimeError("abstract")

    def returned(self, seq: i64) -> None:
        """It was given back and is in its old place, to be delivered again."""
        raise RuntimeError("abstract")

    def settled(self, seq: i64, reason: i64) -> None:
        """It is gone (`leave_reason.py`). A message that never waited is told of by this alone."""
        raise RuntimeError("abstract")

    def settled_runs(self, runs: Runs, reason: i64) -> None:
        """Every message with a seq id in one of `runs` is gone, if it was there."""
        raise RuntimeError("abstract")

    def deleted(self) -> None:
        """The queue is gone with all its messages. Nothing is told after this."""
        raise RuntimeError("abstract")
