"""A thing that grows, and the CPU time that operations take at each of its sizes.

Costs are CPU time of the whole broker, so they hardly depend on what else the machine does. An
operation is repeated until the broker has spent `--cpu` seconds on it, or for `--seconds`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.brokers import Broker
from bench.measure import MeasureError, await_quiet
from bench.scenario import Scenario

QUEUE: Final = "bench-growth"


@dataclass(frozen=True)
class Cost:
    """CPU time (µs) of one `operation` when there are `size` of `axis`."""

    axis: str
    operation: str
    size: int
    cpu_us: float


class Meter:
    """Adds up the broker's CPU time, and the operations that it was spent on."""

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        self.spent_s = 0.0
        self.operations = 0
        self._cpu_s = cpu_s

    @contextmanager
    def counts(self, operations: int) -> Iterator[None]:
        """Count what happens inside as `operations`."""
        before = self._cpu_s()
        yield
        self.spent_s += self._cpu_s() - before
        self.operations += operations

    @property
    def cpu_us(self) -> float:
        """CPU time of one operation (µs)."""
        return self.spent_s * 1e6 / self.operations if self.operations else 0.0


class Case:
    """One axis on one running broker."""

    def __init__(self, scenario: Scenario, broker: Broker) -> None:
        self.scenario = scenario
        self.broker = broker

    def repeated(self, step: Callable[[Meter], None]) -> float:
        """The cost of an operation (µs); `step` does some of them and counts them."""
        options = self.scenario.options
        await_quiet(self.broker)
        meter = self.once()
        end = time.monotonic() + options.seconds
        while meter.spent_s < options.cpu and time.monotonic() < end:
            step(meter)
        return meter.cpu_us

    def once(self) -> Meter:
        """A meter of the broker."""
        return Meter(self.broker.running_cpu_s)

    def flow(self, *arguments: str, share: float = 1.0) -> float:
        """The cost of a message from publisher to consumer (µs).

        `arguments` are those of the load generator, which sends `--messages` times `share`, and
        before that a quarter of it: the difference is free of connections and declarations.
        """
        longer = max(8, int(self.scenario.options.messages * share))
        shorter = longer // 4
        before_s = self._flow_s(shorter, arguments)
        return (self._flow_s(longer, arguments) - before_s) * 1e6 / (longer - shorter)

    def _flow_s(self, messages: int, arguments: tuple[str, ...]) -> float:
        """The broker's CPU time (s) for a run of the load generator."""
        await_quiet(self.broker)
        before_s = self.broker.running_cpu_s()
        sample = self.scenario.perf(
            self.broker, messages, "--pmessages", str(messages), "--drain", "120",
            "--qos", "1000", *arguments, waits_for_quiet=False,
        )  # fmt: skip
        if not sample.summary["is_drained"]:
            raise MeasureError(
                f"{sample.summary['received']} of {sample.summary['published']} messages arrived"
            )
        return self.broker.running_cpu_s() - before_s


class Axis(ABC):
    """What grows in a measurement, such as the number of queues. Each measurement makes its own."""

    # The word on the command line, and in tables.
    name = ""
    sizes: tuple[int, ...] = ()

    def __init__(self, case: Case) -> None:
        self.case = case
        # Called at the end, to close what the axis has opened.
        self.closers: list[Callable[[], None]] = []

    @abstractmethod
    def grow(self, size: int) -> dict[str, float]:
        """Bring the broker to `size`; returns the cost (µs) of each operation there."""


def measure_sizes(scenario: Scenario, axis: Axis, sizes: list[int], costs: list[Cost]) -> None:
    """Add the costs at `sizes` to `costs`, as far as `--limit` seconds carry."""
    started = time.monotonic()
    try:
        for size in sizes:
            if is_over(scenario, started, f"{axis.case.broker.name}: {axis.name}", size):
                break
            for operation, cpu_us in axis.grow(size).items():
                costs.append(Cost(axis.name, operation, size, cpu_us))
                scenario.add(axis.case.broker, f"{axis.name} {size:,}: {operation}", cpu_us, "µs")
    finally:
        for close in axis.closers:
            close()


def is_over(scenario: Scenario, started: float, what: str, size: int) -> bool:
    """Whether `--limit` has passed since `started`; says which size is left out then."""
    if time.monotonic() - started <= scenario.options.limit:
        return False
    scenario.say(f"{what} ends before {size:,}: the time is over")
    return True
