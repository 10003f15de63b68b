"""`python -m bench archive`: `warren pipeline archive` against a consumer that writes Parquet.

- Drain: a backlog of persistent messages of 1 KiB goes to Parquet, in alternation through a pika
  consumer that writes Parquet files with pyarrow (archive_consumer.py) and through `warren pipeline
  archive`. The archive is timed twice: the whole program with the start of its JVM, and from the
  moment when Spark is ready. Figures are medians over the rounds; CPU time is split by process.
- Follow: `warren perf` feeds a queue at a fixed rate while `warren pipeline archive --follow` runs.
  The broker reports the lag every half second: the age of the oldest message that is not archived,
  and the number of messages.

`warren perf` generates the bodies, which compress well. The broker and all other programs share the
cores of the machine.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError
from bench.process_costs import ProcessCosts
from bench.scenario import Scenario, depth, remove, run_scenario
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import DeleteGroup, GroupDeleted, GroupList, ListGroups

QUEUE = "bench-archive"
JOB_TIMEOUT_S = 900.0
INTERVAL_S = 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of draining")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, metavar="N", help="of the backlog"
    )
    parser.add_argument(
        "--consumer-messages",
        type=int,
        default=200_000,
        metavar="N",
        help="that the consumer drains",
    )
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES")
    parser.add_argument(
        "--rate", type=float, default=20_000, metavar="N", help="messages a second of the flow"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of the flow")
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    parser.add_argument("--only", choices=("drain", "follow"), help="one of the two")


def main(arguments: list[str]) -> int:
    return run_scenario("archive", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    with scenario.running(WarrenBroker) as broker:
        if scenario.options.only != "follow":
            drain(scenario, broker)
        if scenario.options.only != "drain":
            follow(scenario, broker)


def drain(scenario: Scenario, broker: Broker) -> None:
    """Drain backlogs with the consumer and with the archive in alternation; add the medians."""
    options = scenario.options
    rounds = [
        (drain_once(scenario, broker), archive_once(scenario, broker))
        for _ in range(options.rounds)
    ]
    add_median(
        scenario,
        broker,
        "pika and pyarrow: seconds",
        [consumer.whole_s for consumer, _ in rounds],
        "s",
    )
    rates = [options.consumer_messages / consumer.whole_s for consumer, _ in rounds]
    add_median(scenario, broker, "pika and pyarrow: draining", rates, "msg/s")
    add_median(
        scenario, broker, "archive: seconds", [archive.whole_s for _, archive in rounds], "s"
    )
    seconds = [archive.warm_s for _, archive in rounds]
    add_median(scenario, broker, "archive: seconds, without the start of Spark", seconds, "s")
    whole = [options.messages / archive.whole_s for _, archive in rounds]
    add_median(scenario, broker, "archive: draining", whole, "msg/s")
    warm = [options.messages / archive.warm_s for _, archive in rounds]
    add_median(scenario, broker, "archive: draining, without the start of Spark", warm, "msg/s")
    for name, found in (("archive", whole), ("archive, without the start of Spark", warm)):
        times = [one / other for one, other in zip(found, rates, strict=True)]
        add_median(scenario, broker, f"{name}: times the consumer's rate", times, "x")
    for kind in ("broker", "program"):
        costs = [
            consumer.cpu_s.get(kind, 0.0) / options.consumer_messages for consumer, _ in rounds
        ]
        add_median(
            scenario,
            broker,
            f"pika and pyarrow: CPU of {kind}",
            [1e6 * cost for cost in costs],
            "us/msg",
        )
    for kind in ("broker", "program", "JVM", "tasks"):
        costs = [archive.cpu_s.get(kind, 0.0) / options.messages for _, archive in rounds]
        add_median(
            scenario, broker, f"archive: CPU of {kind}", [1e6 * cost for cost in costs], "us/msg"
        )
    remove(broker, QUEUE)


@dataclass
class Drained:
    """The cost of one run: elapsed seconds, and CPU seconds by kind of process."""

    # From the start of the program to its end; for the consumer, from its first message.
    whole_s: float
    # `whole_s` without the start of Spark.
    warm_s: float
    cpu_s: dict[str, float]


def drain_once(scenario: Scenario, broker: Broker) -> Drained:
    """Drain with the pika consumer, without its start: another language would start faster."""
    messages = scenario.options.consumer_messages
    fill(scenario, broker, messages)
    target = scenario.directory / "consumer"
    arguments = [broker.uri, QUEUE, str(messages), str(target)]
    found, _, cpu_s = run_json(broker, [sys.executable, "-m", "bench.archive_consumer", *arguments])
    shutil.rmtree(target)
    return Drained(float(found["seconds"]), float(found["seconds"]), cpu_s)


def archive_once(scenario: Scenario, broker: Broker) -> Drained:
    """Drain with `warren pipeline archive`; MeasureError unless it archives all messages."""
    messages = scenario.options.messages
    fill(scenario, broker, messages)
    target = scenario.directory / "archive"
    found, whole_s, cpu_s = run_json(broker, [*archive_command(scenario, broker, target), "--json"])
    if found["messages"] != messages or depth(broker, QUEUE):
        raise MeasureError(f"{found['messages']} of {messages} messages were archived")
    shutil.rmtree(target)
    shutil.rmtree(target.with_name(f"{target.name}.checkpoint"))
    # The next round is another archive, with a reader group of its own.
    with AdminClient(NodeAddress(broker.uri)) as client:
        client.request(DeleteGroup(found["group"]), GroupDeleted)
    return Drained(whole_s, found["seconds"] - found["spark_seconds"], cpu_s)


def add_median(
    scenario: Scenario, broker: Broker, name: str, values: list[float], unit: str
) -> None:
    scenario.say(f"{name}: {', '.join(f'{value:,.2f}' for value in values)}")
    scenario.add(broker, name, statistics.median(values), unit)


def follow(scenario: Scenario, broker: Broker) -> None:
    """Publish at a fixed rate while the archive follows the queue; add rates and lags."""
    options = scenario.options
    scenario.fill(broker, QUEUE, 1, "--size", str(options.size))
    target = scenario.directory / "follow"
    job = subprocess.Popen(
        [*archive_command(scenario, broker, target), "--follow", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        await_archived(broker, job)
        lags = Lags(broker)
        fed = scenario.perf(
            broker,
            round(options.rate * options.seconds),
            *("--queue", QUEUE, "--no-auto-delete", "--consumers", "0"),
            *(
                "--rate",
                str(options.rate),
                "--time",
                str(options.seconds),
                "--size",
                str(options.size),
            ),
            *("--flag", "persistent", "--confirm", "2000"),
            waits_for_quiet=False,
        )
        lags.stop()
        job.send_signal(signal.SIGTERM)
        output, errors = job.communicate(timeout=JOB_TIMEOUT_S)
    finally:
        job.kill()
    if job.returncode != 0:
        raise MeasureError(f"archive --follow: {errors[-500:]}")
    found = json.loads(output)
    scenario.add(broker, "follow: published", float(fed.summary["publish_rate"]), "msg/s")
    scenario.add(broker, "follow: archived while fed", found["messages"] / options.seconds, "msg/s")
    scenario.add(broker, "follow: batches", float(found["batches"]))
    scenario.add(broker, "follow: highest lag", max(lags.seconds, default=0.0), "s")
    scenario.add(broker, "follow: median lag", sorted(lags.seconds)[len(lags.seconds) // 2], "s")
    scenario.add(broker, "follow: highest lag in messages", float(max(lags.messages, default=0)))


class Lags(threading.Thread):
    """Samples the lag of the archive's reader group until `stop`, in seconds and in messages."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.messages: list[int] = []
        self._broker = broker
        self._is_stopping = threading.Event()
        self.start()

    def run(self) -> None:
        with AdminClient(NodeAddress(self._broker.uri)) as client:
            while not self._is_stopping.wait(INTERVAL_S):
                [group] = client.request(ListGroups(), GroupList).groups
                self.seconds.append(max(member.lag_seconds for member in group.members))
                self.messages.append(sum(member.lag for member in group.members))

    def stop(self) -> None:
        self._is_stopping.set()
        self.join()


def fill(scenario: Scenario, broker: Broker, messages: int) -> None:
    scenario.fill(broker, QUEUE, messages, "--size", str(scenario.options.size))


def archive_command(scenario: Scenario, broker: Broker, target: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "warrenmq",
        "pipeline",
        "archive",
        str(target),
        "--uri",
        broker.uri,
    ]
    return [*command, "--queue", QUEUE, "--format", scenario.options.format, "--progress", "none"]


def await_archived(broker: Broker, job: "subprocess.Popen[str]") -> None:
    """Return when the archive runs: its group has acked the one message in the queue.

    MeasureError when the job ends, or acks nothing within JOB_TIMEOUT_S.
    """
    deadline = time.monotonic() + JOB_TIMEOUT_S
    with AdminClient(NodeAddress(broker.uri)) as client:
        while time.monotonic() < deadline:
            groups = client.request(ListGroups(), GroupList).groups
            if any(member.acked and not member.lag for group in groups for member in group.members):
                return
            if job.poll() is not None:
                raise MeasureError(f"archive --follow ended: {job.communicate()[1][-500:]}")
            time.sleep(INTERVAL_S)
    raise MeasureError("archive --follow does not begin")


def run_json(broker: Broker, command: list[str]) -> tuple[dict[str, Any], float, dict[str, float]]:
    """Return the JSON a program prints, its elapsed seconds, and CPU seconds by kind of process.

    The CPU seconds cover the program, its child processes and the broker.
    """
    before_s = broker.usage().cpu_s
    started = time.monotonic()
    # Files instead of pipes: Spark's JVM ends a moment after the program and would keep pipes open.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        job = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        costs = ProcessCosts(job, kind_of)
        try:
            status = job.wait(JOB_TIMEOUT_S)
        finally:
            whole_s = time.monotonic() - started
            job.kill()
            cpu_s = costs.stop()
        output.seek(0)
        errors.seek(0)
        if status != 0:
            raise MeasureError(errors.read().strip()[-500:])
        found: dict[str, Any] = json.load(output)
    cpu_s["broker"] = broker.usage().cpu_s - before_s
    return found, whole_s, cpu_s


def kind_of(command: list[str]) -> str:
    """Name a process of a run by its command line: JVM, tasks or program."""
    if command[0].endswith("java"):
        return "JVM"
    return "tasks" if any("daemon" in word for word in command) else "program"
