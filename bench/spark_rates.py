"""`python -m bench spark-rates`: rows a second of the sink and of a stream, beside an archive.

In each round Spark writes rows with headers and properties, all different, into a queue (sink), and
streams the queue into Parquet with all columns. Then it fills the queue again, and the job
`archive` moves it to Parquet. All of it runs in one session, which is warm: a small round comes
first and does not count. Figures are medians over the rounds. The CPU time of a row is split by
process: the broker, Spark's JVM, its Python workers ("tasks") and the driver's Python.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.archive import kind_of
from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError
from bench.scenario import Scenario, depth, remove, run_scenario
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import DeleteGroup, GroupDeleted
from warrenmq.pipeline import archive
from warrenmq.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUE: Final = "bench-spark"
GROUP: Final = "bench-spark"
WARM_UP_ROWS: Final = 20_000
KINDS: Final = ("broker", "JVM", "tasks", "program")
# What each row is made of, beside its body; `id` counts the rows.
ROW: Final = (
    "'orders' AS type",
    "'application/json' AS content_type",
    "CAST(id AS STRING) AS message_id",
    "timestamp_seconds(1700000000 + id) AS timestamp",
    """map('trace', concat('"', md5(CAST(id AS STRING)), '"'),
        'retry', CAST(id % 3 AS STRING), 'tenant', '"acme"') AS headers""",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="of a round")
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES", help="of a body")
    parser.add_argument("--batch", type=int, metavar="N", help="the stream's maxMessagesPerTrigger")


def main(arguments: list[str]) -> int:
    return run_scenario("spark-rates", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    spark = session("bench", settings={"spark.sql.warehouse.dir": str(scenario.directory / "w")})
    try:
        with scenario.running(WarrenBroker) as broker:
            one_round(scenario, spark, broker, WARM_UP_ROWS)
            rows = scenario.options.rows
            rounds = [
                one_round(scenario, spark, broker, rows) for _ in range(scenario.options.rounds)
            ]
            for name in rounds[0]:
                found = [each[name] for each in rounds]
                unit = "us/row" if name.partition(": ")[2] in KINDS else "rows/s"
                scenario.say(f"{name}: {', '.join(f'{value:,.1f}' for value in found)}")
                scenario.add(broker, name, statistics.median(found), unit)
            remove(broker, QUEUE)
    finally:
        spark.stop()


def one_round(
    scenario: Scenario, spark: "SparkSession", broker: Broker, rows: int
) -> dict[str, float]:
    """The rates and costs of one round by name."""
    place = scenario.directory / "round"
    place.mkdir()
    scenario.fill(broker, QUEUE, 1)
    stream(scenario, spark, broker, place / "emptied")
    table = str(place / "rows")
    bodies = f"CAST(repeat('x', {scenario.options.size}) AS BINARY) AS body"
    made = spark.range(0, rows, 1, len(os.sched_getaffinity(0))).selectExpr(*ROW, bodies)
    made.write.parquet(table)
    source = spark.read.parquet(table)
    found = timed("sink", rows, broker, lambda: sink(source, broker))
    found |= timed(
        "stream", rows, broker, lambda: stream(scenario, spark, broker, place / "streamed")
    )
    if spark.read.parquet(str(place / "streamed")).count() != rows or depth(broker, QUEUE):
        raise MeasureError("the stream has not read all rows")
    sink(source, broker)
    end(broker, GROUP)
    found |= timed("archive", rows, broker, lambda: archived(spark, broker, place / "archived"))
    end(broker, GROUP)
    shutil.rmtree(place)
    return found


def archived(spark: "SparkSession", broker: Broker, target: Path) -> None:
    archive(target, uri=broker.uri, queues=[QUEUE], group=GROUP, spark=spark)


def end(broker: Broker, group: str) -> None:
    """Delete a reader group: the next round reads with another checkpoint."""
    with AdminClient(NodeAddress(broker.uri)) as client:
        client.request(DeleteGroup(group), GroupDeleted)


def sink(rows: "DataFrame", broker: Broker) -> None:
    writer = rows.write.format("warren").option("uri", broker.uri)
    writer.option("exchange", "").option("routingKey", QUEUE).mode("append").save()


def stream(scenario: Scenario, spark: "SparkSession", broker: Broker, target: Path) -> None:
    reader = spark.readStream.format("warren").option("uri", broker.uri)
    reader = reader.option("queues", QUEUE).option("group", GROUP)
    if scenario.options.batch:
        reader = reader.option("maxMessagesPerTrigger", str(scenario.options.batch))
    writer = reader.load().writeStream.format("parquet").option("path", str(target))
    writer = writer.option("checkpointLocation", str(target.with_name(f"{target.name}-checkpoint")))
    writer.trigger(availableNow=True).start().awaitTermination()


def timed(name: str, rows: int, broker: Broker, work: Callable[[], Any]) -> dict[str, float]:
    """Do the work; its rate, and the CPU time of a row by kind of process."""
    before, begun_s = cpu_seconds(broker), time.monotonic()
    work()
    lasted_s, after = time.monotonic() - begun_s, cpu_seconds(broker)
    costs = {f"{name}: {kind}": 1e6 * (after[kind] - before[kind]) / rows for kind in KINDS}
    return {name: rows / lasted_s} | costs


def cpu_seconds(broker: Broker) -> dict[str, float]:
    """CPU seconds so far of the broker and of this process and its children, by kind.

    Workers that have ended are counted in the process that forked them.
    """
    found = dict.fromkeys(KINDS, 0.0) | {"broker": broker.usage().cpu_s}
    root = psutil.Process()
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            command = process.cmdline()
            # A process that has just ended has no command line.
            kind = kind_of(command) if command else "program"
            if kind == "program" and process != root:
                continue  # It is the broker, which is counted above, or it has ended.
            found[kind] += times.user + times.system
            if kind == "tasks":
                found[kind] += times.children_user + times.children_system
    return found
