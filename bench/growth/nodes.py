"""Nodes of a cluster, with a queue that has a copy on each of them."""

import time

from bench.brokers import Broker, WarrenBroker
from bench.clusters import BenchCluster, RabbitmqCluster, WarrenCluster
from bench.growth.axis import Cost, is_over
from bench.measure import MeasureError
from bench.mirrors import ALL, QUEUE, await_copies, declare, set_policy
from bench.scenario import Scenario

NAME = "nodes"
SIZES = (1, 2, 3, 5)
OPERATION = "persistent message of 1 KiB, all nodes together"


def measure_nodes(
    scenario: Scenario, kind: type[Broker], sizes: list[int], costs: list[Cost]
) -> None:
    """Add the CPU time of all nodes for a confirmed message through a queue mirrored on all."""
    started = time.monotonic()
    for size in sizes:
        if is_over(scenario, started, f"{kind.name}: {NAME}", size):
            return
        directory = scenario.directory / f"nodes-{kind.__name__}-{size}"
        cluster: BenchCluster = (
            WarrenCluster(directory, count=size)
            if kind is WarrenBroker
            else RabbitmqCluster(directory, count=size)
        )
        scenario.say(f"starting a cluster of {size} nodes of {kind.name} ...")
        try:
            cluster.start()
            cpu_us = _flow(scenario, cluster)
            scenario.add(cluster.nodes[0], f"{NAME} {size:,}: {OPERATION}", cpu_us, "µs")
        finally:
            cluster.stop()
        costs.append(Cost(NAME, OPERATION, size, cpu_us))


def _flow(scenario: Scenario, cluster: BenchCluster) -> float:
    home = cluster.nodes[0]
    set_policy(cluster, ALL)
    declare(home)
    if len(cluster.nodes) > 1:
        await_copies(cluster, home, len(cluster.nodes))
    messages: int = max(100, scenario.options.messages // 2)
    before = sum(node.running_cpu_s() for node in cluster.nodes)
    sample = scenario.perf(
        home, messages,
        "--predeclared", "--queue", QUEUE, "--exchange", "", "--routing-key", QUEUE,
        "--size", "1024", "--flag", "persistent", "--confirm", "1000",
        "--multi-ack-every", "100", "--qos", "1000",
        "--pmessages", str(messages), "--drain", "120",
    )  # fmt: skip
    if not sample.summary["is_drained"]:
        raise MeasureError(f"{sample.summary['received']} of {messages} messages arrived")
    return (sum(node.running_cpu_s() for node in cluster.nodes) - before) * 1e6 / messages
