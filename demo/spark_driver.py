"""A Spark program as a user would write it: drain a queue into Parquet, then report on another.

`python -m demo.spark_driver DIRECTORY STREAMED_QUEUE REPORTED_QUEUE MESSAGES_PER_BATCH`; the
variable WARREN_URI holds the broker's URI. The demo kills the first run in the middle of the drain
and starts the program again; reader group and checkpoint keep the state. The program prints a line
for each phase it enters and writes its results to DIRECTORY/results.json.
"""

import sys
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from demo.corpus import EMBED_BYTES
from demo.spark_records import Kind, Row, SparkResults
from warrenmq.spark import session

GROUP = "stdlib-to-parquet"


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0])
    streamed_queue, reported_queue = arguments[1], arguments[2]
    messages_per_batch = int(arguments[3])
    spark = session("warren-demo")
    enter("drain")
    drain(spark, directory, streamed_queue, messages_per_batch)
    enter("verify")
    drained = rows(spark.read.parquet(str(directory / "parquet")))
    drain(spark, directory, streamed_queue, messages_per_batch)
    again = spark.read.parquet(str(directory / "parquet")).count() - len(drained)
    enter("report")
    reported = rows(spark.read.format("warren").option("queues", reported_queue).load())
    results = SparkResults(spark.version, drained, again, reported, kinds(spark, reported_queue))
    (directory / "results.json").write_bytes(msgspec.json.encode(results))
    spark.stop()
    return 0


def enter(phase: str) -> None:
    """Print the name of the next phase, which the demo reads."""
    print(phase, flush=True)


def drain(spark: SparkSession, directory: Path, queue: str, messages_per_batch: int) -> None:
    """Move the queue's present messages to Parquet: exactly once, despite kills and repeats."""
    stream = (
        spark.readStream.format("warren")
        .option("queues", queue)
        .option("group", GROUP)
        .option("maxMessagesPerTrigger", messages_per_batch)
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(directory / "parquet"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def rows(messages: DataFrame) -> list[Row]:
    """Return one row a message, in queue order."""
    # Header values are JSON text: the regular expression removes the quotes of the hash.
    found = messages.select(
        "seq",
        "message_id",
        f.length("body"),
        f.sha2("body", 256),
        f.regexp_replace(f.col("headers")["sha256"], '"', ""),
    )
    return [Row(*row) for row in found.orderBy("seq").collect()]


def kinds(spark: SparkSession, queue: str) -> list[Kind]:
    """Return figures of the queue by routing key, largest total first.

    The schema is the projection: the broker sends no bodies for it.
    """
    messages = (
        spark.read.format("warren")
        .schema("routing_key string, size int")
        .option("queues", queue)
        .load()
    )
    is_small = f.col("size") < EMBED_BYTES
    found = messages.groupBy("routing_key").agg(
        f.count("*"), f.sum("size"), f.count_if(is_small), f.count_if(~is_small), f.max("size")
    )
    return [Kind(*row) for row in found.orderBy(f.sum("size").desc(), "routing_key").collect()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
