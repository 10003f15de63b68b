"""Definitions that several nodes share: one place decides what is made, and every node follows.

A node of a cluster makes nothing of its own accord. It proposes what a client asks for, and the
decision comes back to it as to every other node. Things that are removed (a deleted queue, an
auto-deleted exchange) are gone on the node that removes them at once, and the removal is repeated
until it is decided.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from warrenmq.broker.definitions.metadata import Change, PutQueue


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedDefinitions:
    """The definitions of the cluster of this node."""

    def propose(
        self, changes: list[Change], done: Callable[[str, int], None], conflict: str = ""
    ) -> None:
        """Propose to make what `changes` (Put...) define; all is decided together.

        The names must be free, and the ends of a binding must still be those this node knows. A
        DeleteQueue among them deletes a mirrored queue, if its group is the one this node knows,
        and each DeleteBinding one of its bindings.
        `done(failure, now_ms)`: with "" this node has the outcome, so the caller looks again
        whether the thing exists; it may be the work of another. Otherwise nothing was decided in
        time, for the reason `failure`. That is `conflict` when something that the changes rely on
        has changed first, for a caller who does not look again.
        """
        raise RuntimeError("abstract")

    def remove(self, changes: list[Change], done: Callable[[str, int], None] | None) -> None:
        """Remove from the cluster what is gone on this node: `changes` are Delete....

        `done`, if given, is called once, as that of `propose`. A removal that is not decided in
        time is repeated all the same.
        """
        raise RuntimeError("abstract")

    def place(self, queue: PutQueue, owner: object | None) -> None:
        """Choose the node on which a new queue is to live, and note it in `queue`.

        `owner`: the connection that a queue is exclusive to (None: it is not exclusive).
        """
        raise RuntimeError("abstract")
