"""Tests exactly-once writing under kills: `python -m tests.spark.sink_kills --runs N [--seed S]`.

Each run writes numbered rows with tests/spark/sink_app.py into two queues, batch after batch. It
sends SIGKILL to at least three of: the driver with all its processes, a worker in the middle of a
task, the broker. Then another run of the program finishes the last batch. The queues must have each
number once, without gaps, and the numbers of a partition in order.
"""

import shutil
import tempfile
import time
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.spark.kills import (
    BROKER,
    DRIVER,
    PATIENCE_S,
    QUEUES,
    WORKER,
    KillsError,
    Run,
    RunResult,
    run_many,
)
from tests.spark.sink_app import ROWS
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import ListSinks, SinkList


class SinkRun(Run):
    """One run in its own directory."""

    module = "tests.spark.sink_app"

    def execute(self) -> RunResult:
        """Do the run; KillsError when a row is missing or duplicated, or when the run stalls."""
        kills = [BROKER, WORKER, self.chance.choice((BROKER, WORKER, DRIVER))]
        self.chance.shuffle(kills)
        # Kill the driver last, since the final run needs a new process anyway.
        kills.append(DRIVER)
        self.broker.start()
        with pika.BlockingConnection(pika.URLParameters(self.broker.uri)) as connection:
            for queue in QUEUES:
                connection.channel().queue_declare(queue, durable=True)
        try:
            for kind in kills:
                self.kill_one(kind)
            self.drain()
            self.wait_until_published()
            messages = self.check_queues()
        finally:
            self.end_app()
            self.broker.kill()
        return RunResult(self.seed, kills, messages, self.count_batches())

    def wait_until_published(self) -> None:
        """Wait until no sink has messages that are committed and not in their queues."""
        deadline = time.monotonic() + PATIENCE_S
        with AdminClient(NodeAddress(self.broker.uri)) as client:
            while any(sink.is_busy for sink in client.request(ListSinks(), SinkList).sinks):
                if time.monotonic() > deadline:
                    raise KillsError("a sink never ends to publish")
                time.sleep(0.1)

    def check_queues(self) -> int:
        """Count the rows in the queues, after checking that each has a partition's rows in order.

        Each number must be there once, and none may be missing.
        """
        numbers: list[int] = []
        with pika.BlockingConnection(pika.URLParameters(self.broker.uri)) as connection:
            for queue in self.queues:
                bodies = drained(connection.channel(), queue)
                last: dict[bytes, int] = {}
                for body in bodies:
                    partition, number, _ = body.split(b":", 2)
                    if int(number) <= last.get(partition, -1):
                        raise KillsError(
                            f"{queue} has {number!r} of partition {partition!r} behind a later one"
                        )
                    last[partition] = int(number)
                    numbers.append(int(number))
        count = len(numbers)
        if len(set(numbers)) < count:
            raise KillsError(f"{count - len(set(numbers))} of {count} rows are there twice")
        if sorted(numbers) != list(range(count)) or count % ROWS:
            raise KillsError(f"{count} rows, with gaps up to {max(numbers, default=-1)}")
        if count < ROWS * self.count_commits():
            raise KillsError(f"{count} rows of {self.count_commits()} batches")
        return count

    def count_commits(self) -> int:
        """How many batches Spark has committed."""
        return self.count_in_log("commits")


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    """The bodies of all messages of a queue, which are acked."""
    bodies: list[bytes] = []
    while count := channel.queue_declare(queue, passive=True).method.message_count:
        for left, (method, _, body) in zip(
            range(count - 1, -1, -1), channel.consume(queue), strict=False
        ):
            bodies.append(body)
            if left == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
        channel.cancel()
    return bodies


def execute_run(seed: int, directory: Path) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"sink-kills-{seed}-", dir=directory))
    result = SinkRun(seed, place).execute()
    shutil.rmtree(place)
    return result


if __name__ == "__main__":
    run_many(__doc__, execute_run)
