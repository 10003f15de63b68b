"""The changes of all running nodes of a cluster, each node in a session of its own.

All sessions are with one node, which passes on requests for the others: it is the only one whose
address and login are known.
"""

from collections.abc import Callable

from warrenmq.admin.client.client import NodeAddress
from warrenmq.management.feed.node_feed import NodeFeed
from warrenmq.management.feed.sink import ChangeSink


class Feed:
    """Gives `sink` the changes of the node at `address` and of its cluster, every `interval_s`."""

    def __init__(
        self, address: Callable[[], NodeAddress], sink: ChangeSink, interval_s: float
    ) -> None:
        self._address = address
        self._sink = sink
        self._interval_s = interval_s
        self._is_ended = False
        # Feeds of the other nodes, by name. The own node's feed adds and removes them.
        self._others: dict[str, NodeFeed] = {}
        self._own = NodeFeed("", address, sink, interval_s, self._follow)

    def end(self) -> None:
        """Begin no tick any more; those that are under way go on."""
        self._is_ended = True
        for feed in (self._own, *self._others.values()):
            feed.end()

    def _follow(self, own: str, nodes: list[str]) -> None:
        """Have a feed for each of the running `nodes` but `own`, which has one."""
        for gone in self._others.keys() - set(nodes):
            self._others.pop(gone).end()
        for node in nodes:
            if node != own and node not in self._others and not self._is_ended:
                self._others[node] = NodeFeed(
                    node, self._address, self._sink, self._interval_s, _nothing
                )


def _nothing(_own: str, _nodes: list[str]) -> None:
    """The feed of another node follows no nodes."""
