"""`python -m bench workers`: two nodes on one machine beside one, by the CPU time of each message.

A machine with two cores cannot show what two nodes carry, because the load generator needs cores,
too. So the figures are CPU times: a node is one core, and as many messages pass as the busiest node
has time for. Two nodes are measured with their clients at the node of the queue (home), at the
other one (elsewhere), and as the shared port deals them out (by chance, `--clients` pairs of a
producer and a consumer, each with a queue of its own).
"""

import argparse
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.brokers import Broker, WarrenBroker
from bench.certificate import Certificate
from bench.clusters import WarrenCluster
from bench.measure import Sample, await_quiet, delete_queues, run_perf
from bench.scenario import ANSWER_TIMEOUT_S, Scenario, run_scenario
from warrenmq.perf.client import Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare

COUNT = 2
WORKLOADS = {
    "transient 100 B, batched acks": ("--size", "100", "--multi-ack-every", "100"),
    "transient 100 B, acks singly": ("--size", "100", "--write-each-ack"),
    "persistent 1 KiB, confirms": (
        *("--size", "1024", "--flag", "persistent", "--confirm", "1000"),
        *("--multi-ack-every", "100"),
    ),
}


class Run(NamedTuple):
    """What one run cost: CPU time (µs) of all nodes and of the busiest one, for each message."""

    total_us: float
    busiest_us: float
    rate: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=4.0, help="publishing time of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; medians are shown")
    parser.add_argument("--clients", type=int, default=6, help="pairs of clients by chance")


def main(arguments: list[str]) -> int:
    return run_scenario(
        "workers", __doc__, ["--broker", "warren", *arguments], add_options, measure
    )


def measure(scenario: Scenario) -> None:
    certificate = Certificate.make(scenario.directory)
    alone = WarrenBroker(scenario.directory / "alone", set(), certificate=certificate)
    cluster = WarrenCluster(scenario.directory / "cluster", count=COUNT)
    workers = WarrenBroker(scenario.directory / "workers", set(), (f"workers={COUNT}",))
    try:
        alone.start()
        cluster.start()
        workers.start()
        scenario.versions.append(alone.version())
        _declare(alone, 0)
        for number, node in enumerate(cluster.nodes):
            _declare(node, number)
        for name, load in WORKLOADS.items():
            _measure_load(scenario, name, load, alone, cluster, workers)
    finally:
        for each in (alone, workers):
            each.kill()
            each.stop()
        cluster.stop()


def _measure_load(
    scenario: Scenario,
    name: str,
    load: tuple[str, ...],
    alone: WarrenBroker,
    cluster: WarrenCluster,
    workers: WarrenBroker,
) -> None:
    first, second = cluster.nodes
    runs: dict[str, Callable[[], Run]] = {
        "one node": lambda: _run(scenario, [(alone, 0)], load, [alone]),
        "two, home": lambda: _run(scenario, [(first, 0), (second, 1)], load, cluster.nodes),
        "two, elsewhere": lambda: _run(scenario, [(first, 1), (second, 0)], load, cluster.nodes),
        "two, by chance": lambda: _run_by_chance(scenario, load, workers),
    }
    if alone.tls_uri:
        runs["one node, TLS"] = lambda: _run(
            scenario, [(alone, 0)], load, [alone], uri=alone.tls_uri
        )
    found: dict[str, list[Run]] = {each: [] for each in runs}
    for _ in range(scenario.options.rounds):
        for each, run in runs.items():
            found[each].append(run())
    one_us = statistics.median([run.busiest_us for run in found["one node"]])
    for each, taken in found.items():
        busiest_us = statistics.median([run.busiest_us for run in taken])
        total_us = statistics.median([run.total_us for run in taken])
        rate = statistics.median([run.rate for run in taken])
        scenario.add(alone, f"{name}: {each}, CPU", total_us, "µs/msg")
        scenario.add(alone, f"{name}: {each}, CPU of the busiest node", busiest_us, "µs/msg")
        scenario.add(alone, f"{name}: {each}, of one node", one_us / busiest_us, "x")
        scenario.add(alone, f"{name}: {each}, here with its clients", rate, "msg/s")


def _run(
    scenario: Scenario,
    clients: list[tuple[Broker, int]],
    load: tuple[str, ...],
    nodes: list[Broker],
    uri: str = "",
) -> Run:
    """Run clients at nodes, each with the queue of a number, and add up what the nodes needed."""
    for node in nodes:
        await_quiet(node)
    before = [node.running_cpu_s() for node in nodes]
    with ThreadPoolExecutor(len(clients)) as threads:
        samples = list(
            threads.map(
                lambda pair: _perf(scenario, pair[0], _queue(pair[1]), load, uri, True), clients
            )
        )
    costs_s = [node.running_cpu_s() - was for node, was in zip(nodes, before, strict=True)]
    return _told(samples, costs_s)


def _run_by_chance(scenario: Scenario, load: tuple[str, ...], workers: WarrenBroker) -> Run:
    """Run pairs of clients at the shared port, each pair with a new queue of its own."""
    await_quiet(workers)
    queues = [f"chance-{number}" for number in range(scenario.options.clients)]
    delete_queues(workers, queues)
    before = _worker_costs_s(workers)
    with ThreadPoolExecutor(len(queues)) as threads:
        samples = list(
            threads.map(lambda name: _perf(scenario, workers, name, load, "", False), queues)
        )
    costs_s = [now - was for now, was in zip(_worker_costs_s(workers), before, strict=True)]
    return _told(samples, costs_s)


def _told(samples: list[Sample], costs_s: list[float]) -> Run:
    messages = sum(int(sample.summary["received"]) for sample in samples)
    rate = sum(float(sample.summary["receive_rate"]) for sample in samples)
    return Run(sum(costs_s) / messages * 1e6, max(costs_s) / messages * 1e6, rate)


def _perf(
    scenario: Scenario,
    node: Broker,
    queue: str,
    load: tuple[str, ...],
    uri: str,
    is_declared: bool,
) -> Sample:
    where = ["--predeclared"] if is_declared else ["--no-auto-delete"]
    where += ["--queue", queue, "--exchange", "", "--routing-key", queue]
    arguments = [*where, "--producers", "1", "--consumers", "1", "--qos", "1000", *load]
    arguments += ["--time", str(scenario.options.seconds), "--drain", "60"]
    return run_perf(node, arguments, set(), waits_for_quiet=False, uri=uri)


def _worker_costs_s(workers: WarrenBroker) -> list[float]:
    """The CPU time (s) of each worker so far."""
    assert workers.process is not None
    costs = []
    for process in psutil.Process(workers.process.pid).children():
        total_ns = 0
        for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            # A thread may end between the listing and the reading.
            with suppress(OSError):
                total_ns += int(path.read_text().split()[0])
        costs.append(total_ns / 1e9)
    return costs


def _queue(number: int) -> str:
    return f"bench-{number}"


def _declare(node: Broker, number: int) -> None:
    client = Client(parse_uri(node.uri), "bench", ANSWER_TIMEOUT_S)
    client.request(QueueDeclare(queue=_queue(number).encode(), durable=True))
    client.close()
