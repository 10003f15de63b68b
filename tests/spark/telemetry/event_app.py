"""Streams events into Parquet until it is killed; tests/spark/stream_app.py has the arguments."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.stream_app import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "event-app"


def run_query(spark: "SparkSession", uri: str, queues: str, directory: Path, is_once: bool) -> None:
    """Run the query until there are no more events, or for ever."""
    stream = (
        spark.readStream.format("warren_events")
        .option("uri", uri)
        .option("group", GROUP)
        .option("maxMessagesPerTrigger", 10_000 if is_once else 500)
        .option("minPartitions", 4)
        .option("longPollMs", 500)
        .load()
    )
    writer = (
        stream.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start() if is_once else writer.start()
    query.awaitTermination()


if __name__ == "__main__":
    main(run_query, ("event", "seq", "name"))
