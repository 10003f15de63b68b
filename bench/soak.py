"""`python -m bench soak --minutes N`: does a node stay as it is under steady load?

First a flow of persistent messages through one queue, whose publisher waits when CONFIRM of them
are not confirmed, runs as fast as it can for `--probe` seconds. (A publisher without confirms runs
into a backlog at the first stall of the disk, and a queue with a backlog cannot carry 70 % of what
it carries without one: then nothing is steady.)
Then it runs at `--share` of that rate for `--minutes`. Every `--every` seconds a sample is taken of
the node: resident memory, open descriptors, threads, the 99th percentile of the latencies since the
last sample, and the bytes of its data directory. The table has the median of the first and of the
last tenth of the samples, and the slope of a line through all of them, per hour. It judges nothing:
a slope over a few minutes is that of a node whose caches still fill.
"""

import argparse
import statistics
import time
from pathlib import Path

import psutil

from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError
from bench.paced import PacedFlow
from bench.scenario import MIB, Scenario, run_scenario

CONFIRM = 2000
# The first seconds of a flow do not count.
WARM_UP_S = 2.0
# The figures of a sample, with their units.
UNITS = {
    "resident memory": "MiB",
    "descriptors": "",
    "threads": "",
    "latency, p99": "ms",
    "data directory": "MiB",
}

# The time (s) since the start of the load, and a value for each of UNITS.
Sample = tuple[float, dict[str, float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60, metavar="N")
    parser.add_argument("--share", type=float, default=0.7, help="of the measured rate")
    parser.add_argument("--probe", type=float, default=10, metavar="S", help="of full speed")
    parser.add_argument("--every", type=float, default=10, metavar="S", help="between samples")


def main(arguments: list[str]) -> int:
    return run_scenario("soak", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    options = scenario.options
    with scenario.running(WarrenBroker) as broker:
        rate = full_rate(scenario, broker, options.probe)
        scenario.add(broker, "measured rate", rate, "msg/s")
        pace = rate * options.share
        flow = PacedFlow(broker, scenario.generator_cores(broker), pace, True, CONFIRM)
        samples: list[Sample] = []
        received = 0
        try:
            flow.await_flowing()
            began = last = time.monotonic()
            while last < began + options.minutes * 60:
                time.sleep(max(0.0, last + options.every - time.monotonic()))
                now = time.monotonic()
                latencies = flow.window(last, now)
                if latencies.count == 0:
                    raise MeasureError("the flow has stopped")
                received += latencies.count
                # Latencies are in nanoseconds.
                values = {**usage(broker), "latency, p99": latencies.percentile(99) / 1_000_000}
                samples.append((now - began, values))
                last = now
                texts = (
                    f"{name} {values[name]:,.1f} {unit}".rstrip() for name, unit in UNITS.items()
                )
                scenario.say(f"{now - began:6.0f} s: {', '.join(texts)}")
        finally:
            flow.stop()
        scenario.add(broker, "rate", received / samples[-1][0], "msg/s")
        scenario.add(broker, "behind its pace, at most", flow.behind_ms_max, "ms")
        for name, unit in UNITS.items():
            first, later, slope = trend([(at_s, values[name]) for at_s, values in samples])
            scenario.add(broker, f"{name}: first tenth", first, unit)
            scenario.add(broker, f"{name}: last tenth", later, unit)
            scenario.add(broker, f"{name}: slope", slope, f"{unit}/h" if unit else "/h")


def full_rate(scenario: Scenario, broker: Broker, seconds: float) -> float:
    """Messages a second of a flow that nothing paces."""
    flow = PacedFlow(broker, scenario.generator_cores(broker), 0, True, CONFIRM)
    try:
        flow.await_flowing()
        start = time.monotonic() + WARM_UP_S
        time.sleep(WARM_UP_S + seconds)
        return int(flow.window(start, start + seconds).count) / seconds
    finally:
        flow.stop()


def usage(broker: Broker) -> dict[str, float]:
    """What the node uses now."""
    assert broker.process is not None
    node = psutil.Process(broker.process.pid)
    return {
        "resident memory": node.memory_info().rss / MIB,
        "descriptors": node.num_fds(),
        "threads": node.num_threads(),
        "data directory": size_of(broker.directory / "data") / MIB,
    }


def size_of(directory: Path) -> int:
    """Bytes that the files of a directory take on disk; files may go meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def trend(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The medians of the first and the last tenth, and the slope of the least squares per hour."""
    values = [value for _, value in points]
    tenth = max(1, len(values) // 10)
    slope = 0.0
    if len(points) > 1:
        slope = statistics.linear_regression([at_s for at_s, _ in points], values).slope * 3600
    return statistics.median(values[:tenth]), statistics.median(values[-tenth:]), slope
