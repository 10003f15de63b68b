"""`python -m bench workers`: two nodes on one machine beside one, by the CPU time of each message.

A machine with two cores cannot show what two nodes carry, because the load generator needs cores,
too. So the figures are CPU times: a node is one core, and so many messages pass as its core has
time for. `--clients` pairs of a producer and a consumer, each with a queue of its own, are

    home         connected to the node that has their queue, of a cluster of two
    elsewhere    connected to the other one: each message passes both
    shared port  connected to the port of two workers, which find out by themselves

and the same pairs are put on one node, with and without TLS.
"""

import argparse
import contextlib
import io
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.brokers import Broker, BrokerError, WarrenBroker
from bench.certificate import Certificate
from bench.clusters import WarrenCluster
from bench.measure import Sample, run_perf
from bench.scenario import ANSWER_TIMEOUT_S, Scenario, run_scenario
from warrenmq.cli.control import main as warrenctl
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
    """What one run cost: CPU time of all nodes for each message (µs), and messages a second.

    `capacity`: as many as pass when each node has a core, and the clients have others.
    """

    cpu_us: float
    capacity: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="publishing time of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; medians are shown")
    parser.add_argument("--clients", type=int, default=4, help="pairs of clients")


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
        _warrenctl(workers, "await_online_nodes", str(COUNT))
        scenario.versions.append(alone.version())
        for number in range(scenario.options.clients):
            _declare(alone, number)
            _declare(cluster.nodes[number % COUNT], number)
            _declare(workers, number)
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
    count = scenario.options.clients
    homes = [number % COUNT for number in range(count)]
    workers_homes = _homes(workers, count)
    nodes = cluster.nodes
    runs: dict[str, Callable[[], Run]] = {
        "one node": lambda: _run(scenario, [alone] * count, load, _costs([alone]), [0] * count),
        "two, home": lambda: _run(
            scenario, [nodes[home] for home in homes], load, _costs(nodes), homes
        ),
        "two, elsewhere": lambda: _run(
            scenario, [nodes[1 - home] for home in homes], load, _costs(nodes), None
        ),
        "two, shared port": lambda: _run(
            scenario, [workers] * count, load, lambda: _worker_costs_s(workers), workers_homes
        ),
    }
    if alone.tls_uri:
        runs["one node, TLS"] = lambda: _run(
            scenario, [alone] * count, load, _costs([alone]), [0] * count, alone.tls_uri
        )
    found: dict[str, list[Run]] = {each: [] for each in runs}
    for _ in range(scenario.options.rounds):
        for each, run in runs.items():
            found[each].append(run())
    one = statistics.median([run.capacity for run in found["one node"]])
    for each, taken in found.items():
        cpu_us = statistics.median([run.cpu_us for run in taken])
        capacity = statistics.median([run.capacity for run in taken])
        scenario.add(alone, f"{name}: {each}, CPU", cpu_us, "µs/msg")
        scenario.add(alone, f"{name}: {each}, capacity", capacity, "msg/s")
        scenario.add(alone, f"{name}: {each}, of one node", capacity / one, "x")


def _run(
    scenario: Scenario,
    nodes: list[Broker],
    load: tuple[str, ...],
    costs_s: Callable[[], list[float]],
    homes: list[int] | None,
    uri: str = "",
) -> Run:
    """Run a pair of clients at each of `nodes`, and add up what that cost by `costs_s`.

    `homes`: the only node that has to do with each pair; None: all have to do with all.
    """
    before = costs_s()
    with ThreadPoolExecutor(len(nodes)) as threads:
        samples = list(
            threads.map(
                lambda number: _perf(scenario, nodes[number], _queue(number), load, uri),
                range(len(nodes)),
            )
        )
    costs = [now - was for now, was in zip(costs_s(), before, strict=True)]
    received = [int(sample.summary["received"]) for sample in samples]
    cpu_us = sum(costs) / sum(received) * 1e6
    if homes is None:
        return Run(cpu_us, sum(received) / max(costs))
    by_home = [0] * len(costs)
    for home, count in zip(homes, received, strict=True):
        by_home[home] += count
    return Run(cpu_us, sum(each / cost for each, cost in zip(by_home, costs, strict=True)))


def _perf(scenario: Scenario, node: Broker, queue: str, load: tuple[str, ...], uri: str) -> Sample:
    arguments = ["--predeclared", "--queue", queue, "--exchange", "", "--routing-key", queue]
    arguments += ["--producers", "1", "--consumers", "1", "--qos", "1000", *load]
    arguments += ["--time", str(scenario.options.seconds), "--drain", "60"]
    return run_perf(node, arguments, set(), waits_for_quiet=False, uri=uri)


def _costs(nodes: list[Broker]) -> Callable[[], list[float]]:
    return lambda: [node.running_cpu_s() for node in nodes]


def _homes(workers: WarrenBroker, count: int) -> list[int]:
    """The number of the worker that has each queue."""
    rows = _warrenctl(workers, "-s", "list_queues", "name", "pid").splitlines()
    pids = dict(row.split("\t") for row in rows)
    nodes = [pids[_queue(number)].partition("@")[0] for number in range(count)]
    return [1 if node.endswith("-1") else 0 for node in nodes]


def _worker_costs_s(workers: WarrenBroker) -> list[float]:
    """The CPU time (s) of each worker so far."""
    assert workers.process is not None
    costs = []
    for process in psutil.Process(workers.process.pid).children():
        total_ns = 0
        for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError):
                total_ns += int(path.read_text().split()[0])
        costs.append(total_ns / 1e9)
    return costs


def _warrenctl(workers: WarrenBroker, *arguments: str) -> str:
    """The output of a command on worker 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = warrenctl(["--data-dir", str(workers.directory / "data"), "-q", *arguments])
    if code:
        raise BrokerError(f"warrenctl {' '.join(arguments)} ends with {code}")
    return out.getvalue()


def _queue(number: int) -> str:
    return f"bench-{number}"


def _declare(node: Broker, number: int) -> None:
    client = Client(parse_uri(node.uri), "bench", ANSWER_TIMEOUT_S)
    client.request(QueueDeclare(queue=_queue(number).encode(), durable=True))
    client.close()
