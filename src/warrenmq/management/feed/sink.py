"""Who takes the figures of the nodes as they change."""

from typing import Protocol

from warrenmq.admin.protocol.changes import Changes


class ChangeSink(Protocol):
    """Takes the changes of several nodes, those of each node from a thread of its own."""

    def on_changes(self, node: str, kind: str, changes: Changes) -> None:
        """Take objects of `node` that are new or have changed, and the ids of those gone.

        When `node` has started again, the sink is told first that all earlier ids are gone.
        """

    def on_tick(self, node: str, now_ms: int) -> None:
        """Note that all changes of `node` up to `now_ms` (ms since 1970) are told."""
