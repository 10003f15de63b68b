"""Scenarios of `python -m tests.cluster.long`: all fail points, rolling restarts, gaps."""

import time
from pathlib import Path
from statistics import median

from simulator.checker.verdict import Verdict
from tests.cluster.nodes.fail_point_kills import (
    DECLARE,
    JOIN,
    MAKE,
    PUBLISH,
    kill_in_declare,
    kill_in_publish,
    kill_in_start,
    newcomer,
)
from tests.cluster.nodes.real_cluster import NAMES, RealCluster
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.cluster.workload_process import RecordedRun
from warrenmq.wire.methods import BasicAck, BasicCancel, BasicNack, QueueDeclare

CONFIRMS = 100
# The upload of a new cluster's first definitions: its begin, a chunk, its end.
UPLOAD_PARTS = 3


def say(text: str) -> None:
    """Print a line at once: runs are long."""
    print(text, flush=True)


def finish(run: RecordedRun) -> None:
    """End a workload. AssertionError if what the clients saw breaks a promise."""
    verdict: Verdict = run.finish()
    say(verdict.text())
    assert verdict.is_clean, verdict.text()


# -- fail points -----------------------------------------------------------------------------------


def run_points(cluster: RealCluster, directory: Path) -> None:
    """Let nodes die at every fail point."""
    for point in MAKE:
        for hit in range(1, UPLOAD_PARTS + 1 if point == "upload.part" else 2):
            name = f"maker-{point.replace('.', '-')}-{hit}"
            node = newcomer(cluster, directory / name, name, cluster_name=name)
            try:
                kill_in_start(node, point, hit)
                assert node.ctl("-s", "list_vhosts").rows() == [["/"]]
                assert node.stop() == 0
            finally:
                node.kill()
            say(f"died at hit {hit} of {point}, while it made a cluster")
    with cluster.workload(directory) as run:
        for point in JOIN:
            name = f"joiner-{point.replace('.', '-')}"
            node = newcomer(cluster, directory / name, name)
            try:
                kill_in_start(node, point)
                assert node.stop() == 0
            finally:
                node.kill()
            assert cluster[NAMES[0]].ctl("forget_cluster_node", node.node).code == 0
            say(f"died at {point}, while it joined")
            run.await_confirms(CONFIRMS)
        for name in NAMES:
            for point in DECLARE:
                kill_in_declare(cluster, run, name, point)
                say(f"{name} died at {point}, while it declared")
            for point in PUBLISH:
                kill_in_publish(cluster, run, name, point)
                say(f"{name} died at {point}, while it published")
        finish(run)


# -- rolling restarts ------------------------------------------------------------------------------


def run_rolling(cluster: RealCluster, directory: Path, rounds: int) -> None:
    """Restart all nodes in turn."""
    with cluster.workload(directory) as run:
        for number in range(1, rounds + 1):
            for node in cluster.nodes.values():
                run.await_confirms(CONFIRMS)
                with run.fault("stop", node.name):
                    assert node.stop() == 0
                    run.await_confirms(CONFIRMS)
                    node.start()
                    cluster.await_linked()
            say(f"{number}/{rounds} rounds")
        finish(run)


# -- gaps ------------------------------------------------------------------------------------------


def measure_gaps(cluster: RealCluster, rounds: int) -> None:
    """Measure how soon clients of other nodes see the death of a node, its silence and its return.

    And how long a declaration waits for an etcd that is dead.
    """
    seen: dict[str, list[float]] = {
        "death to nack": [], "death to cancel": [], "start to confirm": [], "silence to nack": []
    }  # fmt: skip
    victim = cluster["n2"]
    with cluster.client("n2") as client:
        client.declare(b"gap", durable=True)
    for _ in range(rounds):
        _measure_death(cluster, seen)
        victim.kill()
        began = time.monotonic()
        victim.start()
        with cluster.client("n1") as client:
            client.confirm_select()
            while True:
                client.publish(b"gap", b"m", PERSISTENT)
                if isinstance(client.event(), BasicAck):
                    break
        seen["start to confirm"].append(time.monotonic() - began)
        cluster.await_linked()
        _measure_silence(cluster, seen)
        cluster.await_linked()
    seen["etcd's loss to 506"] = [_measure_refusal(cluster)]
    for what, times in seen.items():
        worst, middle = 1000 * max(times), 1000 * median(times)
        say(f"{what:20} {len(times):4} times, median {middle:8.1f} ms, longest {worst:8.1f} ms")
    with cluster.client("n1") as client:
        client.delete(b"gap")


def _measure_death(cluster: RealCluster, seen: dict[str, list[float]]) -> None:
    """Kill n2 while a client of n1 publishes to its queue and another consumes from it."""
    with cluster.client("n1") as publisher, cluster.client("n3") as consumer:
        consumer.consume(b"gap", no_ack=True)
        publisher.confirm_select()
        publisher.publish(b"gap", b"m", PERSISTENT)
        assert isinstance(publisher.event(), BasicAck)
        killed = time.monotonic()
        cluster["n2"].kill()
        while True:
            publisher.publish(b"gap", b"m", PERSISTENT)
            if isinstance(publisher.event(), BasicNack):
                break
        seen["death to nack"].append(time.monotonic() - killed)
        while not isinstance(consumer.event(), BasicCancel):
            pass
        seen["death to cancel"].append(time.monotonic() - killed)


def _measure_silence(cluster: RealCluster, seen: dict[str, list[float]]) -> None:
    """Let n2 stand still while a client of n1 waits for the confirm of a message to its queue."""
    with cluster.client("n1") as client:
        client.confirm_select()
        cluster["n2"].freeze()
        began = time.monotonic()
        client.publish(b"gap", b"m", PERSISTENT)
        assert isinstance(client.event(), BasicNack)
        seen["silence to nack"].append(time.monotonic() - began)
        cluster["n2"].thaw()


def _measure_refusal(cluster: RealCluster) -> float:
    cluster.members[0].kill()
    with cluster.client("n1") as client:
        began = time.monotonic()
        client.send(QueueDeclare(b"new", False, True))
        assert client.await_close().reply_code == 506
        seconds = time.monotonic() - began
    cluster.members[0].start()
    return seconds
