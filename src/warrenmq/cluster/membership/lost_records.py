"""Nodes that have lost their records in the cluster, and not their links.

A record goes with the lease of its node. That is so after a death, and also when etcd stood still
for longer than a lease, or when only this way is cut. A node whose links are healthy then goes on,
and announces itself again with its next renewal. It counts as one of the others meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.cluster.records import RunningNode

# A node that has lost its record keeps its links for this time at most (ms).
KEPT_MS: Final = 10_000


class LostRecords:
    """The last records of such nodes, by name. `is_linked(name)` tells whether there is a link."""

    def __init__(self, is_linked: Callable[[str], bool]) -> None:
        self._is_linked = is_linked
        # With the time until when each counts (ms).
        self._records: dict[str, tuple[RunningNode, int]] = {}

    def add(self, name: str, record: RunningNode, now_ms: int) -> None:
        """The node `name` has lost its `record`."""
        self._records[name] = record, now_ms + KEPT_MS

    def discard(self, name: str) -> None:
        """The node `name` has a record again."""
        self._records.pop(name, None)

    def clear(self) -> None:
        """Forget all of them, as this node leaves the others."""
        self._records = {}

    def expire(self, now_ms: int) -> bool:
        """Forget the nodes that have no link, or whose time is over; called about every 50 ms.

        Returns whether there were any.
        """
        before = len(self._records)
        self._records = {
            name: (record, until_ms)
            for name, (record, until_ms) in self._records.items()
            if now_ms < until_ms and self._is_linked(name)
        }
        return len(self._records) < before

    def records(self) -> dict[str, RunningNode]:
        """The last records, by name."""
        return {name: record for name, (record, _until_ms) in self._records.items()}
