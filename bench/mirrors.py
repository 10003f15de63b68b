"""`python -m bench mirrors`: queues with copies on three nodes of one machine.

flow    `persistent-1k` through a queue that is mirrored to all nodes. The brokers alternate.
kill    SIGKILL of the master's node under 1,000 confirmed messages a second, sent through another
        node: the longest time between two confirms.
sync    a second copy for a queue of `--sync-messages` messages of 1 KiB, under the same flow;
        beside it, a paced flow through another queue of the node.
rejoin  a node that was down while 100 of `--sync-messages` messages changed: the bytes that its
        copy gets. Of warren only.
queues  `--queues` mirrored queues, declared through all nodes; then SIGKILL of one node, which has
        a third of the masters. Of warren only (`bench/mirrored_queues.py`).
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.brokers import Broker, WarrenBroker
from bench.clusters import BenchCluster, RabbitmqCluster, WarrenCluster
from bench.confirmed_flow import ConfirmedFlow
from bench.measure import MeasureError
from bench.mirrored_queues import measure_queues
from bench.paced import PacedFlow
from bench.scenario import ANSWER_TIMEOUT_S, Scenario, run_scenario
from warrenmq.perf.client import Client
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueuePurge

PARTS = ("flow", "kill", "sync", "rejoin", "queues")
QUEUE = "bench-mirrored"
ALL = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
TWO = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
# Confirmed messages a second while something happens to the queue.
RATE = 1000.0
# How long a flow is watched before and after the event (s).
BEFORE_S = 2.0
AFTER_S = 4.0
SYNC_TIMEOUT_S = 300.0
# Messages that change while a node is down, half of them new and half of them gone.
CHANGED = 100
_PID = re.compile(r"<(.+?)\.\d+\.\d+\.\d+>")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeatable")
    parser.add_argument("--seconds", type=float, default=5.0, help="publishing time of a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; medians are shown")
    parser.add_argument("--kills", type=int, default=7, metavar="N")
    parser.add_argument("--sync-messages", type=int, default=150_000, metavar="N")
    parser.add_argument("--down", type=float, default=60.0, help="time (s) before a node rejoins")
    parser.add_argument("--queues", type=int, default=10_000, metavar="N")


def main(arguments: list[str]) -> int:
    return run_scenario("mirrors", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    parts: list[str] = scenario.options.only or list(PARTS)
    if "flow" in parts:
        with ExitStack() as stack:
            clusters = [
                stack.enter_context(_running(scenario, kind, "flow")) for kind in scenario.kinds()
            ]
            _measure_flows(scenario, clusters)
    for part, each in (("kill", _measure_kills), ("sync", _measure_sync)):
        if part in parts:
            for kind in scenario.kinds():
                with _running(scenario, kind, part) as cluster:
                    each(scenario, cluster)
    for part, own in (("rejoin", _measure_rejoin), ("queues", measure_queues)):
        if part in parts and WarrenBroker in scenario.kinds():
            with _running(scenario, WarrenBroker, part) as cluster:
                assert isinstance(cluster, WarrenCluster)
                own(scenario, cluster)


@contextmanager
def _running(scenario: Scenario, kind: type[Broker], part: str) -> Iterator[BenchCluster]:
    directory = scenario.directory / f"{part}-{kind.__name__}"
    cluster: BenchCluster = (
        WarrenCluster(directory) if kind is WarrenBroker else RabbitmqCluster(directory)
    )
    scenario.say(f"starting three nodes of {kind.name} ...")
    try:
        cluster.start()
        if (version := cluster.nodes[0].version()) not in scenario.versions:
            scenario.versions.append(version)
        yield cluster
    finally:
        cluster.stop()


# -- flow ------------------------------------------------------------------------------------------


def _measure_flows(scenario: Scenario, clusters: list[BenchCluster]) -> None:
    rates: dict[str, dict[str, list[float]]] = {}
    costs: dict[str, dict[str, list[float]]] = {}
    places = {"clients at the master's node": 0, "clients at a mirror's node": 1}
    for cluster in clusters:
        set_policy(cluster, ALL)
        declare(cluster.nodes[0])
        await_copies(cluster, cluster.nodes[0], 3)
    for number in range(scenario.options.rounds):
        for cluster in clusters if number % 2 else reversed(clusters):
            home = cluster.nodes[0]
            for name, place in places.items():
                before = _cpu_s(cluster)
                sample = scenario.perf(
                    cluster.nodes[place], 0,
                    "--predeclared", "--queue", QUEUE, "--exchange", "", "--routing-key", QUEUE,
                    "--producers", "1", "--consumers", "1", "--size", "1024",
                    "--flag", "persistent", "--confirm", "1000", "--multi-ack-every", "100",
                    "--qos", "1000", "--time", str(scenario.options.seconds),
                )  # fmt: skip
                rate = float(sample.summary["receive_rate"])
                rates.setdefault(home.name, {}).setdefault(name, []).append(rate)
                cost = (_cpu_s(cluster) - before) / sample.summary["received"] * 1e6
                costs.setdefault(home.name, {}).setdefault(name, []).append(cost)
                scenario.say(f"{home.name}, {name}: {rate:,.0f} msg/s, {cost:.1f} µs/msg")
    for cluster in clusters:
        home = cluster.nodes[0]
        for name in places:
            found = rates[home.name][name]
            scenario.add(home, name, statistics.median(found), "msg/s")
            scenario.add(home, f"CPU, {name}", statistics.median(costs[home.name][name]), "µs/msg")


# -- kill ------------------------------------------------------------------------------------------


def _measure_kills(scenario: Scenario, cluster: BenchCluster) -> None:
    home = cluster.nodes[0]
    set_policy(cluster, ALL)
    declare(home)
    gaps: list[float] = []
    refused: list[int] = []
    for _ in range(scenario.options.kills):
        asked = home if home.process is not None else cluster.nodes[1]
        await_copies(cluster, asked, 3)
        master = _master(cluster, asked)
        survivor = next(node for node in cluster.nodes if node is not master)
        flow = ConfirmedFlow(survivor, QUEUE, RATE)
        try:
            flow.await_confirmed(time.monotonic() + BEFORE_S)
            killed_s = time.monotonic()
            master.kill()
            time.sleep(AFTER_S)
            gaps.append(flow.longest_gap_s(killed_s, killed_s + AFTER_S) * 1000)
            refused.append(flow.refused_count)
        finally:
            flow.stop()
        scenario.say(f"{home.name}: {gaps[-1]:.0f} ms, {refused[-1]} refused")
        _request(survivor, QueuePurge(queue=QUEUE.encode()))
        cluster.restart(master)
    scenario.add(home, "master killed: longest gap, median", statistics.median(gaps), "ms")
    scenario.add(home, "master killed: longest gap, highest", max(gaps), "ms")
    scenario.add(home, "master killed: refused messages, median", statistics.median(refused))


# -- sync ------------------------------------------------------------------------------------------


def _measure_sync(scenario: Scenario, cluster: BenchCluster) -> None:
    home = cluster.nodes[0]
    count: int = scenario.options.sync_messages
    gaps: list[float] = []
    quiet: list[float] = []
    times: list[float] = []
    # Times to the confirm, and latencies of another queue on the node: before and during a sync.
    confirms: tuple[list[float], list[float]] = ([], [])
    others: tuple[list[float], list[float]] = ([], [])
    for _ in range(scenario.options.rounds):
        scenario.fill(home, QUEUE, count)
        flow = ConfirmedFlow(home, QUEUE, RATE)
        other = PacedFlow(home, scenario.generator_cores(home), RATE, True)
        try:
            other.await_flowing()
            flow.await_confirmed(time.monotonic() + 0.5)
            before = time.monotonic()
            quiet.append(flow.longest_gap_s(before, before + BEFORE_S) * 1000)
            started = time.monotonic()
            set_policy(cluster, TWO)
            await_copies(cluster, home, 2)
            ended = time.monotonic()
            times.append(ended - started)
            gaps.append(flow.longest_gap_s(started, ended) * 1000)
            for place, (first, last) in enumerate(((before, started), (started, ended))):
                confirms[place].append(_p99_ms(flow.confirm_times(first, last)))
                others[place].append(_p99_ms(other.window(first, last)))
        finally:
            flow.stop()
            other.stop()
        scenario.say(
            f"{home.name}: {times[-1]:.2f} s, longest gap {gaps[-1]:.1f} ms, p99 of confirms "
            f"{confirms[0][-1]:.1f} and {confirms[1][-1]:.1f} ms, of the other queue "
            f"{others[0][-1]:.1f} and {others[1][-1]:.1f} ms"
        )
        cluster.control(home, "clear_policy", "ha")
        _request(home, QueueDelete(queue=QUEUE.encode()))
    what = f"sync of {count} messages"
    scenario.add(home, "longest gap before a sync, median", statistics.median(quiet), "ms")
    scenario.add(home, f"{what}: longest gap, median", statistics.median(gaps), "ms")
    scenario.add(home, f"{what}: longest gap, highest", max(gaps), "ms")
    scenario.add(home, f"{what}: time, median", statistics.median(times), "s")
    scenario.add(home, f"{what}: rate", count / statistics.median(times), "msg/s")
    for name, (before_ms, during_ms) in (("confirms", confirms), ("another queue", others)):
        scenario.add(home, f"p99 of {name} before, median", statistics.median(before_ms), "ms")
        scenario.add(home, f"p99 of {name} in a sync, median", statistics.median(during_ms), "ms")


def _p99_ms(histogram: Histogram) -> float:
    return histogram.percentile(99) / 1_000_000


# -- rejoin ----------------------------------------------------------------------------------------


def _measure_rejoin(scenario: Scenario, cluster: WarrenCluster) -> None:
    home, mirror = cluster.nodes[0], cluster.nodes[1]
    count: int = scenario.options.sync_messages
    set_policy(cluster, ALL)
    scenario.fill(home, QUEUE, count)
    await_copies(cluster, home, 3)
    mirror.kill()
    time.sleep(scenario.options.down)
    scenario.perf(
        home, 0, "--predeclared", "--queue", QUEUE, "--exchange", "", "--routing-key", QUEUE,
        "--consumers", "0", "--pmessages", str(CHANGED // 2), "--size", "1024",
        "--flag", "persistent", "--confirm", "50",
    )  # fmt: skip
    scenario.perf(
        home, 0, "--predeclared", "--queue", QUEUE, "--producers", "0",
        "--cmessages", str(CHANGED // 2), "--qos", str(CHANGED // 2), "--multi-ack-every", "1",
    )  # fmt: skip
    started = time.monotonic()
    cluster.restart(mirror)
    await_copies(cluster, home, 3)
    scenario.add(home, "rejoin: time from the start of the node", time.monotonic() - started, "s")
    status = cluster.mirror_status(home, QUEUE)
    sent = sum(each["sync_bytes"] or 0 for each in status["mirrors"])
    scenario.add(home, "rejoin: bytes of new messages", CHANGED // 2 * 1024)
    scenario.add(home, "rejoin: bytes sent to the copy", sent)


# -- help ------------------------------------------------------------------------------------------


def set_policy(cluster: BenchCluster, definition: str) -> None:
    words = ("set_policy", "--apply-to", "queues", "ha", f"^{QUEUE}", definition)
    cluster.control(cluster.nodes[0], *words)


def _request(node: Broker, method: QueueDeclare | QueueDelete | QueuePurge) -> object:
    client = Client(parse_uri(node.uri), "bench", ANSWER_TIMEOUT_S)
    try:
        return client.request(method)
    finally:
        client.close()


def declare(node: Broker) -> None:
    reply = _request(node, QueueDeclare(queue=QUEUE.encode(), durable=True))
    if not isinstance(reply, QueueDeclareOk):
        raise MeasureError(f"a declaration is answered by {reply!r}")


def _row(cluster: BenchCluster, node: Broker) -> list[str]:
    """Name, pid and pids of the mirrors in sync of the queue."""
    rows = cluster.table(node, "list_queues", "name", "pid", "synchronised_slave_pids")
    return next((row for row in rows if row[0] == QUEUE), [QUEUE, "", ""])


def await_copies(cluster: BenchCluster, node: Broker, count: int) -> None:
    """Return when so many copies are in sync, as `node` knows; MeasureError when they never are."""

    def are_there() -> bool:
        return len(_PID.findall(" ".join(_row(cluster, node)[1:]))) >= count

    await_true(are_there, f"{count} copies in sync", SYNC_TIMEOUT_S)


def await_true(holds: Callable[[], bool], text: str, timeout_s: float) -> None:
    """Return when something holds; MeasureError when it does not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise MeasureError(f"{text}: not within {timeout_s:.0f} s")
        time.sleep(0.02)


def _master(cluster: BenchCluster, asked: Broker) -> Broker:
    found = _PID.search(_row(cluster, asked)[1])
    name = found.group(1) if found else ""
    return next(node for node in cluster.nodes if cluster.name_of(node) == name)


def _cpu_s(cluster: BenchCluster) -> float:
    return sum(node.usage().cpu_s for node in cluster.nodes)
