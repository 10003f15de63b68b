"""Tests telemetry under kills: `python -m tests.spark.telemetry.kills --runs N [--seed S]`.

As tests/spark/kills.py, with the sources "warren_events" (runs of even seeds) and "warren_metrics"
(odd ones) in place of queues. An event counts once its client has got the confirm of a message that
it has published after that: the events and the message are in one journal. The Parquet files must
have each of these events once. Of the metrics no sample may come twice, and between two samples
nothing may be missing that no row tells of.
"""

import json
import random
import shutil
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pika

from tests.spark.kills import KillsError, Publisher, Run, RunResult, run_many
from tests.spark.telemetry.event_app import GROUP
from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.watching import KeepEvents

INTERVAL_MS = 200


class Declarer(Publisher):
    """Declares queues and deletes them; a deed counts with the confirm of the message after it."""

    def run(self) -> None:
        number = 0
        while not self.is_stopping.is_set():
            try:
                with pika.BlockingConnection(pika.URLParameters(next(self.uris))) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self.is_stopping.is_set():
                        number += 1
                        name = f"made-{number}"
                        self.published.add(name)
                        channel.queue_declare(name, durable=self.chance.random() < 0.5)
                        properties = pika.BasicProperties(delivery_mode=2)
                        channel.basic_publish("", self.queues[0], b"", properties)
                        self.confirmed.add(name)
                        if self.chance.random() < 0.9:
                            channel.queue_delete(name)
                        time.sleep(0.004)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)


class EventRun(Run):
    """A run with the stream of events."""

    module = "tests.spark.telemetry.event_app"

    def publisher(self) -> Publisher:
        with AdminClient(NodeAddress(self.broker.uri)) as client:
            queue = f"warren.events.{GROUP}".encode()
            client.request(KeepEvents("/", queue, [b"#"], []), Done)
        return Declarer([self.broker.uri], self.queues, random.Random(self.seed))

    def check(self, publisher: Publisher) -> None:
        """Check that each queue whose declaration is confirmed was created once."""
        rows = json.loads((self.directory / "ids.json").read_text())
        created = [name for event, _, name in rows if event == "queue.created"]
        made = [name for name in created if name.startswith("made-")]
        missing, unknown = publisher.confirmed - set(made), set(made) - publisher.published
        seqs = [seq for _, seq, _ in rows]
        if len(set(made)) < len(made) or len(set(seqs)) < len(seqs) or missing or unknown:
            raise KillsError(
                f"{len(made)} declarations, {len(made) - len(set(made))} repeated, "
                f"{len(seqs) - len(set(seqs))} positions repeated, {len(missing)} missing "
                f"({sorted(missing)[:10]}), {len(unknown)} never made"
            )


class MetricRun(Run):
    """A run with the stream of metrics; `messages` of its result are publishes, not rows."""

    module = "tests.spark.telemetry.metric_app"

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        self.broker = BrokerProcess(
            directory / "broker", f"collect_statistics_interval={INTERVAL_MS}"
        )

    def check(self, publisher: Publisher) -> None:
        """Check that no sample is there twice, and that each gap is told."""
        rows = json.loads((self.directory / "ids.json").read_text())
        keys = [(ms, queue, group, metric) for ms, queue, group, metric, *_ in rows]
        if len(set(keys)) < len(keys):
            raise KillsError(f"{len(keys) - len(set(keys))} of {len(keys)} rows are repeated")
        lost = {ms for ms, _, _, metric, *_ in rows if metric == "samples_lost"}
        before = {
            ms: seconds for ms, _, _, metric, _, _, seconds in rows if metric == "connections"
        }
        for first, second in pairwise(sorted(before)):
            told_s = before[second]
            is_next = told_s is not None and round(told_s * 1000) == second - first
            if not is_next and second not in lost and (second - first) / INTERVAL_MS >= 1.5:
                raise KillsError(f"samples between {first} and {second} are missing, untold")


def execute_run(seed: int, directory: Path) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"telemetry-{seed}-", dir=directory))
    run = MetricRun if seed % 2 else EventRun
    result = run(seed, place).execute()
    shutil.rmtree(place)
    return result


if __name__ == "__main__":
    run_many(__doc__, execute_run)
