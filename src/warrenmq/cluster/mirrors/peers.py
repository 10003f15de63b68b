"""The state of the other nodes: who is silent, who is dead, and the way to each.

The process of a node is known to be dead when its host refuses connections to its port, or when its
record in the cluster is gone and it has been silent for as long as a master that is deposed: a
record goes with the lease, also when the store of the cluster stood still for some time. Whatever
else keeps a node from answering is silence, which is counted in ticks of at most TICK_MS: while
this node itself stood still, nobody can have been heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.cluster.links.frames import CONTROL, DATA
from warrenmq.cluster.links.link import Link
from warrenmq.cluster.mirrors.silences import HAND_OUT_MS, MASTER_SILENT_MS, SILENT_MS

# The kind of the frames that replicas send each other.
MIRRORS: Final = 34
# A tick adds at most this time to a silence, and a node is probed as rarely (ms).
TICK_MS: Final = 500
# For this time after the loss of a link each tick probes (ms): a process that dies may close its
# connections before its listener.
EAGER_MS: Final = 500


class MirrorPeers:
    """The other nodes; `probe` finds out, for a node without a link, whether its process is dead.

    A probe ends in `refused`, or in nothing; it is asked for again while there is no link. `tick`
    tells silences after which somebody acts.
    """

    def __init__(self, probe: Callable[[str], None]) -> None:
        self._probe = probe
        # The silence of each node at the last tick (ms).
        self._told_ms: dict[bytes, int] = {}
        self._links: dict[bytes, Link] = {}
        # When the nodes of lost links had heard this one for the last time.
        self._echoed_ms: dict[bytes, int] = {}
        # Nodes without a link, with the time since anything was heard of them (ms).
        self._silent_ms: dict[bytes, int] = {}
        # Nodes whose link was lost a moment ago, with the time since then (ms).
        self._lost_ms: dict[bytes, int] = {}
        self._refusing: set[bytes] = set()
        # Names of the nodes with a record in the cluster; None: the start has not read them yet.
        self._running: set[bytes] | None = None
        self._last_tick_ms = 0

    def set_running(self, names: set[bytes]) -> set[bytes]:
        """Take over which nodes have a record in the cluster; returns those that have lost it."""
        before = set() if self._running is None else self._running
        for node in names - before:
            # A node with a new record runs again, or for the first time.
            self._refusing.discard(node)
        self._running = set(names)
        return before - names

    def link_up(self, link: Link) -> None:
        """There is a link to a node."""
        node = link.peer_name.encode()
        self._links[node] = link
        self._silent_ms.pop(node, None)
        self._lost_ms.pop(node, None)
        self._refusing.discard(node)

    def link_down(self, node: bytes) -> None:
        """The link to `node` is lost."""
        link = self._links.pop(node, None)
        # A link that goes down because its node is silent has counted some of the silence.
        self._silent_ms[node] = 0 if link is None else int(link.silence_ms)
        self._lost_ms[node] = 0
        if link is not None:
            self._echoed_ms[node] = max(self._echoed_ms.get(node, 0), int(link.echoed_ms))
        self._probe(node.decode())

    def refused(self, node: bytes) -> bool:
        """The host of `node` refuses connections; returns whether that is news."""
        if node in self._links or node in self._refusing:
            return False
        self._refusing.add(node)
        return True

    def tick(self, now_ms: int) -> set[bytes]:
        """Count silences, and probe again; called about every 50 ms.

        Returns the nodes that have just been silent for as long as one of the limits.
        """
        elapsed_ms = min(max(now_ms - self._last_tick_ms, 0), TICK_MS)
        self._last_tick_ms = now_ms
        for node, silent_ms in self._silent_ms.items():
            self._silent_ms[node] = silent_ms + elapsed_ms
            is_eager = self._is_eager(node, elapsed_ms)
            if is_eager or silent_ms // TICK_MS != (silent_ms + elapsed_ms) // TICK_MS:
                self._probe(node.decode())
        return self._newly_silent()

    def _newly_silent(self) -> set[bytes]:
        before = self._told_ms
        self._told_ms = {node: self.silence_ms(node) for node in {*self._links, *self._silent_ms}}
        return {
            node
            for node, silent_ms in self._told_ms.items()
            for limit_ms in (SILENT_MS, MASTER_SILENT_MS)
            if before.get(node, 0) < limit_ms <= silent_ms
        }

    def _is_eager(self, node: bytes, elapsed_ms: int) -> bool:
        """Count the time since a link was lost; returns whether its node is probed in each tick."""
        lost_ms = self._lost_ms.pop(node, EAGER_MS) + elapsed_ms
        if lost_ms > EAGER_MS or node in self._refusing:
            return False
        self._lost_ms[node] = lost_ms
        return True

    def silence_ms(self, node: bytes) -> int:
        """For how long nothing has been heard of `node`, at most."""
        link = self._links.get(node)
        if link is not None:
            return int(link.silence_ms)
        # A node that never had a link to this one has been silent since this node began.
        return self._silent_ms.setdefault(node, 0)

    def is_dead(self, node: bytes) -> bool:
        """Whether the process of `node` is known not to run."""
        if node in self._links:
            return False
        if node in self._refusing:
            return True
        if self._running is None:
            return False
        # A node that has no record and never had a link here is dead without any silence.
        is_silent = node not in self._echoed_ms or self.silence_ms(node) >= MASTER_SILENT_MS
        return node not in self._running and is_silent

    def heard_until_ms(self, node: bytes, lease_ends_ms: int) -> int:
        """Until when `node` cannot have deposed a master on this node, which it has heard.

        `lease_ends_ms`: when the lease of this node ends at the earliest.
        """
        link = self._links.get(node)
        echoed_ms = self._echoed_ms.get(node, 0)
        if link is not None:
            echoed_ms = max(echoed_ms, int(link.echoed_ms))
        until_ms = echoed_ms + HAND_OUT_MS
        return max(until_ms, lease_ends_ms) if node in self._refusing else until_ms

    def is_reachable(self, node: bytes) -> bool:
        """Whether there is a link to `node`, on which it is heard."""
        link = self._links.get(node)
        return link is not None and link.silence_ms < SILENT_MS

    def send(self, node: bytes, payload: bytes, is_urgent: bool = False) -> None:
        """Send a record to a replica on `node`; without a link it is dropped.

        `is_urgent`: before all others that wait, and before the next ping.
        """
        link = self._links.get(node)
        if link is not None:
            link.send(CONTROL if is_urgent else DATA, MIRRORS, payload)
