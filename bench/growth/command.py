"""`python -m bench growth`: how the cost of an operation grows with what a node has.

Each thing that grows has a broker of its own, and three to five sizes. The table has the CPU time
of operations at each size and the exponent that fits them, the highest exponent first: 0 is a cost
that does not depend on the size, 1 one that grows as the size does. A thing that takes longer than
`--limit` gets no larger size, and one that fails is reported and left.

`--keep FILE` adds the costs to those of earlier runs, and the table has them all; `--largest 0`
measures nothing and shows the table alone.
"""

import argparse
import resource
import time
from pathlib import Path

from bench.brokers import Broker, BrokerError
from bench.growth import nodes
from bench.growth.axis import Axis, Case, Cost, measure_sizes
from bench.growth.fit import exponent_of, grouped, growth_table
from bench.growth.kept import load_costs, save_costs
from bench.growth.messages import Consumers, Depth, Priorities, Sizes, Unacked
from bench.growth.objects import Connections, Queues
from bench.growth.routes import FanOut, HeadersBindings, TopicBindings
from bench.measure import MeasureError
from bench.scenario import Figure, Scenario, run_scenario
from warrenmq.perf.errors import PerfError

AXES: dict[str, type[Axis]] = {
    axis.name: axis
    for axis in (
        Connections, Queues, TopicBindings, HeadersBindings, FanOut, Consumers, Sizes, Unacked,
        Depth, Priorities,
    )
}  # fmt: skip
NAMES = (*AXES, nodes.NAME)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", choices=NAMES, help="repeatable")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="JSON file of costs, which gets these as well"
    )
    parser.add_argument(
        "--limit", type=float, default=600, metavar="S",
        help="after so many seconds a thing does not grow further (default: 600)",
    )  # fmt: skip
    parser.add_argument(
        "--largest", type=int, metavar="N", help="leave larger sizes out, of all that grows"
    )
    parser.add_argument(
        "--messages", type=int, default=400_000, metavar="N", help="of a flow (default: 400,000)"
    )
    parser.add_argument(
        "--cpu", type=float, default=0.5, metavar="S",
        help="CPU time of the broker for a repeated operation (default: 0.5)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=20, metavar="S",
        help="longest time for a repeated operation (default: 20)",
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    return run_scenario("growth", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    keep: Path | None = scenario.options.keep
    costs = load_costs(keep) if keep else {}
    failed: list[str] = []
    kinds = scenario.kinds()
    # Of this process and, as they inherit it, of the brokers.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in scenario.options.only or NAMES:
        for kind in kinds:
            started = time.monotonic()
            found: list[Cost] = []
            try:
                _measure(scenario, kind, name, found)
            except (BrokerError, MeasureError, PerfError, OSError) as error:
                failed.append(f"{name} on {kind.name}")
                scenario.say(f"{name} on {kind.name} failed: {error}")
            scenario.say(f"{name} on {kind.name}: {time.monotonic() - started:.0f} s")
            if found:
                others = [cost for cost in costs.get(kind.name, []) if cost.axis != name]
                costs[kind.name] = others + found
                if keep:
                    save_costs(keep, costs)
    rows = grouped(costs)
    for (axis, operation), by_broker in rows.items():
        for kind in kinds:
            slope = exponent_of(by_broker.get(kind.name, []))
            if slope is not None:
                figures = scenario.figures.setdefault(kind.name, [])
                figures.append(Figure(f"{axis}: {operation}", slope, "exponent"))
    if not scenario.options.json:
        print(f"\n{growth_table(rows, [kind.name for kind in kinds])}")
    if failed:
        raise MeasureError(f"failed: {', '.join(failed)}")


def _measure(scenario: Scenario, kind: type[Broker], name: str, costs: list[Cost]) -> None:
    """Measure one thing on one broker; what was measured before a failure stays in `costs`."""
    largest: int | None = scenario.options.largest
    every = nodes.SIZES if name == nodes.NAME else AXES[name].sizes
    sizes = [size for size in every if largest is None or size <= largest]
    if not sizes:
        return
    if name == nodes.NAME:
        nodes.measure_nodes(scenario, kind, sizes, costs)
        return
    with scenario.running(kind) as broker:
        measure_sizes(scenario, AXES[name](Case(scenario, broker)), sizes, costs)
