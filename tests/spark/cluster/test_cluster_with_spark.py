"""A real Spark and a cluster of real nodes: a home is killed in the midst of a stream."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.cluster.trio import ClusterNode

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_stream_survives_the_kill_of_a_home(
    spark: "SparkSession", trio: "list[ClusterNode]", tmp_path: Path
) -> None:
    """Parquet has each message of three nodes once; the options name another node."""
    from tests.spark.cluster.over_nodes import declare, publish
    from tests.support.awaiting import eventually

    declare(trio, "spark")
    bodies = publish(trio[0], "spark", 0, 300)
    stream = (
        spark.readStream.format("warren")
        .option("uri", trio[0].uri)
        .option("queuesPattern", "spark.")
        .option("group", "spark")
        .option("maxMessagesPerTrigger", 30)
        .option("longPollMs", 300)
        .load()
    )
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        commits = tmp_path / "checkpoint" / "commits"
        eventually(lambda: (commits / "1").exists(), "two batches are committed")
        trio[1].kill()
        trio[1].start()
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row["body"]) for row in rows) == sorted(bodies)
