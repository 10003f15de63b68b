"""Reads mirrored queues under kills: `python -m tests.spark.cluster.stream_kills --runs N`.

Each run streams two mirrored queues of a cluster of three nodes into Parquet with
tests/spark/stream_app.py, while a publisher gets confirms. Several times it kills the master of a
queue with SIGKILL, and does one of these besides: the driver is killed with all its processes, or a
worker in the middle of a task, or a second node as soon as the first one is back, or a master stops
until another node has taken over. The Parquet files must have each confirmed message once. The
result has the longest times without a committed batch after a master's death.
"""

import itertools
import random
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.spark.cluster.sink_kills import POLICIES, ClusterSinkRun
from tests.spark.kills import (
    DRIVER,
    MESSAGES_MIN,
    WORKER,
    WORKER_COMMAND,
    Publisher,
    Run,
    RunResult,
    run_many,
)
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import running_etcd
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated

MASTER, SECOND, PARTITION = "master", "second node", "partition"
BESIDES = (DRIVER, WORKER, SECOND, PARTITION)
# A publisher leaves a node that has stopped after some seconds.
IMPATIENT: Final = "?heartbeat=4&socket_timeout=5&stack_timeout=8"
# Deaths of a master in a run: a new cluster and a new JVM for each would take longer than the rest.
DEATHS: Final = 5
# Batches that Spark has to commit before a run kills the master.
WARM_BATCHES: Final = 4
# Batches that Spark has to commit after the kill before the run measures the pause.
BATCHES_AFTER: Final = 2


class ClusterStreamRun(Run):
    """One run in its own directory."""

    queues = tuple(POLICIES)

    def __init__(self, seed: int, directory: Path, cluster: ClusterNodes) -> None:
        super().__init__(seed, directory)
        self.cluster = cluster
        self.broker = cluster.nodes[0]
        # The longest time (s) without a batch after each death of a master.
        self.pauses: list[float] = []

    def execute_with(self, besides: Sequence[str]) -> RunResult:
        """Do the run, with a master's death before each kind of `besides`.

        KillsError when a message is missing or duplicated, or the run stalls.
        """
        ClusterSinkRun.set_policies(self.cluster)
        with channels(self.cluster.nodes[:2]) as opened:
            for queue, channel in zip(self.queues, opened, strict=True):
                channel.queue_declare(queue, durable=True)
        uris = [node.uri + IMPATIENT for node in self.cluster.nodes]
        publisher = Publisher(uris, self.queues, random.Random(self.seed))
        publisher.start()
        try:
            for kind in besides:
                self.kill_master(kind)
            self.await_batch()
            self.wait_for(lambda: len(publisher.confirmed) > MESSAGES_MIN)
            publisher.is_stopping.set()
            publisher.join()
            self.end_app()
            self.drain()
        finally:
            publisher.is_stopping.set()
            publisher.join()
            self.end_app()
        self.check(publisher)
        kills = [each for kind in besides for each in (MASTER, kind)]
        return RunResult(self.seed, kills, len(publisher.confirmed), self.count_batches())

    def kill_master(self, besides: str) -> None:
        """Kill the first queue's master, note the pause, start it, and do what `besides` says."""
        self.await_batch()
        self.wait_for(self.has_copies)
        # A JVM that has just started is slow by itself.
        self.await_commits(WARM_BATCHES)
        self.await_batch()
        victim = self.master()
        last = self.count_in_log("commits") - 1
        victim.kill()
        self.await_commits(BATCHES_AFTER)
        self.pauses.append(self.longest_pause(last))
        victim.start()
        self.cluster.await_all()
        self.disturb(besides, victim)

    def longest_pause(self, first: int) -> float:
        """The longest time (s) between the commits of two batches, from batch `first` on."""
        commits = self.directory / "checkpoint" / "commits"
        last = self.count_in_log("commits")
        times = [(commits / str(batch)).stat().st_mtime for batch in range(first, last)]
        return max(end - begin for begin, end in itertools.pairwise(times))

    def await_commits(self, more: int) -> None:
        """Return when Spark has committed so many more batches."""
        wanted = self.count_in_log("commits") + more
        self.wait_for(lambda: self.count_in_log("commits") >= wanted)

    def disturb(self, kind: str, first: ClusterNode) -> None:
        """Do what `kind` says; all nodes run again when it returns."""
        if kind == DRIVER:
            self.end_app()
        elif kind == WORKER:
            self.kill_python(WORKER_COMMAND)
        elif kind == SECOND:
            node = self.chance.choice([node for node in self.cluster.nodes if node is not first])
            node.kill()
            node.start()
        else:
            node = self.master()
            others = [other for other in self.cluster.nodes if other is not node]
            node.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: self.home(others[0]) != node.name, "another node takes over")
            finally:
                node.send_signal(signal.SIGCONT)
        self.cluster.await_all()

    def has_copies(self) -> bool:
        """Whether each queue has a copy in sync beside its master."""
        rows = self.cluster.nodes[0].table("list_queues", "name", "synchronised_slave_pids")
        return {name for name, copies in rows if "<" in copies} == set(self.queues)

    def home(self, node: ClusterNode) -> str:
        """The name of the node that has the first queue, as `node` knows it."""
        request = LocateQueues([self.queues[0].encode()])
        with AdminClient(NodeAddress(node.uri)) as client:
            (home,) = client.request(request, QueuesLocated).homes
        return home.node

    def master(self) -> ClusterNode:
        name = self.home(self.cluster.nodes[0])
        return next(node for node in self.cluster.nodes if node.name == name)


# The pauses of all runs (s).
_pauses: list[float] = []


def execute_run(seed: int, directory: Path) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"cluster-stream-kills-{seed}-", dir=directory))
    with (
        running_etcd(place / "etcd") as etcd,
        ClusterNodes(place, etcd.url, "n1", "n2", "n3") as cluster,
    ):
        run = ClusterStreamRun(seed, place, cluster)
        result = run.execute_with(run.chance.choices(BESIDES, k=DEATHS))
    shutil.rmtree(place)
    _pauses.extend(run.pauses)
    shown = ", ".join(f"{pause:.1f}" for pause in run.pauses)
    sys.stdout.write(f"seed {seed}: {shown} s without a batch after the deaths of a master\n")
    return result


if __name__ == "__main__":
    try:
        run_many(__doc__, execute_run)
    finally:
        if _pauses:
            sys.stdout.write(
                f"longest time without a batch after a master's death: median "
                f"{statistics.median(_pauses):.1f} s, most {max(_pauses):.1f} s\n"
            )
