"""Until when the masters of this node may hand out messages.

A mirror in sync takes over once it has not heard its master for MASTER_SILENT_MS. So a master may
hand out for HAND_OUT_MS after the last ping that each of its mirrors has heard, and no store has to
be asked. The process of a mirror that refuses connections takes over only after a start, in which
it asks the store of the cluster whether the master runs: as long as the lease lasts, it does.

Where the lease counts, too: some copy may take over whenever this node does not run. That is so for
a copy in sync without a member of the group, and for one that is not in sync, if the policy lets it
lead.

Thousands of queues have their mirrors on few nodes, so all queues of the same nodes share a gate.
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.queues.hand_out_gate import OPEN, HandOutGate


class Gates:
    """The gates of one node; `lease_left_ms` is that of `DecisionStore`."""

    def __init__(self, peers: MirrorPeers, lease_left_ms: Callable[[], int]) -> None:
        self._peers = peers
        self._lease_left_ms = lease_left_ms
        self._gates: dict[tuple[frozenset[bytes], bool], HandOutGate] = {}

    def gate(self, nodes: frozenset[bytes], needs_lease: bool, now_ms: int) -> HandOutGate:
        """The gate of the masters with mirrors on `nodes`.

        `needs_lease`: another copy may take over when this node does not run.
        """
        if not nodes and not needs_lease:
            return OPEN
        key = nodes, needs_lease
        found = self._gates.get(key)
        if found is None:
            found = self._gates[key] = HandOutGate(self._until_ms(nodes, needs_lease, now_ms))
        return found

    def tick(self, now_ms: int) -> set[HandOutGate]:
        """Move all gates; returns those that were shut a moment ago and let messages out again."""
        opened: set[HandOutGate] = set()
        for (nodes, needs_lease), gate in self._gates.items():
            was_shut = gate.until_ms <= now_ms
            gate.until_ms = self._until_ms(nodes, needs_lease, now_ms)
            if was_shut and gate.until_ms > now_ms:
                opened.add(gate)
        return opened

    def _until_ms(self, nodes: frozenset[bytes], needs_lease: bool, now_ms: int) -> int:
        lease_ends_ms = now_ms + self._lease_left_ms()
        limits = [self._peers.heard_until_ms(node, lease_ends_ms) for node in nodes]
        return min([*limits, lease_ends_ms] if needs_lease else limits)
