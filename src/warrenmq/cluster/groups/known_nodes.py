"""The nodes that can have copies of queues, as this node knows them."""

from __future__ import annotations

from collections.abc import Mapping

from warrenmq.cluster.groups.group import Copy
from warrenmq.cluster.groups.mirror_placement import ClusterNode
from warrenmq.cluster.records import RunningNode


class KnownNodes:
    """The nodes of the cluster that have a record and are not known to be dead."""

    def __init__(self) -> None:
        # Facts about each running node that decide where copies go, by name of the node.
        self.by_name: dict[bytes, ClusterNode] = {}
        self._copies: dict[bytes, Copy] = {}

    def set_running(self, running: Mapping[str, RunningNode]) -> bool:
        """Take over the records of all running nodes; returns whether placement may change."""
        nodes: dict[bytes, ClusterNode] = {}
        copies: dict[bytes, Copy] = {}
        for text, record in running.items():
            name = text.encode()
            nodes[name] = ClusterNode(is_draining=record.is_draining)
            copies[name] = Copy(name, record.copies_id, str(record.incarnation))
        is_change = (nodes, copies) != (self.by_name, self._copies)
        self.by_name, self._copies = nodes, copies
        return is_change

    def is_draining(self, node: bytes) -> bool:
        """Whether the running `node` drains: it is to lead no queue."""
        known = self.by_name.get(node)
        return known is not None and known.is_draining

    def copy_of(self, node: bytes) -> Copy | None:
        """The copy that the running `node` would have in this run; None if it does not run."""
        return self._copies.get(node)
