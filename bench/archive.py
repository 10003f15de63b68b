"""`python -m bench archive`: `warren pipeline archive` against a consumer that writes Parquet itself.

- A backlog of persistent messages of 1 KiB is drained into Parquet: by `warren pipeline archive`, whole program with the
  start of its JVM and without it, and by a pika consumer that makes Parquet files with pyarrow (archive_consumer.py).
- A queue is fed at a fixed rate while `warren pipeline archive --follow` runs beside: its lag, asked of the broker every
  half second, as the age of the oldest message that is not archived, and in messages.

Bodies are those of `warren perf`, which compress well. The broker and everything else share the machine's cores.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError
from bench.scenario import Scenario, depth, remove, run_scenario
from warren.admin.client import AdminClient, NodeAddress
from warren.admin.protocol import GroupList, ListGroups

QUEUE = "bench-archive"
JOB_TIMEOUT_S = 900.0
LOOK_S = 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="of the backlog")
    parser.add_argument(
        "--consumer-messages", type=int, default=200_000, metavar="N", help="that the consumer drains"
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
    """The same kind of backlog, drained both ways."""
    options = scenario.options
    fill(scenario, broker, options.consumer_messages)
    target = scenario.directory / "consumer"
    arguments = [broker.uri, QUEUE, str(options.consumer_messages), str(target)]
    found = run_json([sys.executable, "-m", "bench.archive_consumer", *arguments])
    consumer_rate = options.consumer_messages / float(found["seconds"])
    scenario.add(broker, "pika and pyarrow: draining", consumer_rate, "msg/s")
    shutil.rmtree(target)
    fill(scenario, broker, options.messages)
    target = scenario.directory / "archive"
    started = time.monotonic()
    found = run_json([*archive_command(scenario, broker, target), "--json"])
    whole_s = time.monotonic() - started
    if found["messages"] != options.messages or depth(broker, QUEUE):
        raise MeasureError(f"{found['messages']} of {options.messages} messages were archived")
    rate = options.messages / float(found["seconds"])
    scenario.add(broker, "archive: draining", rate, "msg/s")
    whole_rate = options.messages / whole_s
    scenario.add(broker, "archive: draining, with the start of Spark", whole_rate, "msg/s")
    scenario.add(broker, "archive: by the consumer's rate", 100 * rate / consumer_rate, "%")
    scenario.add(
        broker,
        "archive: by the consumer's rate, with the start of Spark",
        100 * whole_rate / consumer_rate,
        "%",
    )
    shutil.rmtree(target)
    remove(broker, QUEUE)


def follow(scenario: Scenario, broker: Broker) -> None:
    """Feed and archive at once."""
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
            *("--rate", str(options.rate), "--time", str(options.seconds), "--size", str(options.size)),
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
    """Asks the broker how far the archive is behind, until it is told to stop."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.messages: list[int] = []
        self._broker = broker
        self._is_stopping = threading.Event()
        self.start()

    def run(self) -> None:
        with AdminClient(NodeAddress(self._broker.uri)) as client:
            while not self._is_stopping.wait(LOOK_S):
                [group] = client.request(ListGroups(), GroupList).groups
                self.seconds.append(max(member.lag_seconds for member in group.members))
                self.messages.append(sum(member.lag for member in group.members))

    def stop(self) -> None:
        self._is_stopping.set()
        self.join()


def fill(scenario: Scenario, broker: Broker, messages: int) -> None:
    scenario.fill(broker, QUEUE, messages, "--size", str(scenario.options.size))


def archive_command(scenario: Scenario, broker: Broker, target: Path) -> list[str]:
    command = [sys.executable, "-m", "warren", "pipeline", "archive", str(target), "--uri", broker.uri]
    return [*command, "--queue", QUEUE, "--format", scenario.options.format, "--progress", "none"]


def await_archived(broker: Broker, job: "subprocess.Popen[str]") -> None:
    """Until the archive runs: the one message that was there is acked."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    with AdminClient(NodeAddress(broker.uri)) as client:
        while time.monotonic() < deadline:
            groups = client.request(ListGroups(), GroupList).groups
            if any(member.acked and not member.lag for group in groups for member in group.members):
                return
            if job.poll() is not None:
                raise MeasureError(f"archive --follow ended: {job.communicate()[1][-500:]}")
            time.sleep(LOOK_S)
    raise MeasureError("archive --follow does not begin")


def run_json(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise MeasureError(done.stderr.strip()[-500:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found
