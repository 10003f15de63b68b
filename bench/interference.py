"""`python -m bench interference`: latency of a queue while the broker works on a large queue.

A paced flow (100 B, 5,000 messages a second, published, delivered, acked one by one) runs through a
queue of its own. Beside it a queue of 1,000,000 messages

- is filled at a fixed rate, all of it in memory: the cost of the filling alone;
- is filled at the same rate on a broker with a low memory limit, which pages most of it out
  meanwhile;
- is purged; is deleted;
- expires (`x-message-ttl`), at the rate at which it was filled;
- is compacted: three queues get messages too large for the index in turn, two of them are purged,
  which leaves a third of each file of the message store;
- is backed up (`warren backup`, warren only);
- is filled while the broker has 100,000 other durable queues, which every checkpoint lists (warren
  only).

The figures are the flow's p99 and longest latency during each disturbance, and the distance of p99
from its value on the idle broker. A purge and a deletion end at once; the measurement lasts five
seconds from their start, because the background work that they leave belongs to them.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

from bench.brokers import Broker, RabbitmqBroker
from bench.many_queues import declare_all
from bench.measure import MeasureError, await_quiet
from bench.paced import PacedFlow
from bench.scenario import ANSWER_TIMEOUT_S, Scenario, depth, remove, run_scenario
from warrenmq.perf.client import Client
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.options import parse_uri
from warrenmq.wire.method import Method
from warrenmq.wire.methods import QueueDelete, QueuePurge

QUEUE = "bench-disturbing"
LARGE = ("bench-large-1", "bench-large-2", "bench-large-3")
WARM_UP_S = 2.0
# Shortest measurement of a disturbance, from its start.
WINDOW_S = 5.0
POLL_S = 0.1
# Compaction is over when the size on disk has not changed for this long.
STABLE_S = 3.0
NANOSECONDS_A_MILLISECOND = 1e6
NAMES = (
    *("idle", "filled", "paged", "purged", "deleted", "expired", "compacted", "backed-up"),
    "checkpointed",
)
# Those that RabbitMQ has nothing to compare with.
OWN_NAMES = ("backed-up", "checkpointed")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--messages", type=int, default=1_000_000, metavar="N", help="of the other queue"
    )
    parser.add_argument(
        "--large-messages",
        type=int,
        default=300_000,
        metavar="N",
        help="of each of the three queues",
    )
    parser.add_argument(
        "--queues", type=int, default=100_000, metavar="N", help="that checkpoints list"
    )
    parser.add_argument("--large-size", type=int, default=8192, metavar="BYTES")
    parser.add_argument(
        "--rate", type=float, default=5000, metavar="N", help="messages a second of the paced flow"
    )
    parser.add_argument("--persistent", action="store_true", help="the paced flow too")
    parser.add_argument(
        "--fill-rate",
        type=float,
        default=10_000,
        metavar="N",
        help="messages a second while filled and paged",
    )
    parser.add_argument(
        "--memory-limit",
        type=int,
        default=1024,
        metavar="MIB",
        help="of the broker that pages; it pages from half",
    )
    parser.add_argument(
        "--ttl", type=float, default=90, metavar="S", help="longer than the filling takes"
    )
    parser.add_argument("--seconds", type=float, default=15, help="of the idle broker")
    parser.add_argument("--only", action="append", choices=NAMES[1:], help="this one; repeatable")


def main(arguments: list[str]) -> int:
    return run_scenario("interference", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    limit = f"vm_memory_high_watermark.absolute = {scenario.options.memory_limit}MiB"
    for kind in scenario.kinds():
        wanted = scenario.options.only or NAMES[1:]
        if kind is RabbitmqBroker:
            wanted = [name for name in wanted if name not in OWN_NAMES]
        with scenario.running(kind) as broker:
            disturbances = Disturbances(scenario, broker)
            disturbances.idle()
            for name in NAMES[1:]:
                if name in wanted and name != "paged":
                    disturbances.run(name)
            idle_ms = disturbances.idle_ms
        if "paged" in wanted:
            with scenario.running(kind, limit) as broker:
                disturbances = Disturbances(scenario, broker)
                disturbances.idle_ms = idle_ms
                disturbances.run("paged")


class Disturbances:
    """Runs the disturbances on one broker, each with a flow of its own.

    `idle_ms` is the p99 latency (ms) of the idle broker, which all others are compared with.
    """

    def __init__(self, scenario: Scenario, broker: Broker) -> None:
        self.scenario = scenario
        self.broker = broker
        self.idle_ms = 0.0

    def idle(self) -> None:
        """Measure the flow alone on the idle broker; sets `idle_ms`."""
        flow = self._start_flow()
        started = time.monotonic()
        time.sleep(self.scenario.options.seconds)
        histogram = flow.window(started, time.monotonic())
        flow.stop()
        self.idle_ms = histogram.percentile(99) / NANOSECONDS_A_MILLISECOND
        self._show("idle", histogram, flow)

    def run(self, name: str) -> None:
        """Run the disturbance `name`: prepare, disturb, and clean up."""
        getattr(self, f"_{name.replace('-', '_')}")()
        remove(self.broker, QUEUE, *LARGE)
        await_quiet(self.broker)

    # -- the disturbances --------------------------------------------------------------------------

    def _filled(self) -> None:
        flow = self._start_flow()
        started = time.monotonic()
        self._fill_slowly()
        self._end("filled in memory", flow, started)

    def _paged(self) -> None:
        flow = self._start_flow()
        started = time.monotonic()
        self._fill_slowly()
        self._end("filled and paged out", flow, started)

    def _purged(self) -> None:
        self.scenario.fill(self.broker, QUEUE, self.scenario.options.messages)
        self._ask("purged", QueuePurge(queue=QUEUE.encode()))

    def _deleted(self) -> None:
        self.scenario.fill(self.broker, QUEUE, self.scenario.options.messages)
        self._ask("deleted", QueueDelete(queue=QUEUE.encode()))

    def _expired(self) -> None:
        options = self.scenario.options
        self.scenario.fill(
            self.broker,
            QUEUE,
            options.messages,
            *("--size", "1024", "--queue-args", f"x-message-ttl={int(options.ttl * 1000)}"),
        )
        if depth(self.broker, QUEUE) != options.messages:
            raise MeasureError(
                "messages expired while the queue was filled: a longer --ttl is wanted"
            )
        flow = self._start_flow()
        self._until(lambda: depth(self.broker, QUEUE) < options.messages, options.ttl)
        started = time.monotonic()
        self._until(lambda: depth(self.broker, QUEUE) == 0, options.ttl)
        self._end("expired", flow, started)

    def _compacted(self) -> None:
        options = self.scenario.options
        count = options.large_messages
        self.scenario.perf(
            self.broker,
            count * len(LARGE),
            *("--queue-pattern", "bench-large-%d", "--queue-pattern-to", str(len(LARGE))),
            *("--producers", str(len(LARGE)), "--consumers", "0", "--pmessages", str(count)),
            *(
                "--no-auto-delete",
                "--size",
                str(options.large_size),
                "--flag",
                "persistent",
                "--confirm",
                "100",
            ),
        )
        before = self.broker.disk_bytes()
        flow = self._start_flow()
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        started = time.monotonic()
        for queue in LARGE[1:]:
            client.request(QueuePurge(queue=queue.encode()))
        client.close()
        self._await_stable_disk()
        self._end("compacted", flow, started)
        after = self.broker.disk_bytes()
        self.scenario.add(
            self.broker, "compacted: disk afterwards, of before", 100 * after / before, "%"
        )

    def _backed_up(self) -> None:
        self.scenario.fill(self.broker, QUEUE, self.scenario.options.messages)
        await_quiet(self.broker)
        target = self.broker.directory / "backup"
        command = [sys.executable, "-m", "warrenmq", "backup", str(target)]
        flow = self._start_flow()
        started = time.monotonic()
        done = subprocess.run(
            [*command, "--uri", self.broker.uri], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise MeasureError(f"the backup failed: {done.stderr.strip()}")
        time.sleep(max(0.0, started + WINDOW_S - time.monotonic()))
        self._end("backed up", flow, started)

    def _checkpointed(self) -> None:
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        declare_all(client, [b"bench-idle-%06d" % n for n in range(self.scenario.options.queues)])
        client.close()
        await_quiet(self.broker)
        flow = self._start_flow()
        started = time.monotonic()
        self._fill_slowly()
        self._end("filled beside many queues", flow, started)

    # -- their parts -------------------------------------------------------------------------------

    def _fill_slowly(self) -> None:
        options = self.scenario.options
        self.scenario.perf(
            self.broker,
            options.messages,
            *(
                "--queue",
                QUEUE,
                "--no-auto-delete",
                "--consumers",
                "0",
                "--pmessages",
                str(options.messages),
            ),
            *(
                "--size",
                "1024",
                "--flag",
                "persistent",
                "--confirm",
                "1000",
                "--rate",
                str(options.fill_rate),
            ),
            # The flow keeps the broker busy all the time.
            waits_for_quiet=False,
        )

    def _ask(self, name: str, method: Method) -> None:
        """Disturb the broker by one request, and measure the flow for at least WINDOW_S."""
        await_quiet(self.broker)
        flow = self._start_flow()
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        started = time.monotonic()
        client.request(method)
        answered_s = time.monotonic() - started
        client.close()
        time.sleep(max(0.0, started + WINDOW_S - time.monotonic()))
        self._end(name, flow, started)
        self.scenario.add(self.broker, f"{name}: answered after", answered_s, "s")

    def _until(self, is_reached: Callable[[], bool], longest_s: float) -> None:
        deadline = time.monotonic() + longest_s + 60
        while not is_reached():
            if time.monotonic() > deadline:
                raise MeasureError("messages do not expire")
            time.sleep(POLL_S)

    def _await_stable_disk(self) -> None:
        size = self.broker.disk_bytes()
        since = time.monotonic()
        while time.monotonic() - since < STABLE_S:
            time.sleep(POLL_S * 5)
            now = self.broker.disk_bytes()
            if now != size:
                size, since = now, time.monotonic()

    def _start_flow(self) -> PacedFlow:
        """Return a flow that has run for WARM_UP_S."""
        options = self.scenario.options
        cores = self.scenario.generator_cores(self.broker)
        flow = PacedFlow(self.broker, cores, options.rate, options.persistent)
        flow.await_flowing()
        time.sleep(WARM_UP_S)
        return flow

    def _end(self, name: str, flow: PacedFlow, started: float) -> None:
        ended = time.monotonic()
        histogram = flow.window(started, ended)
        flow.stop()
        self._show(name, histogram, flow)
        self.scenario.add(self.broker, f"{name}: watched for", ended - started, "s")

    def _show(self, name: str, histogram: Histogram, flow: PacedFlow) -> None:
        if histogram.count == 0:
            raise MeasureError(f"{name}: nothing was delivered meanwhile")
        p99_ms = histogram.percentile(99) / NANOSECONDS_A_MILLISECOND
        self.scenario.add(
            self.broker,
            f"{name}: median",
            histogram.percentile(50) / NANOSECONDS_A_MILLISECOND,
            "ms",
        )
        self.scenario.add(self.broker, f"{name}: p99", p99_ms, "ms")
        if name != "idle":
            self.scenario.add(self.broker, f"{name}: p99 above idle", p99_ms - self.idle_ms, "ms")
        self.scenario.add(
            self.broker,
            f"{name}: longest",
            float(histogram.maximum) / NANOSECONDS_A_MILLISECOND,
            "ms",
        )
        # A generator more than a few milliseconds behind its pace adds to the latencies.
        self.scenario.add(
            self.broker, f"{name}: generator behind by at most", flow.behind_ms_max, "ms"
        )
