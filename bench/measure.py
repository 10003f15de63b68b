"""One measurement: a run of `warren perf` against a broker, with the broker's CPU time and memory.

The load generator is a process of its own, so that its garbage collector, its affinity and its CPU
time are separate from the benchmark's. Every run has a timeout.
"""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.brokers import Broker, pinned_to
from warrenmq.perf.client import Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDelete

RUN_TIMEOUT_S = 300.0
QUIET_TIMEOUT_S = 20.0
QUIET_SAMPLE_S = 0.25
QUIET_CPU_RATIO = 0.08


class MeasureError(Exception):
    """A run gave no figure; the text comes from the load generator or from the benchmark."""


@dataclass
class Result:
    """The figure of one workload on one broker in one round; `detail`: the generator's summary."""

    workload: str
    broker: str
    round: int
    value: float
    unit: str
    cpu_us_per_message: float | None = None
    rss_mib: float | None = None
    generator_ns_per_message: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Sample:
    """A finished run of the load generator: its summary, and the broker's CPU time and memory."""

    summary: dict[str, Any]
    broker_cpu_s: float
    rss_bytes: int

    @property
    def messages(self) -> int:
        return max(int(self.summary["published"]), int(self.summary["received"]))

    @property
    def cpu_us_per_message(self) -> float:
        return self.broker_cpu_s * 1e6 / self.messages if self.messages else 0.0


def run_perf(
    broker: Broker,
    arguments: list[str],
    cores: set[int],
    timeout_s: float = RUN_TIMEOUT_S,
    waits_for_quiet: bool = True,
    uri: str = "",
) -> Sample:
    """Run `warren perf` with `arguments` against `broker`, on `cores` (empty: all of them).

    `uri`: connect there instead of to the plain listener. MeasureError when the load generator
    fails, or does not end within `timeout_s`.
    """
    if waits_for_quiet:
        await_quiet(broker)
    before = broker.usage()
    command = [sys.executable, "-m", "warrenmq.cli.perf", "--json", "--uri", uri or broker.uri]
    command += arguments
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=pinned_to(cores),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MeasureError(
            f"warren perf {' '.join(arguments)}: not done after {timeout_s:.0f} s"
        ) from None
    after = broker.usage()
    if done.returncode != 0:
        raise MeasureError((done.stderr or done.stdout).strip()[-500:])
    return Sample(json.loads(done.stdout), after.cpu_s - before.cpu_s, after.rss_bytes)


def await_quiet(broker: Broker) -> None:
    """Wait for the end of the broker's background work, at most QUIET_TIMEOUT_S.

    Background work is deletions, garbage and paging; its end shows in the CPU time.
    """
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    while time.monotonic() < deadline:
        before = broker.usage().cpu_s
        time.sleep(QUIET_SAMPLE_S)
        if broker.usage().cpu_s - before <= QUIET_CPU_RATIO * QUIET_SAMPLE_S:
            return


def delete_queues(broker: Broker, names: list[str]) -> None:
    """Delete queues, so that every run begins with new ones; a missing queue counts as deleted."""
    client = Client(parse_uri(broker.uri), "bench", RUN_TIMEOUT_S)
    try:
        for name in names:
            client.request(QueueDelete(queue=name.encode()))
    finally:
        client.close()
