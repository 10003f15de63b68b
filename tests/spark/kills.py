"""Tests exactly-once reading under kills: `python -m tests.spark.kills --runs N [--seed S]`.

Each run publishes numbered messages with confirms to two queues and streams them into Parquet with
tests/spark/stream_app.py. It sends SIGKILL to at least three of: the driver with all its processes,
a worker in the middle of a task, the source's process beside the driver, the broker. Then an
availableNow run reads the remaining messages, and the Parquet files must have each confirmed
message once. The seed repeats a run, except for the machine's timing.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pika

from tests.spark.stream_app import ID_BYTES
from tests.support.brokers.process import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
QUEUES = ("first", "second")
PATIENCE_S = 300
# Fewest messages of a run, however slow the disk is.
MESSAGES_MIN = 100
# Bytes of bodies: some are embedded in the index, others go to content files.
SIZES = (ID_BYTES, 200, 3000, 60_000)
KINDS = (DRIVER, WORKER, SOURCE, BROKER) = ("driver", "worker", "source", "broker")
# Parts of the command lines of a Spark application's processes.
WORKER_COMMAND = "warrenmq.spark.local.worker_daemon\0pyspark.worker"
SOURCE_COMMAND = "python_streaming_source_runner"


class KillsError(Exception):
    """A run has failed; the text says how."""


@dataclass
class RunResult:
    """The figures of a successful run."""

    seed: int
    kills: list[str]
    messages: int
    batches: int


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms until stopped, through one of `uris` at a time.

    It goes on through the next one when that is away.
    """

    def __init__(self, uris: Sequence[str], queues: Sequence[str], chance: random.Random) -> None:
        super().__init__()
        self.uris = itertools.cycle(uris)
        self.queues = queues
        self.chance = chance
        self.is_stopping = threading.Event()
        self.confirmed: set[str] = set()
        self.published: set[str] = set()

    def run(self) -> None:
        number = 0
        while not self.is_stopping.is_set():
            try:
                with pika.BlockingConnection(pika.URLParameters(next(self.uris))) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self.is_stopping.is_set():
                        number += 1
                        name = f"{number:0{ID_BYTES}}"
                        self.published.add(name)
                        body = name.encode().ljust(
                            self.chance.choices(SIZES, (60, 30, 9, 1))[0], b"."
                        )
                        properties = pika.BasicProperties(delivery_mode=2, message_id=name)
                        channel.basic_publish("", self.chance.choice(self.queues), body, properties)
                        self.confirmed.add(name)
                        time.sleep(0.004)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)


class Application:
    """A running Spark program, `module`, in its own process group."""

    def __init__(
        self, module: str, uri: str, queues: Sequence[str], directory: Path, *arguments: str
    ) -> None:
        self.log_path = directory / "app.log"
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    module,
                    uri,
                    ",".join(queues),
                    str(directory),
                    *arguments,
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def expect_alive(self) -> None:
        """Raise KillsError when the program has ended without a kill."""
        if self.process.poll() is not None:
            raise KillsError(f"the program ended: {self.log_path.read_text()[-4000:]}")

    def kill(self) -> None:
        """Kill all processes of the program: JVM, workers, the source's process."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def processes(self, command: str) -> list[int]:
        """The program's processes with `command` in their command line; only forked workers."""
        return processes_of(self.process.pid, command)


def processes_of(session: int, command: str) -> list[int]:
    """Processes of a session with `command` in their command line; only forked workers."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                line = (entry / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            # Fields of /proc/PID/stat after the name: state, parent, group, session.
            if int(stat[3]) == session and command in line:
                found[int(entry.name)] = int(stat[1])
    if command == WORKER_COMMAND:
        return [process for process, parent in found.items() if parent in found]
    return list(found)


class Run:
    """One run in its own directory."""

    module = "tests.spark.stream_app"
    queues: Sequence[str] = QUEUES

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.directory = directory
        self.chance = random.Random(seed)
        self.broker = BrokerProcess(directory / "broker")
        self.app: Application | None = None

    def execute(self) -> RunResult:
        """Do the run; KillsError when a message is missing or duplicated, or the run stalls."""
        kills = [WORKER, BROKER, *self.chance.choices(KINDS, k=self.chance.randrange(2))]
        self.chance.shuffle(kills)
        # Kill the driver last, since the availableNow run needs a new process anyway: starting a
        # JVM takes the longest part of a run.
        kills.append(DRIVER)
        self.broker.start()
        with pika.BlockingConnection(pika.URLParameters(self.broker.uri)) as connection:
            for queue in QUEUES:
                connection.channel().queue_declare(queue, durable=True)
        publisher = self.publisher()
        publisher.start()
        try:
            for kind in kills:
                self.kill_one(kind)
            self.wait_for(lambda: len(publisher.confirmed) > MESSAGES_MIN)
            publisher.is_stopping.set()
            publisher.join()
            self.drain()
        finally:
            publisher.is_stopping.set()
            publisher.join()
            self.end_app()
            self.broker.kill()
        self.check(publisher)
        return RunResult(self.seed, kills, len(publisher.confirmed), self.count_batches())

    def publisher(self) -> "Publisher":
        """What the run publishes, not started."""
        return Publisher([self.broker.uri], self.queues, random.Random(self.seed))

    def kill_one(self, kind: str) -> None:
        """Kill a process of `kind` at a random moment after a new batch was planned."""
        self.await_batch()
        if kind == BROKER:
            self.broker.kill()
            time.sleep(self.chance.uniform(0, 0.5))
            self.broker.start()
        elif kind == DRIVER:
            self.end_app()
        else:
            self.kill_python(WORKER_COMMAND if kind == WORKER else SOURCE_COMMAND)

    def await_batch(self) -> None:
        """Return at a random moment after a new batch was planned; starts the program."""
        if self.app is None:
            self.app = Application(self.module, self.broker.uri, self.queues, self.directory)
        before = self.count_batches()
        self.wait_for(lambda: self.count_batches() > before)
        time.sleep(self.chance.uniform(0, 0.7))

    def kill_python(self, command: str) -> None:
        """Kill a random Python process of the application with `command` in its command line."""
        app = self.app
        assert app is not None

        def is_killed() -> bool:
            # Retry, because some processes live for a moment only and may have ended since they
            # were listed.
            found = app.processes(command)
            with contextlib.suppress(ProcessLookupError):
                if found:
                    os.kill(self.chance.choice(found), signal.SIGKILL)
                    return True
            return False

        self.wait_for(is_killed)

    def end_app(self) -> None:
        if self.app is not None:
            self.app.kill()
            self.app = None

    def drain(self) -> None:
        """Do an availableNow run to its end."""
        self.app = Application(self.module, self.broker.uri, self.queues, self.directory, "once")
        try:
            status = self.app.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise KillsError("the availableNow run does not end") from None
        if status != 0:
            raise KillsError(
                f"the availableNow run failed: {self.app.log_path.read_text()[-4000:]}"
            )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if self.app is not None:
                self.app.expect_alive()
            if time.monotonic() > deadline:
                log = self.app.log_path.read_text()[-4000:] if self.app is not None else ""
                raise KillsError(f"nothing goes on: {log}")
            time.sleep(0.02)

    def count_batches(self) -> int:
        """How many batches Spark has planned."""
        return self.count_in_log("offsets")

    def count_in_log(self, name: str) -> int:
        """How many batches a log of the checkpoint has had; Spark deletes old entries."""
        numbers = [int(path.name) for path in (self.directory / "checkpoint" / name).glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def check(self, publisher: Publisher) -> None:
        """Check that the Parquet files have each confirmed message once, and each position once."""
        rows = json.loads((self.directory / "ids.json").read_text())
        ids = [row[2] for row in rows]
        missing = publisher.confirmed - set(ids)
        unknown = set(ids) - publisher.published
        if len(set(ids)) < len(ids) or missing or unknown:
            raise KillsError(
                f"{len(ids)} rows, {len(ids) - len(set(ids))} of them repeated, {len(missing)} messages missing "
                f"({sorted(missing)[:10]}), {len(unknown)} never published"
            )
        if len({(queue, seq) for queue, seq, _ in rows}) < len(rows):
            raise KillsError("two messages have the same position")


def execute_run(seed: int, directory: Path) -> RunResult:
    """Do one run below `directory`, which is deleted after a success."""
    place = Path(tempfile.mkdtemp(prefix=f"kills-{seed}-", dir=directory))
    result = Run(seed, place).execute()
    shutil.rmtree(place)
    return result


def run_many(description: str | None, run: Callable[[int, Path], RunResult]) -> None:
    """The command line: do several runs, one after the other; exit status 1 when one has failed."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument(
        "--seed", type=int, help="of the first run; the others count up (default: by chance)"
    )
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    first = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    failures = 0
    for seed in range(first, first + arguments.runs):
        begin = time.monotonic()
        try:
            result = run(seed, arguments.directory)
            text = f"{result.messages} messages, {result.batches} batches, killed {', '.join(result.kills)}"
        except KillsError as error:
            failures += 1
            text = f"FAILED: {error}"
        sys.stdout.write(f"seed {seed}: {text} ({time.monotonic() - begin:.0f} s)\n")
        sys.stdout.flush()
    sys.stdout.write(f"{arguments.runs - failures} of {arguments.runs} runs exactly once\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    run_many(__doc__, execute_run)
