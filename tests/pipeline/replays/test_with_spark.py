"""The job `replay` with a real Spark and a real broker: all kinds of sources, and a kill."""

import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.pipeline import JobError, RouteCount, archive, backup, replay
from warrenmq.pipeline.progress import Silent
from warrenmq.pipeline.replays.directory import ReplayDirectory, ReplayIdentity
from warrenmq.pipeline.replays.job import _choose, _Replay
from warrenmq.pipeline.spark_run import spark_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent.parent
RUN_TIMEOUT_S = 180
EXCHANGE = "shop"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an exchange that routes to the queues `eu` and `us`."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        for queue in ("eu", "us"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, f"{queue}.#")
    yield broker
    assert broker.stop() == 0


def publish(broker: BrokerProcess, numbers: range) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            properties = pika.BasicProperties(
                delivery_mode=2,
                message_id=str(number),
                headers={"n": number},
                timestamp=1_700_000_000,
            )
            key = f"{'eu' if number % 3 else 'us'}.{number % 2}"
            channel.basic_publish(EXCHANGE, key, b"order %d" % number, properties)


def taken(broker: BrokerProcess, queue: str) -> list[Any]:
    """Consume all messages of a queue; return address, message-id, headers and body of each."""
    found: list[Any] = []
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(
                (
                    method.exchange,
                    method.routing_key,
                    properties.message_id,
                    properties.headers,
                    body,
                )
            )


def ids(found: list[Any]) -> list[int]:
    return [int(each[2]) for each in found]


def test_archives_tables_and_backups_are_replayed(
    spark: "SparkSession",
    broker: BrokerProcess,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Archives, tables and backups are replayed as they were, or filtered and rerouted.

    Of an incremental backup the live messages are replayed. It is in an object store, and its base
    on a disk.
    """
    for name, value in os.environ.items():
        if name.startswith("AWS_"):
            # Spark has started before the store; its next Python workers get these.
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
    publish(broker, range(40))
    backup(broker.uri, tmp_path / "first", spark=spark)
    assert len(taken(broker, "us")) == 14
    publish(broker, range(40, 60))
    second = f"{bucket}/{uuid.uuid4().hex}"
    work = tmp_path / "work"
    backup(broker.uri, second, base=tmp_path / "first", work=work, spark=spark)
    expected = {
        "eu": [n for n in range(60) if n % 3],
        "us": [n for n in range(40, 60) if n % 3 == 0],
    }
    archive(tmp_path / "archive", uri=broker.uri, queues=["eu", "us"], spark=spark)

    dry = replay([tmp_path / "archive"], uri=broker.uri, dry_run=True, spark=spark)
    counts = Counter(
        f"{'eu' if n % 3 else 'us'}.{n % 2}" for n in [*expected["eu"], *expected["us"]]
    )
    assert {route.routing_key: route.messages for route in dry.routes} == counts
    assert (dry.messages, dry.published, dry.route_count) == (sum(counts.values()), 0, 4)
    here = replay([tmp_path / "archive"], uri=broker.uri, dry_run=True, engine="local")
    assert (here.routes, here.messages, here.route_count) == (
        dry.routes,
        dry.messages,
        dry.route_count,
    )
    where = "queue = 'eu' and timestamp >= '2023-01-01' and cast(headers['n'] as int) < 10"
    dry = replay(
        [tmp_path / "archive"],
        uri=broker.uri,
        where=where,
        routing_key="us.x",
        dry_run=True,
        spark=spark,
    )
    assert dry.routes == [RouteCount(EXCHANGE, "us.x", 6)]
    assert not list(tmp_path.glob("*.replay-*"))

    sources = {"archive": str(tmp_path / "archive"), "second": second}
    for name, engine in itertools.product(sources, (spark, None)):
        checkpoint = tmp_path / f"{name}-{'local' if engine is None else 'spark'}"
        result = replay(
            [sources[name]],
            uri=broker.uri,
            checkpoint=checkpoint,
            spark=engine,
            engine="local" if engine is None else "auto",
        )
        assert result.published == sum(counts.values())
        for queue, numbers in expected.items():
            found = taken(broker, queue)
            assert ids(found) == numbers
            assert found[-1] == (
                EXCHANGE,
                f"{queue}.{numbers[-1] % 2}",
                str(numbers[-1]),
                {"n": numbers[-1]},
                b"order %d" % numbers[-1],
            )
    replay(
        [tmp_path / "archive"],
        uri=broker.uri,
        where=where,
        exchange="",
        routing_key="us",
        spark=spark,
    )
    assert ids(taken(broker, "us")) == [n for n in range(10) if n % 3]

    spark.sql("select 'x' body, 'eu' routing_key, 7 other").write.parquet(str(tmp_path / "table"))
    with pytest.raises(JobError, match="cannot be replayed: where to"):
        replay([tmp_path / "table"], uri=broker.uri, spark=spark)
    replay([tmp_path / "table"], uri=broker.uri, exchange="", spark=spark)
    assert [each[-1] for each in taken(broker, "eu")] == [b"x"]


def test_a_delta_table_is_replayed(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """A Delta table is read by its log: only its files, and its values of partition columns."""
    deltalake = pytest.importorskip("deltalake")
    publish(broker, range(30))
    archive(tmp_path / "table", uri=broker.uri, queues=["eu", "us"], format="delta", spark=spark)
    (tmp_path / "table" / "left.parquet").write_bytes(b"of a writer that was killed")
    result = replay(
        [tmp_path / "table"], uri=broker.uri, checkpoint=tmp_path / "state", spark=spark
    )
    assert result.published == 30
    assert ids(taken(broker, "eu")) == [n for n in range(30) if n % 3]
    assert ids(taken(broker, "us")) == [n for n in range(30) if n % 3 == 0]
    keys = ["ü/ %", "%C3", "a=b", " b ", "plain"]
    rows = {"body": [b"x"] * 5, "exchange": [""] * 5, "routing_key": keys}
    deltalake.write_deltalake(str(tmp_path / "other"), pa.table(rows), partition_by=["routing_key"])
    dry = replay([tmp_path / "other"], uri=broker.uri, dry_run=True, spark=spark)
    assert sorted(route.routing_key for route in dry.routes) == sorted(keys)
    for table in ("table", "other"):
        dry = replay(
            [tmp_path / table], uri=broker.uri, dry_run=True, checkpoint=tmp_path / "x", spark=spark
        )
        here = replay(
            [tmp_path / table],
            uri=broker.uri,
            dry_run=True,
            checkpoint=tmp_path / "x",
            engine="local",
        )
        assert here.routes == dry.routes and here.messages == dry.messages


def test_an_iceberg_table_is_replayed(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """An Iceberg table is read by its newest version, by Spark with a filter and without Spark."""
    pytest.importorskip("pyiceberg")
    publish(broker, range(30))
    table = tmp_path / "table"
    archive(table, uri=broker.uri, queues=["eu", "us"], format="iceberg", spark=spark)
    (table / "data" / "left.parquet").write_bytes(b"of a writer that was killed")
    result = replay([table], uri=broker.uri, where="queue = 'us'", spark=spark)
    assert result.published == 10
    assert ids(taken(broker, "us")) == [n for n in range(30) if n % 3 == 0]
    state = tmp_path / "state"
    dry = replay([table], uri=broker.uri, dry_run=True, checkpoint=state, spark=spark)
    here = replay([table], uri=broker.uri, dry_run=True, checkpoint=state, engine="local")
    assert here.messages == dry.messages == 30
    assert here.routes == dry.routes


def test_large_bodies_do_not_fill_the_memory(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """Large bodies are copied in row groups of bounded size, so that memory stays bounded."""
    source = tmp_path / "source"
    source.mkdir()
    bodies = [os.urandom(1 << 20) for _ in range(120)]
    columns = {
        "body": bodies,
        "exchange": [""] * 120,
        "routing_key": ["eu"] * 120,
        "seq": range(120),
    }
    pq.write_table(pa.table(columns), source / "a.parquet", row_group_size=20)
    work = _Replay(broker.uri, ReplayIdentity([str(source)], None, None, None, "/"), "fail", None)
    directory = ReplayDirectory(tmp_path / "state")
    with directory.locked(), spark_for("replay", None, spark) as session:
        state = _choose(session, work, directory, Silent())
    assert state.messages == 120
    sizes = [
        footer.row_group(group).total_byte_size
        for footer in [
            pq.read_metadata(path) for path in (tmp_path / "state" / "messages").glob("*.parquet")
        ]
        for group in range(footer.num_row_groups)
    ]
    assert max(sizes) < 40 << 20 < sum(sizes)


def test_errors_are_one_line_and_leave_nothing(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error is one line before any publish, without output of Spark, and leaves no file."""
    source = tmp_path / "source"
    spark.sql("select 'x' body, 'shop' exchange, 'eu.1' routing_key").write.parquet(str(source))
    no_message = tmp_path / "no_message"
    spark.sql("select 'x' text").write.parquet(str(no_message))
    no_body = tmp_path / "no_body"
    spark.sql("select cast(null as string) body, 'shop' exchange").write.parquet(str(no_body))
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.parquet").write_bytes(b"no Parquet")
    before = sorted(tmp_path.iterdir())
    capfd.readouterr()
    for dry_run in (False, True):
        for place, arguments, text in (
            (source, {"where": "colour = 'red'"}, "the filter cannot be used: .*`colour`"),
            (source, {"where": "routing_key ="}, "the filter cannot be used: .*Syntax error"),
            (source, {"exchange": "not-there"}, "no exchange 'not-there' in vhost '/'"),
            (no_message, {"exchange": ""}, "cannot be replayed: column 'body' is missing"),
            (no_body, {}, "column 'body' is null"),
            (tmp_path / "empty", {}, "is no table"),
            (tmp_path / "torn", {}, "is no Parquet file"),
        ):
            with pytest.raises(JobError, match=f"^[^\n]*{text}[^\n]*$"):
                replay([place], uri=broker.uri, dry_run=dry_run, spark=spark, **arguments)  # type: ignore[arg-type]  # a mixed bag
    assert sorted(tmp_path.iterdir()) == before
    assert taken(broker, "eu") == []
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.kill
def test_each_message_once_although_the_program_is_killed(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """After a SIGKILL of the command, the same command publishes the rest: each message once."""
    rows = spark.range(3000).selectExpr(
        "cast(id as string) body",
        "'' exchange",
        "'eu' routing_key",
        "cast(id as string) message_id",
        "id seq",
    )
    rows.repartition(4).write.parquet(str(tmp_path / "source"))
    environment = dict(os.environ, WARREN_URI=broker.uri)
    command = [
        sys.executable,
        "-m",
        "warrenmq",
        "pipeline",
        "replay",
        str(tmp_path / "source"),
        "--json",
    ]
    with (tmp_path / "log").open("w") as log:
        first = subprocess.Popen(
            [*command, "--rate", "500"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            await_messages(broker, first, tmp_path / "log", 700)
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
    second = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert second.returncode == 0, second.stderr.decode()[-4000:]
    assert b'"messages": 3000' in second.stdout
    assert ids(taken(broker, "eu")) == list(range(3000))


def await_messages(
    broker: BrokerProcess, app: "subprocess.Popen[bytes]", log: Path, count: int
) -> None:
    """Return when the queue `eu` has `count` messages."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        while channel.queue_declare("eu", passive=True).method.message_count < count:
            assert app.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)
