"""Tests reading mirrored queues exactly once: `python -m tests.spark.master_kills --runs N`.

Each run has three nodes, publishes numbered messages with confirms to two mirrored queues, and
streams them into Parquet with tests/spark/stream_app.py. The master of a queue is killed in the
midst of it by SIGKILL, and then several of: a master, a node that has just come back, the driver, a
worker, a master that is frozen until another one serves, then goes on. At the end the Parquet files
must have each confirmed message once. It prints the pauses of the stream: how long after the death
of a master no batch was committed.
"""

import itertools
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.spark.kills import (
    DRIVER,
    QUEUES,
    WORKER,
    WORKER_COMMAND,
    Application,
    Publisher,
    Run,
    RunResult,
    run_many,
)
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer

MASTER, SECOND, FREEZE = "master", "second node", "frozen master"
# What may happen after the first death of a master.
MORE = (MASTER, SECOND, FREEZE, DRIVER, WORKER)
# Things that happen in a run, beside the first death of a master and the last one of the driver.
MORE_MAX = 3
POLICIES = (
    '{"ha-mode":"all","ha-sync-mode":"automatic"}',
    '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}',
)
# Longest pause of the stream after each death of a master (s).
pauses: list[float] = []


class ClusterPublisher(Publisher):
    """Publishes through any node that answers."""

    def __init__(self, nodes: list[ClusterNode], chance: random.Random) -> None:
        super().__init__(nodes[0].uri, chance)
        self.nodes = nodes

    def run(self) -> None:
        turn = 0
        while not self.is_stopping.is_set():
            self.uri = f"{self.nodes[turn % len(self.nodes)].uri}?blocked_connection_timeout=5&socket_timeout=5"
            turn += 1
            self.publish_until_it_fails()


class Commits(threading.Thread):
    """Notes when batches of the stream are committed."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self.run_watched = run
        self.is_stopping = threading.Event()
        self.times_s: list[float] = []

    def run(self) -> None:
        count = 0
        while not self.is_stopping.wait(0.03):
            found = self.run_watched.count_in_log("commits")
            if found > count:
                count = found
                self.times_s.append(time.monotonic())

    def longest_pause(self, since_s: float) -> float:
        """The longest time between commits, of those after `since_s` and the last one before."""
        before = [at for at in self.times_s if at <= since_s][-1:]
        times = before + [at for at in self.times_s if at > since_s]
        return max([later - at for at, later in itertools.pairwise(times)], default=0.0)


class MasterRun(Run):
    """One run with a cluster and an etcd of its own."""

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        self.etcd = EtcdServer(directory / "etcd")
        self.etcd.start()
        self.etcd.await_ready()
        self.cluster = ClusterNodes(directory, self.etcd.url, "n1", "n2", "n3")
        self.nodes = self.cluster.nodes
        self.commits = Commits(self)

    def execute(self) -> RunResult:
        """Do the run; KillsError when a message is missing or duplicated, or the run stalls."""
        events = [MASTER, *self.chance.choices(MORE, k=self.chance.randint(1, MORE_MAX)), DRIVER]
        with self.cluster:
            try:
                self.execute_in_cluster(events)
            finally:
                self.commits.is_stopping.set()
                self.end_app()
        self.etcd.kill()
        return RunResult(self.seed, events, self.message_count, self.count_batches())

    def execute_in_cluster(self, events: list[str]) -> None:
        """The run while the nodes are there."""
        policy = self.chance.choice(POLICIES)
        assert self.nodes[0].ctl("set_policy", "all", ".*", policy).code == 0
        with channels(self.nodes[:2]) as opened:
            for channel, queue in zip(opened, QUEUES, strict=True):
                channel.queue_declare(queue, durable=True)
        self.await_sync()
        publisher = ClusterPublisher(self.nodes, random.Random(self.seed))
        publisher.start()
        self.commits.start()
        try:
            for event in events:
                self.do(event)
            publisher.is_stopping.set()
            publisher.join()
            self.await_sync()
            self.broker = self.nodes[0]
            self.drain()
        finally:
            publisher.is_stopping.set()
            publisher.join()
        self.message_count = len(publisher.confirmed)
        self.check(publisher)

    def do(self, event: str) -> None:
        """Let something happen at a random moment after a new batch was planned."""
        if self.app is None:
            self.app = Application(self.module, self.chance.choice(self.nodes).uri, self.directory)
        before = self.count_in_log("commits")
        self.wait_for(lambda: self.count_in_log("commits") > before)
        time.sleep(self.chance.uniform(0, 0.7))
        if event == DRIVER:
            self.end_app()
        elif event == WORKER:
            self.kill_python(WORKER_COMMAND)
        elif event == SECOND:
            master = self.master()
            self.lose(master, lambda: master.kill())
            others = [node for node in self.nodes if node is not master]
            self.revive(master)
            other = self.chance.choice(others)
            self.lose(other, lambda: other.kill())
            self.revive(other)
        else:
            master = self.master()
            if event == MASTER:
                self.lose(master, lambda: master.kill())
                self.revive(master)
            else:
                self.lose(master, lambda: master.send_signal(signal.SIGSTOP))
                master.send_signal(signal.SIGCONT)
                self.await_sync()

    def lose(self, node: ClusterNode, kill: Any) -> None:
        """Take a node away; returns when other nodes serve, and the stream goes on with them."""
        begun_s = time.monotonic()
        kill()
        self.wait_for(lambda: all(name != node.name for name in self.leaders(node)))
        # A batch that was planned before the death, and some more.
        before = self.count_in_log("commits")
        self.wait_for(lambda: self.count_in_log("commits") >= before + 3)
        pauses.append(self.commits.longest_pause(begun_s))

    def revive(self, node: ClusterNode) -> None:
        """Start a node; returns when all copies are in sync again."""
        node.start()
        self.await_sync()

    def leaders(self, away: ClusterNode) -> list[str]:
        """The nodes of the masters, as the nodes say that are not `away`."""
        asked = next(node for node in self.nodes if node is not away)
        return [row[1] for row in asked.table("list_queues", "name", "leader")]

    def master(self) -> ClusterNode:
        """The node of a master."""
        name = self.chance.choice(self.nodes[0].table("list_queues", "name", "leader"))[1]
        return next(node for node in self.nodes if node.name == name)

    def await_sync(self) -> None:
        """Return when all nodes run, and each queue has a mirror in sync."""
        self.cluster.await_all()

        def is_synced() -> bool:
            columns = ("name", "slave_pids", "synchronised_slave_pids", "state")
            rows = self.nodes[0].table("list_queues", *columns)
            return all(
                row[3] == "running" and row[1].count("<") == row[2].count("<") > 0 for row in rows
            )

        self.wait_for(is_synced)


def execute_run(seed: int, directory: Path) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"master-kills-{seed}-", dir=directory))
    run = MasterRun(seed, place)
    try:
        result = run.execute()
    finally:
        run.etcd.kill()
        if pauses:
            sys.stdout.write(
                f"pauses so far: {len(pauses)}, median {statistics.median(pauses):.1f} s, "
                f"longest {max(pauses):.1f} s\n"
            )
    shutil.rmtree(place)
    return result


if __name__ == "__main__":
    run_many(__doc__, execute_run)
