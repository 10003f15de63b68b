"""Where the sinks of a vhost are recorded: in rows of the node, or in rows of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.vhost.sinks.stage import Sink, Stage

# Outcomes of a commit. COMMITTED: it is durable. CHANGED: somebody else has changed the sink since
# it was looked at, so nothing is committed, and the caller looks again. UNANSWERED: it is unknown
# whether the batch is committed, or will be.
COMMITTED: Final = 1
CHANGED: Final = 2
UNANSWERED: Final = 3

# Takes the outcome of a commit, and for UNANSWERED the reason in words.
Committed = Callable[[int, str], None]
# Takes "" or why a deletion may not be stored.
Deleted = Callable[[str], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class SinkRows:
    """The records of the sinks of one vhost."""

    def commit(
        self,
        sink: Sink,
        batch: i64,
        stages: list[Stage],
        copies: dict[bytes, list[int]],
        done: Committed,
    ) -> None:
        """Commit `batch` of the idle `sink`, and begin to publish its `stages`, in their order.

        `copies` are the ids of stages on other nodes that have the same messages.
        """
        raise RuntimeError("abstract")

    def stage_moved(self, sink: Sink, now_ms: i64) -> None:
        """Take the first one of the sink's stages from the list: it is published, and settled."""
        raise RuntimeError("abstract")

    def delete(self, sink: Sink, done: Deleted, now_ms: i64) -> None:
        """Delete the idle `sink` and drop all of its stages."""
        raise RuntimeError("abstract")
