"""A cluster of real nodes whose workload has mirrored queues.

    cluster = MirroredCluster(network, tmp_path)
    with cluster, cluster.mirrored_workload(tmp_path) as run:
        cluster[cluster.master("workload-0")].kill()

The workload has a queue whose first master is each node, so that every node is the master of one
queue and a mirror of the others.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tests.cluster.nodes.real_cluster import CLUSTER, NAMES, RealCluster
from tests.support.awaiting import eventually
from tests.support.cluster.workload_process import RecordedRun
from warrenmq.cluster.groups.group import Group, decode_group
from warrenmq.vocabulary.names import name_text

POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
PATTERN = "^workload"
# The default vhost, as keys of etcd spell it.
_VHOST = "%2F/"
# How long a master may take to notice a lost node (ms): acks of that time may be undone.
WINDOW_MS = 5000


class MirroredCluster(RealCluster):
    """See the module."""

    def mirrored_workload(self, directory: Path, *options: str) -> RecordedRun:
        """A workload on all nodes, whose queues have a copy in sync on each."""
        directory.mkdir(parents=True, exist_ok=True)
        printed = self[NAMES[0]].ctl("set_policy", "mirrored", PATTERN, POLICY)
        assert printed.code == 0, printed
        run = self.workload(directory, *options)
        self.await_in_sync()
        return run

    def groups(self, prefix: str = "workload") -> dict[str, Group]:
        """The groups of the queues whose names begin so."""
        found = {}
        for key, record in self.keys("q").items():
            value = json.loads(record["value"])
            queue = key.removeprefix(_VHOST)
            if value.get("group") and queue.startswith(prefix):
                found[queue] = decode_group(base64.b64decode(value["group"]))
        return found

    def master(self, queue: str) -> str:
        """The short name of the node that the group of a queue records as its master."""
        return self._short(self.groups()[queue].master_node)

    def nodes_of(self, queue: str) -> tuple[str, set[str], set[str]]:
        """Where a mirrored queue has its master ("": it is down), its mirrors, and those in sync.

        KeyError if it is not mirrored.
        """
        group = self.groups(queue)[queue]
        return (
            "" if group.is_down else self._short(group.master_node),
            {self._short(member.id.node) for member in group.mirrors},
            {self._short(member.id.node) for member in group.synced_mirrors},
        )

    def await_forgotten_lease(self, name: str) -> None:
        """Return when the lease of a node that does not run has ended."""
        key = self[name].node.replace("@", "%40")
        eventually(lambda: key not in self.keys("nodes"), f"the lease of {name} ends", 0.2)

    def spread(self) -> None:
        """Give every node a queue to lead."""
        printed = self[NAMES[0]].ctl("rebalance", "all", "--queue-pattern", PATTERN)
        assert printed.code == 0, printed

    def key_count(self) -> int:
        """How many keys etcd has of the cluster."""
        return self._count_keys("")

    def running_count(self) -> int:
        """How many nodes are announced, each under a lease."""
        return self._count_keys("members/")

    def _count_keys(self, prefix: str) -> int:
        found = self.etcd("get", "--prefix", f"/warren/{CLUSTER}/{prefix}", "--keys-only")
        return len(found.split())

    def await_in_sync(self) -> None:
        """Return when every queue has a living member and a copy in sync on each node."""
        eventually(lambda: not self.lacking(), "all copies are in sync", 0.1)

    def lacking(self) -> list[str]:
        """What keeps copies from being all in sync, a line for each queue."""
        groups = self.groups()
        lines = []
        for name in self.names:
            queue = self.queue_of(name)
            group = groups.get(queue)
            if group is None:
                lines.append(f"{queue} has no group")
                continue
            living = {self._short(member.id.node) for member in group.living}
            synced = {self._short(copy.node) for copy in group.sync}
            if group.is_down or living != set(self.names) or synced != set(self.names):
                lines.append(
                    f"{queue}: master {group.master}, living {sorted(living)},"
                    f" in sync {sorted(synced)}, version {group.version}: {group.reason}"
                )
        return lines

    @staticmethod
    def _short(node: bytes) -> str:
        return name_text(node).partition("@")[0]
