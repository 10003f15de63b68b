"""The frame of all scenarios: a broker for each measurement, figures by broker, a table or JSON.

A scenario is longer than a workload of `python -m bench` and runs once: it fills a queue to a
depth, kills the broker, or disturbs one queue and measures another. Each figure has a name, a value
and a unit. Progress goes to standard error, so that `--json` leaves one object on standard output.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Broker, BrokerError, RabbitmqBroker, WarrenBroker, rabbitmq_server
from bench.machine import machine
from bench.measure import MeasureError, Sample, delete_queues, run_perf
from bench.table import figure_table
from warrenmq.build import build_name
from warrenmq.perf.client import Client
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

MIB = 2**20
ANSWER_TIMEOUT_S = 600.0
# Messages a second of the slowest broker that a run of the load generator waits for.
SLOWEST_RATE = 2000


@dataclass
class Figure:
    """One measured number; `unit` is free text, for example a unit that bench/table.py compares."""

    name: str
    value: float
    unit: str


class Scenario:
    """One run of a scenario: its options, its directory, and each broker's figures in order."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.figures: dict[str, list[Figure]] = {}
        self.versions: list[str] = []
        self._started = 0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def kinds(self) -> list[type[Broker]]:
        """The requested brokers that are installed."""
        which: str = self.options.broker
        kinds: list[type[Broker]] = []
        if which != "rabbitmq":
            kinds.append(WarrenBroker)
        if which != "warren":
            if rabbitmq_server() is None:
                self.say("rabbitmq-server is not installed: warren is measured alone")
            else:
                kinds.append(RabbitmqBroker)
        return kinds

    @contextmanager
    def running(self, kind: type[Broker], *settings: str) -> Iterator[Broker]:
        """Run a new broker with empty data; kill it and delete its data at the end."""
        self._started += 1
        directory = self.directory / f"{self._started}"
        broker = kind(directory, self.broker_cores(kind), settings)
        self.say(f"starting {kind.name} {' '.join(settings)} ...")
        try:
            broker.start()
            if broker.version() not in self.versions:
                self.versions.append(broker.version())
            yield broker
        finally:
            broker.kill()
            broker.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def broker_cores(self, kind: type[Broker]) -> set[int]:
        """The cores that a broker may use; empty for all of them."""
        cores = sorted(os.sched_getaffinity(0))
        wanted: int = (
            self.options.warren_cores if kind is WarrenBroker else self.options.rabbitmq_cores
        )
        return {cores[0]} if wanted == 1 and len(cores) > 1 else set()

    def generator_cores(self, broker: Broker) -> set[int]:
        """The cores of the load generator: all but those of a pinned broker; empty for all."""
        return os.sched_getaffinity(0) - broker.cores if broker.cores else set()

    def add(self, broker: Broker, name: str, value: float, unit: str = "") -> None:
        """Record a figure, and print it."""
        self.figures.setdefault(broker.name, []).append(Figure(name, value, unit))
        self.say(f"{broker.name}: {name}: {value:,.2f} {unit}")

    def perf(
        self, broker: Broker, messages: int, *arguments: str, waits_for_quiet: bool = True
    ) -> Sample:
        """Run the load generator; its timeout grows with `messages`."""
        timeout_s = 300.0 + messages / SLOWEST_RATE
        return run_perf(
            broker, list(arguments), self.generator_cores(broker), timeout_s, waits_for_quiet
        )

    def fill(self, broker: Broker, queue: str, messages: int, *arguments: str) -> Sample:
        """Publish persistent messages into a durable queue without consumers.

        Messages have 1 KiB; `arguments` replace that option of the load generator.
        """
        return self.perf(
            broker,
            messages,
            *(
                "--queue",
                queue,
                "--no-auto-delete",
                "--consumers",
                "0",
                "--pmessages",
                str(messages),
            ),
            *("--flag", "persistent", "--confirm", "1000", *(arguments or ("--size", "1024"))),
        )


def depth(broker: Broker, queue: str) -> int:
    """Return the number of ready messages of a queue; MeasureError when it does not exist."""
    client = Client(parse_uri(broker.uri), "bench", ANSWER_TIMEOUT_S)
    try:
        reply = client.request(QueueDeclare(queue=queue.encode(), passive=True))
    except PerfError as error:
        raise MeasureError(f"queue {queue}: {error}") from None
    finally:
        client.close()
    assert isinstance(reply, QueueDeclareOk)
    return reply.message_count


def remove(broker: Broker, *queues: str) -> None:
    """Delete queues, whether they exist or not."""
    delete_queues(broker, list(queues))


def run_scenario(
    name: str,
    description: str | None,
    arguments: list[str],
    add_options: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[Scenario], None],
) -> int:
    """Parse the arguments, measure, and print the figures; return the exit status."""
    options = _parse(name, description, arguments, add_options)
    if build_name() != "compiled":
        print(f"warren is {build_name()} here: its figures will be poor", file=sys.stderr)
    # SIGTERM raises KeyboardInterrupt, as ctrl-C does, so that the brokers are stopped.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="warren-bench-", dir=options.directory))
    scenario = Scenario(options, directory)
    status = 0
    try:
        measure(scenario)
    except (BrokerError, MeasureError, PerfError) as error:
        scenario.say(f"bench {name}: {error}")
        status = 1
    except KeyboardInterrupt:
        scenario.say(f"bench {name}: interrupted")
        status = 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    # Figures taken before a failure are printed too.
    _print(scenario, name)
    return status


def _parse(
    name: str,
    description: str | None,
    arguments: list[str],
    add_options: Callable[[argparse.ArgumentParser], None],
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--broker", choices=("warren", "rabbitmq", "both"), default="both")
    for broker in ("warren", "rabbitmq"):
        parser.add_argument(
            f"--{broker}-cores",
            type=int,
            choices=(0, 1),
            default=0,
            help=f"1: pin {broker} to one core, 0: all cores (default: 0)",
        )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where data lie (default: as tempfile)"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object with the raw numbers, no table"
    )
    add_options(parser)
    return parser.parse_args(arguments)


def _print(scenario: Scenario, name: str) -> None:
    figures = {
        broker: [(figure.name, figure.value, figure.unit) for figure in taken]
        for broker, taken in scenario.figures.items()
    }
    if scenario.options.json:
        options = {key: str(value) for key, value in vars(scenario.options).items()}
        named = [
            {"broker": broker, "name": figure, "value": value, "unit": unit}
            for broker, taken in figures.items()
            for figure, value, unit in taken
        ]
        found = {
            "scenario": name,
            "machine": machine(),
            "brokers": scenario.versions,
            "options": options,
        }
        print(json.dumps({**found, "figures": named}))
        return
    print(f"\n{machine()}\n" + "\n".join(scenario.versions) + "\n")
    print(figure_table(figures))
