"""Policies that change all the time under a workload (cases t14)."""

import json
import random

from tests.cluster.mirrored.mirrored_cluster import PATTERN, POLICY, MirroredCluster
from tests.support.cluster.workload_process import RecordedRun

# Confirms between two changes.
SOME_CONFIRMS = 3
WORK_CONFIRMS = 20
CHANGES = 100
NAME = "mirrored"


class PolicyFaults:
    """Changes the policy of the queues of the workload `run`; they are mirrored at the end."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, numbers: random.Random) -> None:
        self._cluster = cluster
        self._run = run
        self._random = numbers

    def toggle(self) -> None:
        """Set the policy and clear it, through any node."""
        with self._run.fault("policy set and cleared", "all"):
            for number in range(CHANGES):
                self._set("" if number % 2 else POLICY)
                self._run.await_confirms(SOME_CONFIRMS)
            self._set(POLICY)
            self._run.await_confirms(WORK_CONFIRMS)

    def wander(self) -> None:
        """Want copies on all nodes, on some, on others than the master's, on unknown ones."""
        for _ in range(CHANGES):
            # Each may move masters, and hide deliveries from clients.
            with self._run.fault("policy", "all"):
                self._set(self._definition())
                # Sometimes there is time to go all the way.
                self._run.await_confirms(self._random.choice((SOME_CONFIRMS, 10, 60)))
        with self._run.fault("policy", "all"):
            self._set(POLICY)
            self._run.await_confirms(WORK_CONFIRMS)

    def _set(self, definition: str) -> None:
        node = self._cluster[self._random.choice(self._cluster.names)]
        if definition:
            printed = node.ctl("set_policy", NAME, PATTERN, definition)
        else:
            printed = node.ctl("clear_policy", NAME)
        # Nobody has told this node of the policy yet that it is to clear.
        assert printed.code == 0 or "does not exist" in printed.err, printed

    def _definition(self) -> str:
        mode = self._random.choice(("", "all", "exactly", "nodes"))
        if not mode:
            return ""
        found: dict[str, object] = {"ha-mode": mode}
        found["ha-sync-mode"] = self._random.choice(("automatic", "automatic", "manual"))
        if mode == "exactly":
            found["ha-params"] = self._random.choice((1, 2, 3, 7))
        elif mode == "nodes":
            known = [self._cluster[name].node for name in self._cluster.names]
            count = self._random.randrange(1, len(known) + 1)
            found["ha-params"] = [*self._random.sample(known, count), "unknown@nowhere"]
        return json.dumps(found)
