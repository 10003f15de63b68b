"""Streams metrics into Parquet until it is killed; tests/spark/stream_app.py has the arguments."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.stream_app import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_query(spark: "SparkSession", uri: str, queues: str, directory: Path, is_once: bool) -> None:
    """Run the query until all samples are read, or for ever."""
    stream = spark.readStream.format("warren_metrics").option("uri", uri).load()
    writer = (
        stream.withColumn("ms", (stream.time.cast("double") * 1000).cast("bigint"))
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start() if is_once else writer.start()
    query.awaitTermination()


if __name__ == "__main__":
    main(run_query, ("ms", "queue", "group", "metric", "value", "increase", "seconds"))
