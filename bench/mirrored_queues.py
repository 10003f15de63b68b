"""The part `queues` of `python -m bench mirrors`: many mirrored queues, and the death of a node.

The queues are declared through all nodes at a time, so each node has a third of the masters. How
far the others have got after the SIGKILL is read from their logs. Meanwhile one client publishes to
a queue of the node that dies, and one to a queue that stays; a third one times transactions of its
own with etcd: before the death, until all masters are there, and while the dead mirrors leave their
groups.
"""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.brokers import Broker, BrokerError
from bench.clusters import WarrenCluster
from bench.confirmed_flow import ConfirmedFlow
from bench.measure import MeasureError, await_quiet
from bench.scenario import ANSWER_TIMEOUT_S, MIB, Scenario
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawPut
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

# Declarations sent before the first reply is awaited.
PIPELINE = 100
# What a node logs when it promotes its mirror of a queue.
PROMOTED = "Promoting mirror on node"
PROMOTED_TIMEOUT_S = 120.0
CHANGED_TIMEOUT_S = 120.0
IDLE_S = 10.0
# Confirmed messages a second of each flow.
RATE = 200.0
PROBE_PAUSE_S = 0.01
# How long etcd is timed before the death, and after the promotions.
PROBE_BEFORE_S = 3.0
PROBE_AFTER_S = 10.0


def measure_queues(scenario: Scenario, cluster: WarrenCluster) -> None:
    count: int = scenario.options.queues
    home = cluster.nodes[0]
    cluster.control(
        home, "set_policy", "--apply-to", "queues", "ha", "^bench",
        '{"ha-mode":"all","ha-sync-mode":"automatic"}',
    )  # fmt: skip
    started = time.monotonic()
    with ThreadPoolExecutor(len(cluster.nodes)) as threads:
        parts = [range(each, count, len(cluster.nodes)) for each in range(len(cluster.nodes))]
        list(threads.map(_declare, cluster.nodes, parts))
    declared_s = time.monotonic() - started
    scenario.add(home, "declaring mirrored queues", count / declared_s, "queues/s")
    _await_synced(cluster, count)
    scenario.add(home, "all of their mirrors in sync", time.monotonic() - started, "s")
    for node in cluster.nodes:
        await_quiet(node)
    _measure_idle(scenario, cluster)
    _measure_death(scenario, cluster, count)


def _declare(node: Broker, numbers: range) -> None:
    """Declare the queues with these numbers, PIPELINE at a time."""
    client = Client(parse_uri(node.uri), "bench", ANSWER_TIMEOUT_S)
    names = [b"bench-%05d" % number for number in numbers]
    for at in range(0, len(names), PIPELINE):
        part = names[at : at + PIPELINE]
        for name in part:
            client.send(CHANNEL, QueueDeclare(queue=name, durable=True))
        for _ in part:
            reply = client.receive()
            if not isinstance(reply, QueueDeclareOk):
                raise MeasureError(f"a declaration is answered by {reply!r}")
    client.close()


def _await_synced(cluster: WarrenCluster, count: int) -> None:
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        rows = cluster.table(cluster.nodes[0], "list_queues", "name", "synchronised_slave_pids")
        if sum(row[1].count("<") == 2 for row in rows) == count:
            return
        if time.monotonic() > deadline:
            raise MeasureError("mirrors do not get in sync")
        time.sleep(0.5)


def _measure_idle(scenario: Scenario, cluster: WarrenCluster) -> None:
    before = [node.usage().cpu_s for node in cluster.nodes]
    time.sleep(IDLE_S)
    usages = [node.usage() for node in cluster.nodes]
    costs = [usage.cpu_s - then for usage, then in zip(usages, before, strict=True)]
    home = cluster.nodes[0]
    scenario.add(home, "CPU of a node without clients", 100 * max(costs) / IDLE_S, "%")
    scenario.add(home, "RSS of a node", max(usage.rss_bytes for usage in usages) / MIB, "MiB")


def _measure_death(scenario: Scenario, cluster: WarrenCluster, count: int) -> None:
    home, victim = cluster.nodes[0], cluster.nodes[2]
    masters = len(range(2, count, len(cluster.nodes)))
    flows = {"of the dead node": "bench-00002", "of another node": "bench-00000"}
    running = {text: ConfirmedFlow(home, queue, RATE) for text, queue in flows.items()}
    probe = _EtcdProbe(cluster.etcd.url)
    logs = [_Log(node) for node in cluster.nodes if node is not victim]
    try:
        for flow in running.values():
            flow.await_confirmed(time.monotonic() + 1.0)
        probe.begin()
        time.sleep(PROBE_BEFORE_S)
        killed_s = time.monotonic()
        victim.kill()
        promoted: dict[int, float] = {}
        while sum(log.count for log in logs) < masters:
            for log in logs:
                log.read()
            found = sum(log.count for log in logs)
            promoted.setdefault(found, time.monotonic() - killed_s)
            if time.monotonic() - killed_s > PROMOTED_TIMEOUT_S:
                raise MeasureError(f"{found} of {masters} mirrors are promoted")
            time.sleep(0.01)
        all_s = time.monotonic() - killed_s
        time.sleep(PROBE_AFTER_S)
        latencies = probe.end()
        for text, flow in running.items():
            gap_ms = flow.longest_gap_s(killed_s, time.monotonic()) * 1000
            scenario.add(home, f"node killed: longest gap, queue {text}", gap_ms, "ms")
    finally:
        probe.end()
        for flow in running.values():
            flow.stop()
    firsts = [seconds for found, seconds in promoted.items() if found > 0]
    scenario.add(home, "node killed: first mirrors promoted after", min(firsts), "s")
    scenario.add(home, f"node killed: all {masters} promoted after", all_s, "s")
    promoted_s = killed_s + all_s
    for text, start_s, end_s in (
        ("before the death", 0.0, killed_s),
        ("until all are promoted", killed_s, promoted_s),
        ("after that", promoted_s, time.monotonic()),
    ):
        found_ms = sorted(each for at_s, each in latencies if start_s <= at_s < end_s)
        if found_ms:
            scenario.add(home, f"etcd {text}, median", statistics.median(found_ms), "ms")
            scenario.add(home, f"etcd {text}, p99", found_ms[int(len(found_ms) * 0.99)], "ms")
    _await_changed(cluster, count)
    scenario.add(home, "dead mirrors have left after", time.monotonic() - killed_s, "s")


def _await_changed(cluster: WarrenCluster, count: int) -> None:
    """Return when all queues are served and the dead node has no mirror.

    A node that is busy may be missing in a listing.
    """
    deadline = time.monotonic() + CHANGED_TIMEOUT_S
    failure = "some queues are not served"
    while time.monotonic() < deadline:
        try:
            rows = cluster.table(cluster.nodes[0], "list_queues", "name", "state", "slave_pids")
        except BrokerError as error:
            failure = str(error)
        else:
            is_served = [row[1] == "running" and row[2].count("<") == 1 for row in rows]
            if sum(is_served) == count:
                return
            failure = f"{count - sum(is_served)} queues are down or have dead mirrors"
        time.sleep(0.5)
    raise MeasureError(f"after the death of a node: {failure}")


class _Log:
    """How many mirrors a node has promoted, by its log from now on."""

    def __init__(self, node: Broker) -> None:
        self._path: Path = node.directory / "console.log"
        self._offset = self._path.stat().st_size
        self._rest = ""
        self.count = 0

    def read(self) -> None:
        """Count what has come."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        self.count += sum(PROMOTED in line for line in lines)


class _EtcdProbe:
    """Times transactions of one client of etcd, one after the other."""

    def __init__(self, url: str) -> None:
        self._gateway = EtcdGateway([url])
        # When each transaction began (s), and its time (ms).
        self._latencies_ms: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Start."""
        self._thread.start()

    def end(self) -> list[tuple[float, float]]:
        """Stop; when each transaction began (s), and its time (ms)."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._latencies_ms

    def _run(self) -> None:
        while not self._is_over.wait(PROBE_PAUSE_S):
            before = time.monotonic()
            self._gateway.transact([], [RawPut(b"/bench/probe", b"x")])
            self._latencies_ms.append((before, (time.monotonic() - before) * 1000))
