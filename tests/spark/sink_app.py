"""Writes numbered rows into queues until it is killed.

`python -m tests.spark.sink_app URI QUEUES DIRECTORY [once]` restarts its query when that fails, as
a supervisor would. With `once` it finishes the batch that was begun, writes one more, and ends. A
body is `partition:number:`, followed by dots.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import warrenmq.spark
from tests.spark.stream_app import RESTART_PAUSE_S, RESTARTS_MAX, end_with
from tests.support.spark.settings import FAST_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000
PARTITIONS = 3
# Bytes of some bodies: their contents are not in the journal.
LARGE_BYTES = 5000


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, queues, directory = sys.argv[1:4]
    is_once = sys.argv[4:] == ["once"]
    spark = warrenmq.spark.session("sink_app", settings=FAST_SETTINGS, is_light=True)
    for _ in range(RESTARTS_MAX):
        try:
            run_query(spark, uri, queues.split(","), Path(directory), is_once)
            return
        except Exception as error:  # restart the query after any effect of a kill
            sys.stderr.write(f"the query failed: {str(error)[:2000]}\n")
            time.sleep(RESTART_PAUSE_S)
    sys.exit("the query failed too often")


def run_query(
    spark: "SparkSession", uri: str, queues: list[str], directory: Path, is_once: bool
) -> None:
    """Run the query until it is done, or for ever."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", PARTITIONS)
        .load()
        .selectExpr(
            "concat(spark_partition_id(), ':', value, ':') AS name",
            f"element_at(array({', '.join(repr(queue) for queue in queues)}), "
            f"cast(value % {len(queues)} AS int) + 1) AS routing_key",
            "value",
        )
        .selectExpr(
            f"rpad(name, if(value % 50 = 0, {LARGE_BYTES}, 100), '.') AS body", "routing_key"
        )
    )
    writer = (
        rows.writeStream.format("warren")
        .option("uri", uri)
        .option("exchange", "")
        .option("confirmTimeoutMs", 60_000)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    trigger = (
        writer.trigger(availableNow=True)
        if is_once
        else writer.trigger(processingTime="200 milliseconds")
    )
    trigger.start().awaitTermination()


if __name__ == "__main__":
    main()
