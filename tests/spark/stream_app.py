"""Streams queues into Parquet until it is killed.

`python -m tests.spark.stream_app URI QUEUES DIRECTORY [once]` restarts its query when that fails,
as a supervisor would, except after data loss. With `once` it drains the queues, writes the ids that
Spark finds in the Parquet files to DIRECTORY/ids.json, and ends.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import warrenmq.spark
from tests.support.spark.settings import FAST_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    # Runs a query: on a session, with URI, queues and directory, once or for ever.
    RunQuery: TypeAlias = Callable[[SparkSession, str, str, Path, bool], None]

# Most restarts of the query: each may fail at once while the broker is away, which is longer than
# the broker takes to start.
RESTARTS_MAX = 40
RESTART_PAUSE_S = 1.0
ID_BYTES = 12


def main(run: "RunQuery", columns: Sequence[str]) -> None:
    """The program: `run` runs the query, and `columns` are those of the rows in ids.json."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, queues, directory = sys.argv[1:4]
    is_once = sys.argv[4:] == ["once"]
    spark = warrenmq.spark.session("stream_app", settings=FAST_SETTINGS, is_light=True)
    for _ in range(RESTARTS_MAX):
        try:
            run(spark, uri, queues, Path(directory), is_once)
            break
        except Exception as error:  # restart the query after any effect of a kill
            sys.stderr.write(f"the query failed: {str(error)[:2000]}\n")
            if "data loss" in str(error):
                raise
            time.sleep(RESTART_PAUSE_S)
    else:
        sys.exit("the query failed too often")
    rows = spark.read.parquet(str(Path(directory, "out"))).select(*columns).collect()
    found = [list(row) for row in rows]
    Path(directory, "ids.json").write_text(json.dumps(found, default=str))


def run_query(spark: "SparkSession", uri: str, queues: str, directory: Path, is_once: bool) -> None:
    """Run the query until the queues are drained, or for ever."""
    stream = (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queues", queues)
        .option("group", "stream-app")
        .option("maxMessagesPerTrigger", 10_000 if is_once else 1000)
        .option("minPartitions", 4)
        .option("longPollMs", 500)
        .load()
        .selectExpr("queue", "seq", f"CAST(substr(body, 1, {ID_BYTES}) AS string) AS id", "size")
    )
    writer = (
        stream.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start() if is_once else writer.start()
    query.awaitTermination()


def end_with(parent: int) -> None:
    """End this program when the process `parent` ends: a killed test run must leave no JVM behind.

    The program has its own process group, so killing the group of the test run does not reach it.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(run_query, ("queue", "seq", "id"))
