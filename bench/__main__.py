"""`python -m bench`: run workloads on the brokers in alternation, print a table, save JSON lines.

The JSON lines hold every single result. `python -m bench ceiling` measures the load generator alone
instead. `python -m bench archive`, `backlog`, `cluster`, `counts`, `disk`, `growth`,
`interference`, `latency`, `many-queues`, `memory`, `mirrors`, `soak`, `spark-rates`,
`store-tables` and `workers` are scenarios with options of their own (`--help`).
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import (
    archive,
    backlog,
    cluster,
    disk,
    interference,
    latency,
    many_queues,
    memory,
    mirrors,
    soak,
    workers,
)
from bench.brokers import (
    AskedWarrenBroker,
    Broker,
    BrokerError,
    PagesWarrenBroker,
    RabbitmqBroker,
    WarrenBroker,
    rabbitmq_server,
)
from bench.ceiling import measure_ceiling
from bench.certificate import Certificate
from bench.growth import command as growth
from bench.lavinmq import LavinmqBroker
from bench.machine import machine
from bench.measure import MeasureError, Result
from bench.table import markdown_table
from bench.workloads import WORKLOADS, Setting, Workload
from warrenmq.build import build_name
from warrenmq.perf.errors import PerfError


def store_tables(arguments: list[str]) -> int:
    """Run the scenario `store-tables`; imported on demand: no other scenario needs Spark."""
    from bench import store_tables as scenario

    return scenario.main(arguments)


def counts(arguments: list[str]) -> int:
    """Run `counts`; imported on demand: only it needs the simulator."""
    from bench.counts import command

    return command.main(arguments)


def spark_rates(arguments: list[str]) -> int:
    """Run the scenario `spark-rates`; imported on demand, as `store-tables`."""
    from bench import spark_rates as scenario

    return scenario.main(arguments)


# Entry points of the scenarios. Each parses its own arguments and returns the exit status.
SCENARIOS = {
    "archive": archive.main,
    "backlog": backlog.main,
    "cluster": cluster.main,
    "counts": counts,
    "disk": disk.main,
    "growth": growth.main,
    "interference": interference.main,
    "latency": latency.main,
    "many-queues": many_queues.main,
    "memory": memory.main,
    "mirrors": mirrors.main,
    "soak": soak.main,
    "spark-rates": spark_rates,
    "store-tables": store_tables,
    "workers": workers.main,
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("brokers", "ceiling"), default="brokers")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="about two minutes: one short round, small backlogs, no lazy queues",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="runs of each workload on each broker; medians are shown",
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="publishing time of a run")
    parser.add_argument(
        "--backlog",
        type=int,
        default=150_000,
        metavar="N",
        help="messages of the backlog workloads",
    )
    parser.add_argument(
        "--restart", type=int, default=200_000, metavar="N", help="messages of the restart workload"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[workload.name for workload in WORKLOADS],
        help="this workload; repeatable",
    )
    parser.add_argument("--broker", choices=("warren", "rabbitmq", "both"), default="both")
    parser.add_argument(
        "--api",
        action="store_true",
        help="measure warren a second time, with its HTTP API asked for a page of queues each second",
    )
    parser.add_argument(
        "--pages",
        action="store_true",
        help="measure warren once more, with the pages of a queue and of storage open",
    )
    for broker, cores in (("warren", 1), ("rabbitmq", 0)):
        parser.add_argument(
            f"--{broker}-cores",
            type=int,
            choices=(0, 1),
            default=cores,
            help=f"1: pin {broker} to one core, 0: all cores (default: {cores})",
        )
    parser.add_argument(
        "--lavinmq", type=Path, metavar="PROGRAM", help="measure LavinMQ too, by this executable"
    )
    parser.add_argument("--output", type=Path, default=Path("bench-results"), metavar="DIR")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.backlog, options.restart = 1, 2.0, 30_000, 30_000
        if not options.only:
            left_out = ("lazy", "cold")
            options.only = [each.name for each in WORKLOADS if each.name not in left_out]
    return options


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in SCENARIOS:
        return SCENARIOS[arguments[0]](arguments[1:])
    options = parse_arguments(arguments)
    if build_name() != "compiled":
        print(
            f"warren is {build_name()} here: figures of the broker and of the load generator will be poor"
        )
    if options.what == "ceiling":
        measure_ceiling()
        return 0
    # SIGTERM raises KeyboardInterrupt, as ctrl-C does, so that `finally` stops the brokers.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="warren-bench-"))
    brokers: list[Broker] = []
    try:
        brokers = chosen_brokers(options, directory)
        for broker in brokers:
            print(f"starting {broker.name} ...", flush=True)
            broker.start()
        return compare(options, brokers)
    except BrokerError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


def chosen_brokers(options: argparse.Namespace, directory: Path) -> list[Broker]:
    """Return the requested brokers that are installed, not started yet.

    A broker pinned to one core gets the first core; the load generator then runs on the others.
    """
    cores = sorted(os.sched_getaffinity(0))
    certificate = Certificate.make(directory)
    one_core = {cores[0]} if len(cores) > 1 else set[int]()
    brokers: list[Broker] = []
    if options.broker != "rabbitmq":
        warren_cores = one_core if options.warren_cores == 1 else set[int]()
        brokers.append(WarrenBroker(directory / "warren", warren_cores, certificate=certificate))
        for is_wanted, kind, place in (
            (options.api, AskedWarrenBroker, "asked"),
            (options.pages, PagesWarrenBroker, "pages"),
        ):
            if is_wanted:
                brokers.append(kind(directory / place, warren_cores, certificate=certificate))
    if options.broker != "warren":
        if rabbitmq_server() is None:
            print("rabbitmq-server is not installed: warren is measured alone")
        else:
            rabbitmq_cores = one_core if options.rabbitmq_cores == 1 else set[int]()
            brokers.append(
                RabbitmqBroker(directory / "rabbitmq", rabbitmq_cores, certificate=certificate)
            )
    if options.lavinmq is not None:
        brokers.append(
            LavinmqBroker(options.lavinmq, directory / "lavinmq", set(), certificate=certificate)
        )
    if not brokers:
        raise BrokerError("nothing to measure")
    return brokers


def compare(options: argparse.Namespace, brokers: list[Broker]) -> int:
    """Run all rounds of all workloads, the brokers in turn; return the exit status."""
    workloads = [
        workload for workload in WORKLOADS if not options.only or workload.name in options.only
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / time.strftime("%Y%m%d-%H%M%S.jsonl")
    results: list[Result] = []
    failures: dict[tuple[str, str], str] = {}
    with path.open("w") as lines:
        lines.write(
            json.dumps({"machine": machine(), "brokers": [broker.version() for broker in brokers]})
            + "\n"
        )
        for workload in workloads:
            for number in range(1, options.rounds + 1):
                # The first broker changes every round, so that none always gets the warmer machine.
                for broker in brokers if number % 2 else reversed(brokers):
                    measured = measure(options, workload, broker, number, failures)
                    results += measured
                    lines.writelines(result.as_json() + "\n" for result in measured)
                    lines.flush()
    rows = [row for workload in workloads for row in workload.rows]
    print(f"\n{machine()}\n" + "\n".join(broker.version() for broker in brokers))
    print(f"{options.rounds} rounds of {options.seconds:g} s, medians (lowest-highest)\n")
    print(markdown_table(rows, results, [broker.name for broker in brokers], failures))
    print(f"\nevery result: {path}")
    return 0 if results else 1


def measure(
    options: argparse.Namespace,
    workload: Workload,
    broker: Broker,
    number: int,
    failures: dict[tuple[str, str], str],
) -> list[Result]:
    """Run one workload on one broker; record a failure, which replaces the figure in the table."""
    cores = os.sched_getaffinity(0)
    setting = Setting(
        broker,
        number,
        # The load generator avoids the core of a pinned broker; otherwise the scheduler decides.
        cores - broker.cores if broker.cores else set(),
        options.seconds,
        options.backlog,
        options.restart,
    )
    started = time.monotonic()
    try:
        results = workload.run(workload, setting)
    except (MeasureError, PerfError) as error:
        reason = str(error)
        for row in workload.rows:
            failures[row, broker.name] = "failed"
        print(f"{workload.name} on {broker.name}: {reason}", flush=True)
        return []
    for result in results:
        cpu = (
            ""
            if result.cpu_us_per_message is None
            else f", {result.cpu_us_per_message:.2f} µs CPU/msg"
        )
        print(
            f"{result.workload} on {broker.name}: {result.value:,.2f} {result.unit}{cpu}"
            f" ({time.monotonic() - started:.1f} s)",
            flush=True,
        )
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
