"""`python -m bench backlog`: fill a queue far beyond memory, crash the broker, restart, drain.

Messages are persistent, confirmed and 1 KiB. Each broker runs two rounds in new data directories: a
lazy queue, then a default queue on a broker whose memory limit is far below the backlog
(`vm_memory_high_watermark.absolute`; queues begin to page at half of it). In each round the queue
is filled to the full depth, the broker is killed with SIGKILL and started, and the queue is
drained. RabbitMQ gets a smaller backlog: its figures do not get better with depth.
"""

import argparse
import time

from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError, await_quiet
from bench.scenario import ANSWER_TIMEOUT_S, MIB, Scenario, depth, run_scenario
from warrenmq.perf.client import Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import BasicGet, BasicGetOk

QUEUE = "bench-backlog"
LAZY, DEFAULT = "lazy", "default"
# Depth (messages) at which memory is measured first; growth counts from there.
BASE_DEPTH = 10_000
# An idle broker returns unused memory to the system within this time (warren checks once a second).
REST_S = 3.0
# Share of the memory limit from which queues page: the default of RabbitMQ and of warren.
PAGING_RATIO = 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--messages",
        type=int,
        default=10_000_000,
        metavar="N",
        help="of warren (default: 10,000,000)",
    )
    parser.add_argument(
        "--rabbitmq-messages", type=int, default=1_000_000, metavar="N", help="(default: 1,000,000)"
    )
    parser.add_argument(
        "--mode", choices=(LAZY, DEFAULT, "both"), default="both", help="of the queue"
    )
    parser.add_argument(
        "--memory-limit",
        type=int,
        default=1024,
        metavar="MIB",
        help="of the default queue's broker",
    )
    parser.add_argument(
        "--no-kill", action="store_true", help="drain without the crash and the start before it"
    )


def main(arguments: list[str]) -> int:
    return run_scenario("backlog", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    options = scenario.options
    modes = [mode for mode in (LAZY, DEFAULT) if options.mode in (mode, "both")]
    for mode in modes:
        settings = (
            []
            if mode == LAZY
            else [f"vm_memory_high_watermark.absolute = {options.memory_limit}MiB"]
        )
        for kind in scenario.kinds():
            messages = options.messages if kind is WarrenBroker else options.rabbitmq_messages
            with scenario.running(kind, *settings) as broker:
                Backlog(scenario, broker, mode, messages).run()


class Backlog:
    """One round: fill, crash and drain one queue of one broker."""

    def __init__(self, scenario: Scenario, broker: Broker, mode: str, messages: int) -> None:
        self.scenario = scenario
        self.broker = broker
        self.mode = mode
        self.messages = messages
        # (messages, seconds) of each publishing step so far.
        self.steps: list[tuple[int, float]] = []
        self.blocked_s = 0.0

    def run(self) -> None:
        self._fill()
        if not self.scenario.options.no_kill:
            self._crash()
        self._drain()

    def _add(self, name: str, value: float, unit: str = "") -> None:
        self.scenario.add(self.broker, f"{self.mode}: {name}", value, unit)

    def _publish(self, count: int, waits_for_quiet: bool) -> None:
        arguments = [
            "--queue",
            QUEUE,
            "--no-auto-delete",
            "--consumers",
            "0",
            "--pmessages",
            str(count),
        ]
        arguments += ["--size", "1024", "--flag", "persistent", "--confirm", "1000"]
        if self.mode == LAZY:
            arguments += ["--queue-args", "x-queue-mode=lazy"]
        sample = self.scenario.perf(self.broker, count, *arguments, waits_for_quiet=waits_for_quiet)
        if sample.summary["confirmed"] != count:
            raise MeasureError(f"{sample.summary['confirmed']} of {count} messages were confirmed")
        self.steps.append((count, float(sample.summary["publish_s"])))
        self.blocked_s += float(sample.summary["blocked_s"])

    def _fill(self) -> None:
        """Publish in up to five steps; compare the rate near the base depth with the last tenth."""
        base = min(BASE_DEPTH, self.messages // 10)
        tenth = self.messages // 10
        # The first messages of a broker's life cost time and memory that do not depend on depth.
        self._publish(base, True)
        rss_at_base = self._rss_at_rest()
        self.broker.reset_peak()
        # The queue does not page yet: the last tenth is compared with the rate of this step.
        near_base = min(max(tenth // 10, base), tenth)
        self._publish(near_base, False)
        if tenth > near_base + base:
            self._publish(tenth - near_base - base, False)
        first_tenth = rate(self.steps)
        self._publish(self.messages - tenth - sum(count for count, _ in self.steps), False)
        self._publish(tenth, False)
        peak = self.broker.peak_rss_bytes()
        rss = self._rss_at_rest()
        at_base, last_tenth = rate(self.steps[1:2]), rate(self.steps[-1:])
        self._add("messages", self.messages)
        self._add(f"RSS at {base:,} messages", rss_at_base / MIB, "MiB")
        self._add("RSS at the end", rss / MIB, "MiB")
        self._add("RSS growth", (rss - rss_at_base) / MIB, "MiB")
        self._add("highest RSS while publishing", peak / MIB, "MiB")
        if self.mode == DEFAULT:
            self._add("paging threshold", self.scenario.options.memory_limit * PAGING_RATIO, "MiB")
        self._add(f"publishing at depth {base:,}", at_base, "msg/s")
        self._add("publishing, first tenth", first_tenth, "msg/s")
        self._add("publishing, last tenth", last_tenth, "msg/s")
        self._add(f"last tenth, of the rate at depth {base:,}", 100 * last_tenth / at_base, "%")
        self._add("publishing, all of it", rate(self.steps), "msg/s")
        self._add("publishers blocked for", self.blocked_s, "s")
        self._add("on disk", self.broker.disk_bytes() / MIB, "MiB")

    def _crash(self) -> None:
        """SIGKILL the broker and restart it; times count from the start of the new process."""
        self.broker.kill()
        started = time.monotonic()
        self.broker.start()
        connected_s = time.monotonic() - started
        found = depth(self.broker, QUEUE)
        declared_s = time.monotonic() - started
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        reply = client.request(BasicGet(queue=QUEUE.encode()))
        got_s = time.monotonic() - started
        # The broker requeues the unacked message when the client closes.
        client.close()
        if not isinstance(reply, BasicGetOk) or found != self.messages:
            raise MeasureError(
                f"{found} of {self.messages} confirmed messages are there after SIGKILL"
            )
        self._add("after SIGKILL: client connected", connected_s, "s")
        self._add("after SIGKILL: queue counted", declared_s, "s")
        self._add("after SIGKILL: first message", got_s, "s")
        self._add("RSS after the start", self._rss_at_rest() / MIB, "MiB")

    def _rss_at_rest(self) -> int:
        await_quiet(self.broker)
        time.sleep(REST_S)
        return self.broker.usage().rss_bytes

    def _drain(self) -> None:
        self.broker.reset_peak()
        arguments = [
            "--queue",
            QUEUE,
            "--predeclared",
            "--producers",
            "0",
            "--cmessages",
            str(self.messages),
        ]
        arguments += ["--qos", "1000", "--multi-ack-every", "100"]
        sample = self.scenario.perf(self.broker, self.messages, *arguments)
        self._add("draining", float(sample.summary["receive_rate"]), "msg/s")
        self._add("highest RSS while draining", self.broker.peak_rss_bytes() / MIB, "MiB")
        await_quiet(self.broker)
        self._add("on disk when drained", self.broker.disk_bytes() / MIB, "MiB")
        left = depth(self.broker, QUEUE)
        if left:
            raise MeasureError(f"{left} messages are left after all of them were acked")


def rate(steps: list[tuple[int, float]]) -> float:
    """Return messages a second over several steps; 0 when they took no time."""
    seconds = sum(seconds for _, seconds in steps)
    return sum(count for count, _ in steps) / seconds if seconds > 0 else 0.0
