"""`python -m bench cluster`: three nodes, and clients at the queue's node or at another one.

The workload is that of `persistent-1k`: persistent messages of 1 KiB, 1000 unconfirmed, one ack for
100 messages. Producer and consumer connect to the node of the queue (direct) or to another node.
CPU times are those of all nodes. With warren, `--queues` queues are then declared through all
nodes; the figures are the time of a single declaration, and of the start of a node afterwards.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.brokers import Broker, WarrenBroker
from bench.clusters import BenchCluster, RabbitmqCluster, WarrenCluster
from bench.measure import MeasureError
from bench.scenario import ANSWER_TIMEOUT_S, Scenario, run_scenario
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

QUEUE = "bench-cluster"
# Declarations sent before the first reply is awaited.
PIPELINE = 100
SINGLE_DECLARATIONS = 300


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queues", type=int, default=10_000, metavar="N")
    parser.add_argument("--seconds", type=float, default=5.0, help="publishing time of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; medians are shown")


def main(arguments: list[str]) -> int:
    return run_scenario("cluster", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    for kind in scenario.kinds():
        with _running(scenario, kind) as cluster:
            _measure_flow(scenario, cluster)
            if isinstance(cluster, WarrenCluster) and scenario.options.queues:
                _measure_queues(scenario, cluster)


@contextmanager
def _running(scenario: Scenario, kind: type[Broker]) -> Iterator[BenchCluster]:
    directory = scenario.directory / kind.__name__
    cluster: BenchCluster = (
        WarrenCluster(directory) if kind is WarrenBroker else RabbitmqCluster(directory)
    )
    scenario.say(f"starting three nodes of {kind.name} ...")
    try:
        cluster.start()
        scenario.versions.append(cluster.nodes[0].version())
        yield cluster
    finally:
        cluster.stop()


def _measure_flow(scenario: Scenario, cluster: BenchCluster) -> None:
    home, other = cluster.nodes[0], cluster.nodes[1]
    client = Client(parse_uri(home.uri), "bench", ANSWER_TIMEOUT_S)
    _expect_declared(client.request(QueueDeclare(queue=QUEUE.encode(), durable=True)))
    client.close()
    rates: dict[str, list[float]] = {"direct": [], "other": []}
    costs: dict[str, list[float]] = {"direct": [], "other": []}
    for _ in range(scenario.options.rounds):
        for name, node in (("direct", home), ("other", other)):
            before = _cpu_s(cluster)
            sample = scenario.perf(
                node, 0, "--predeclared", "--queue", QUEUE, "--exchange", "", "--routing-key", QUEUE,
                "--producers", "1", "--consumers", "1", "--size", "1024", "--flag", "persistent",
                "--confirm", "1000", "--multi-ack-every", "100", "--qos", "1000",
                "--time", str(scenario.options.seconds),
            )  # fmt: skip
            rates[name].append(float(sample.summary["receive_rate"]))
            costs[name].append((_cpu_s(cluster) - before) / sample.summary["received"] * 1e6)
    for name, text in (("direct", "at the queue's node"), ("other", "at another node")):
        scenario.add(home, f"clients {text}", statistics.median(rates[name]), "msg/s")
        scenario.add(home, f"CPU, clients {text}", statistics.median(costs[name]), "µs/msg")
    share = statistics.median(rates["other"]) / statistics.median(rates["direct"])
    scenario.add(home, "another node, of direct", 100 * share, "%")


def _measure_queues(scenario: Scenario, cluster: WarrenCluster) -> None:
    count: int = scenario.options.queues
    started = time.monotonic()
    for number, node in enumerate(cluster.nodes):
        names = [b"bench-%05d" % each for each in range(number, count, len(cluster.nodes))]
        client = Client(parse_uri(node.uri), "bench", ANSWER_TIMEOUT_S)
        for at in range(0, len(names), PIPELINE):
            part = names[at : at + PIPELINE]
            for name in part:
                client.send(CHANNEL, QueueDeclare(queue=name, durable=True))
            for _ in part:
                _expect_declared(client.receive())
        client.close()
    home = cluster.nodes[0]
    scenario.add(home, "declaring", count / (time.monotonic() - started), "queues/s")
    client = Client(parse_uri(home.uri), "bench", ANSWER_TIMEOUT_S)
    times = []
    for number in range(SINGLE_DECLARATIONS):
        before = time.monotonic()
        _expect_declared(client.request(QueueDeclare(queue=b"one-%d" % number, durable=True)))
        times.append((time.monotonic() - before) * 1000)
    client.close()
    scenario.add(home, "declare-ok, median", statistics.median(times), "ms")
    scenario.add(home, "declare-ok, p99", sorted(times)[int(len(times) * 0.99)], "ms")
    node = cluster.nodes[2]
    node.kill()
    started = time.monotonic()
    node.start()
    scenario.add(
        home, f"start of a node after SIGKILL, {count} queues", time.monotonic() - started, "s"
    )


def _expect_declared(reply: object) -> None:
    if not isinstance(reply, QueueDeclareOk):
        raise MeasureError(f"a declaration is answered by {reply!r}")


def _cpu_s(cluster: BenchCluster) -> float:
    return sum(node.usage().cpu_s for node in cluster.nodes)
