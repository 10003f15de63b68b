"""`python -m bench latency`: latencies at paced rates, up to the highest one that a broker keeps.

The flow is that of the workload `paced`: transient messages of 100 B, one ack a message. Each rate
runs for `--seconds`, `--rounds` times, and the figures are medians of the rounds: median and p99 of
the time from publish to delivery. A broker's figures end before the first rate of which it delivers
less than 97 % in a round.
"""

import argparse
from statistics import median

from bench.brokers import Broker
from bench.measure import Sample
from bench.scenario import Scenario, remove, run_scenario

QUEUE = "bench-latency"
RATES = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)
# Share of the rate that a broker must deliver.
KEPT = 0.97
WARM_UP_S = 2.0
FLOW = ("--queue", QUEUE, "--size", "100", "--qos", "1000", "--drain", "60")
STATISTICS = ("median", "p99")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate", type=int, action="append", metavar="N",
        help=f"messages a second; repeatable (default: {', '.join(map(str, RATES))})",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=5, metavar="S", help="of each run")


def main(arguments: list[str]) -> int:
    return run_scenario("latency", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    for kind in scenario.kinds():
        with scenario.running(kind) as broker:
            run(scenario, broker, min(RATES), WARM_UP_S)
            for rate in sorted(scenario.options.rate or RATES):
                if not add_rate(scenario, broker, rate):
                    break


def add_rate(scenario: Scenario, broker: Broker, rate: int) -> bool:
    """Add the figures of one rate; False, and none, when the broker does not keep it."""
    options = scenario.options
    samples = []
    for _ in range(options.rounds):
        sample = run(scenario, broker, rate, options.seconds)
        received = float(sample.summary["receive_rate"])
        if received < KEPT * rate:
            scenario.say(f"{broker.name} does not keep {rate:,}: {received:,.0f} msg/s")
            return False
        samples.append(sample)
    for name in STATISTICS:
        figures = [float(sample.summary["consumer_latency_us"][name]) for sample in samples]
        scenario.add(broker, f"{rate:,} msg/s: {name}", median(figures) / 1000, "ms")
    behind = max(float(sample.summary["behind_ms_max"]) for sample in samples)
    scenario.add(broker, f"{rate:,} msg/s: generator behind by at most", behind, "ms")
    return True


def run(scenario: Scenario, broker: Broker, rate: int, seconds: float) -> Sample:
    """One run of the flow, through a new queue."""
    remove(broker, QUEUE)
    messages = int(rate * seconds)
    return scenario.perf(broker, messages, *FLOW, "--rate", str(rate), "--time", str(seconds))
