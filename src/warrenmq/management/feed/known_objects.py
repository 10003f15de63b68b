"""Which objects of a kind a sink knows of, over the sessions with a node.

A new session is told every object anew, and nothing of those that went before it began.
"""

from collections.abc import Iterator

import msgspec

from warrenmq.admin.protocol.changes import Changes


class KnownObjects:
    """The ids of the objects of one kind on one node."""

    def __init__(self) -> None:
        self._started_ms = 0
        self._ids: set[int] = set()
        # Ids of earlier sessions that the current one has not been told of in its first tick.
        self._unconfirmed: set[int] = set()
        self._is_in_first = False

    def begin_session(self) -> None:
        """Expect a first tick: the session has ended, perhaps in the midst of one."""
        self._is_in_first = False

    def completed(self, changes: Changes) -> Iterator[Changes]:
        """The answer `changes`, with the ids that are gone since the session before.

        A node that has started again uses ids anew: then an answer comes first in which all earlier
        objects are gone.
        """
        if changes.started_ms != self._started_ms:
            self._started_ms = changes.started_ms
            if self._ids:
                gone = sorted(self._ids)
                yield msgspec.structs.replace(changes, changed=[], gone=gone, has_more=True)
            self._ids = set()
        if changes.is_first and not self._is_in_first:
            self._unconfirmed = self._ids.copy()
        self._is_in_first = changes.is_first and changes.has_more
        told = {each.id for each in changes.changed}
        self._ids |= told
        self._unconfirmed -= told
        gone = changes.gone
        if changes.is_first and not changes.has_more:
            gone = [*gone, *sorted(self._unconfirmed)]
            self._unconfirmed = set()
        self._ids.difference_update(gone)
        yield msgspec.structs.replace(changes, gone=gone)
