"""The job `archive` with a real Spark and a real broker: whole runs, a stopped run, and kills."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from tests.spark.kills import WORKER_COMMAND, processes_of
from tests.support.brokers.process import BrokerProcess
from tests.support.lake_rows import lake_rows
from tests.support.s3_server import s3_server
from warrenmq.pipeline import JobError, Step, archive
from warrenmq.pipeline.archives.directory import ArchiveDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent.parent
RUN_TIMEOUT_S = 180


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0


def fill(broker: BrokerProcess, queue: str, numbers: range) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for number in numbers:
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number), headers={"n": number}
            )
            channel.basic_publish("", queue, b"m%d" % number, properties)


def message_ids(target: Path) -> list[int]:
    """All message ids in all Parquet files of the target, sorted, without use of a Delta log."""
    import pyarrow.parquet as pq

    found: list[str] = []
    for path in target.rglob("*.parquet"):
        found += pq.read_table(path, columns=["message_id"], partitioning=None)[
            "message_id"
        ].to_pylist()
    return sorted(int(text) for text in found)


class Steps:
    """Records the names of a job's progress steps."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def show(self, step: Step) -> None:
        self.names.append(step.name)


def test_run_after_run_archives_what_came(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """Runs of several batches archive all messages by queue and date, merged; Spark reads them."""
    queue = "orders/a b%"
    fill(broker, queue, range(250))
    steps = Steps()
    target = tmp_path / "archive"
    result = archive(
        target, uri=broker.uri, queues=[queue], max_messages=25, spark=spark, progress=steps
    )
    assert (result.messages, result.batches, result.lag_messages, result.exit_code) == (
        250,
        10,
        0,
        0,
    )
    assert message_ids(target) == list(range(250))
    assert len(list(target.rglob("*.parquet"))) < 10
    assert result.merged_files > 0
    fill(broker, queue, range(250, 300))
    result = archive(target, uri=broker.uri, queues=[queue], spark=spark)
    assert (result.messages, result.total_messages) == (50, 300)
    assert list(dict.fromkeys(steps.names)) == ["archiving", "merging small files"]
    rows = (
        spark.read.parquet(str(target))
        .selectExpr("queue", "cast(date as string)", "headers['n'] n")
        .collect()
    )
    assert {row["queue"] for row in rows} == {queue}
    assert sorted(int(row["n"]) for row in rows) == list(range(300))


def test_queues_of_a_pattern_have_a_directory_each(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """Each queue of a pattern has a directory; a name that looks like a number stays a name."""
    for queue, numbers in (("eu.1", range(30)), ("eu.2", range(30, 50)), ("us.1", range(50, 60))):
        fill(broker, queue, numbers)
    target = tmp_path / "archive"
    result = archive(target, uri=broker.uri, pattern=r"eu\..*", spark=spark)
    assert (result.messages, result.lag_messages) == (50, 0)
    assert message_ids(target) == list(range(50))
    assert sorted(path.name for path in target.iterdir()) == ["queue=eu.1", "queue=eu.2"]


def test_an_archive_is_told_to_stop(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """A continuous archive takes all messages until its stop; the next run finds none."""
    fill(broker, "live", range(10))
    stopping = threading.Event()
    target = tmp_path / "archive"
    books = ArchiveDirectory(target, tmp_path / "archive.checkpoint")

    def feed() -> None:
        for wanted, more in ((10, range(10, 20)), (20, None)):
            deadline = time.monotonic() + RUN_TIMEOUT_S
            while time.monotonic() < deadline:
                found = books.committed()
                if found is not None and found.total_rows >= wanted:
                    break
                time.sleep(0.05)
            if more is not None:
                fill(broker, "live", more)
        stopping.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    result = archive(
        target,
        uri=broker.uri,
        queues=["live"],
        continuous=True,
        interval_s=0.2,
        spark=spark,
        stopping=stopping,
    )
    feeder.join()
    assert result.messages == 20
    assert message_ids(target) == list(range(20))
    assert archive(target, uri=broker.uri, queues=["live"], spark=spark).messages == 0


def test_a_delta_table_is_what_other_tools_read(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """A Delta table has all messages once, with Spark's types, for other tools."""
    deltalake = pytest.importorskip("deltalake")
    fill(broker, "delta", range(60))
    target = tmp_path / "table"
    archive(target, uri=broker.uri, queues=["delta"], format="delta", max_messages=20, spark=spark)
    table = deltalake.DeltaTable(str(target)).to_pyarrow_table()
    assert sorted(int(text) for text in table["message_id"].to_pylist()) == list(range(60))
    assert str(table.schema.field("enqueued_at").type) == "timestamp[us, tz=UTC]"


def test_errors_are_one_line(spark: "SparkSession", broker: BrokerProcess, tmp_path: Path) -> None:
    """An error of the source is one line too."""
    with pytest.raises(JobError, match=r"^no queue 'not-there' in vhost '/'$"):
        archive(tmp_path / "archive", uri=broker.uri, queues=["not-there"], spark=spark)


@pytest.mark.kill
@pytest.mark.parametrize(
    ("where", "file_format"),
    [("disk", "parquet"), ("disk", "delta"), ("s3", "parquet"), ("s3", "iceberg")],
)
def test_exactly_once_whatever_is_killed(
    where: str, file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills of program, worker and broker at random moments, then a run to the end: each row once.

    Parquet files in an object store are then replayed from there, once. WARREN_ARCHIVE_KILLS sets
    the number of rounds.
    """
    library = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(file_format)
    if library is not None:
        pytest.importorskip(library)
    rounds = int(os.environ.get("WARREN_ARCHIVE_KILLS", "2"))
    chance = random.Random(f"{where} {file_format}")
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    count = 0
    with contextlib.ExitStack() as stack:
        stack.callback(broker.kill)
        target = str(tmp_path / "archive")
        if where == "s3":
            target = f"{stack.enter_context(s3_server(monkeypatch))}/archive"
        books = ArchiveDirectory(target, tmp_path / "archive.checkpoint")
        for number in range(rounds):
            fill(broker, "kills", range(count, count + 3000))
            count += 3000
            app = start_app(broker, tmp_path, target, file_format)
            try:
                await_batches(app, books, tmp_path, 2)
                time.sleep(chance.uniform(0, 1.5))
                if number % 2:
                    broker.kill()
                    broker.start()
                else:
                    for worker in processes_of(app.pid, WORKER_COMMAND)[:1]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(worker, signal.SIGKILL)
                time.sleep(chance.uniform(0, 1.5))
            finally:
                os.killpg(app.pid, signal.SIGKILL)
                app.wait()
        app = start_app(broker, tmp_path, target, file_format, "once")
        assert app.wait(RUN_TIMEOUT_S) == 0, (tmp_path / "app.log").read_text()[-4000:]
        found = [int(row["message_id"]) for row in lake_rows(target, file_format)]
        assert sorted(found) == list(range(count))
        if (where, file_format) != ("s3", "parquet"):
            return
        arguments = ["--uri", broker.uri, "--checkpoint", str(tmp_path / "replay"), "--json"]
        arguments += ["--where", "CAST(message_id AS INT) >= 1000", "--exchange", ""]
        for published in (count - 1000, 0):
            done = subprocess.run(
                [sys.executable, "-m", "warrenmq", "pipeline", "replay", target, *arguments],
                stdout=subprocess.PIPE,
                check=True,
                timeout=RUN_TIMEOUT_S,
            )
            assert json.loads(done.stdout)["published"] == published


def start_app(
    broker: BrokerProcess, directory: Path, target: str, *arguments: str
) -> "subprocess.Popen[bytes]":
    with (directory / "app.log").open("a") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pipeline.archives.archive_app",
                broker.uri,
                target,
                str(directory / "archive.checkpoint"),
                *arguments,
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def await_batches(
    app: "subprocess.Popen[bytes]", books: ArchiveDirectory, directory: Path, batches: int
) -> None:
    """Return when `batches` more batches are committed."""

    def last() -> int:
        found = books.committed()
        return -1 if found is None else found.batch

    goal = last() + batches
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while last() < goal:
        assert app.poll() is None, (directory / "app.log").read_text()[-4000:]
        assert time.monotonic() < deadline, (directory / "app.log").read_text()[-4000:]
        time.sleep(0.02)
