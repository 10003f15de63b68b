"""Writes into a cluster under kills: `python -m tests.spark.cluster.sink_kills --runs N`.

Each run writes numbered rows with tests/spark/sink_app.py into two mirrored queues and a plain one
of a cluster of three nodes. At random moments it disturbs several of: the node of the URI, the
node that publishes a batch, the master of a mirrored queue, a second node as soon as the first one
is back, the driver with all its processes (SIGKILL each), and a node that stops for some seconds.
Then another run of the program finishes the last batch. The queues must have each number once,
without gaps, and the numbers of a partition in order.
"""

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.spark.kills import RunResult, run_many
from tests.spark.sink_kills import SinkRun
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import running_etcd
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.sinks import ListSinks, SinkList

DISTURBANCES = (ENTRY, MOVER, MASTER, SECOND, DRIVER, FREEZE) = (
    "node of the uri",
    "mover",
    "master",
    "second node",
    "driver",
    "frozen node",
)
FREEZE_S: Final = 5.0
POLICIES: Final = {
    "two": '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}',
    "all": '{"ha-mode":"all","ha-sync-mode":"automatic"}',
}


class ClusterSinkRun(SinkRun):
    """One run in its own directory, with `disturbances` in a random order."""

    queues = ("two", "all", "plain")

    def __init__(self, seed: int, directory: Path, cluster: ClusterNodes) -> None:
        super().__init__(seed, directory)
        self.cluster = cluster
        self.broker = cluster.nodes[0]

    def execute_with(self, disturbances: list[str]) -> RunResult:
        """Do the run; KillsError when a row is missing or duplicated, or when the run stalls."""
        self.chance.shuffle(disturbances)
        self.set_policies(self.cluster)
        with channels(self.cluster.nodes) as opened:
            for queue, channel in zip(self.queues, opened, strict=True):
                channel.queue_declare(queue, durable=True)
        try:
            for kind in disturbances:
                self.await_batch()
                self.disturb(kind)
            self.end_app()
            self.drain()
            self.wait_until_published()
            messages = self.check_queues()
        finally:
            self.end_app()
        return RunResult(self.seed, disturbances, messages, self.count_batches())

    @staticmethod
    def set_policies(cluster: ClusterNodes) -> None:
        """Let the queues of POLICIES be mirrored."""
        for queue, policy in POLICIES.items():
            done = cluster.nodes[0].ctl(
                "set_policy", "--apply-to", "queues", queue, f"^{queue}$", policy
            )
            assert done.code == 0, done

    def disturb(self, kind: str) -> None:
        """Do one disturbance; all nodes run again when it returns."""
        if kind == DRIVER:
            self.end_app()
        elif kind == FREEZE:
            node = self.chance.choice(self.cluster.nodes)
            node.send_signal(signal.SIGSTOP)
            time.sleep(FREEZE_S)
            node.send_signal(signal.SIGCONT)
        else:
            victim = self.victim(kind)
            self.kill_and_start(victim)
            if kind == SECOND:
                others = [node for node in self.cluster.nodes if node is not victim]
                self.kill_and_start(self.chance.choice(others))
        self.cluster.await_all()

    def kill_and_start(self, node: ClusterNode) -> None:
        node.kill()
        time.sleep(self.chance.uniform(0, 3))
        node.start()

    def victim(self, kind: str) -> ClusterNode:
        """The node that is killed first; any one while no batch is published."""
        name = ""
        if kind == ENTRY:
            return self.cluster.nodes[0]
        if kind in (MOVER, MASTER):
            with AdminClient(NodeAddress(self.broker.uri)) as client:
                if kind == MOVER:
                    sinks = client.request(ListSinks(), SinkList).sinks
                    name = next((each.node for each in sinks if each.node), "")
                else:
                    queue = self.chance.choice(self.queues[:2]).encode()
                    (home,) = client.request(LocateQueues([queue]), QueuesLocated).homes
                    name = home.node
        for node in self.cluster.nodes:
            if node.name == name:
                return node
        return self.chance.choice(self.cluster.nodes)


def execute_run(seed: int, directory: Path, disturbances: list[str] | None = None) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"cluster-sink-kills-{seed}-", dir=directory))
    with (
        running_etcd(place / "etcd") as etcd,
        ClusterNodes(place, etcd.url, "n1", "n2", "n3") as cluster,
    ):
        run = ClusterSinkRun(seed, place, cluster)
        result = run.execute_with(list(disturbances or DISTURBANCES))
    shutil.rmtree(place)
    return result


if __name__ == "__main__":
    run_many(__doc__, execute_run)
