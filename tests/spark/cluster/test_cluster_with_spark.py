"""A real Spark and a cluster of real nodes, of which some are killed in the midst of a query."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.cluster.trio import ClusterNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_query_from_and_to_queues_of_all_nodes_survives_kills(
    spark: "SparkSession", trio: "list[ClusterNode]", tmp_path: Path
) -> None:
    """Each message of three queues is in three others once; homes of both sides are killed."""
    from tests.spark.cluster.over_nodes import declare, drained, fan, publish
    from tests.support.awaiting import eventually

    declare(trio, "spark")
    fan(trio, "copy")
    bodies = publish(trio[0], "spark", 0, 240)
    stream = (
        spark.readStream.format("warren")
        .option("uri", trio[0].uri)
        .option("queuesPattern", "spark.")
        .option("group", "spark")
        .option("maxMessagesPerTrigger", 60)
        .option("longPollMs", 300)
        .load()
        .select("body")
    )
    writer = (
        stream.writeStream.format("warren")
        .option("uri", trio[2].uri)
        .option("exchange", "copy")
        .option("routingKey", "")
    )
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        for batch, victim in (("0", trio[1]), ("1", trio[2])):
            while not (tmp_path / "commits" / batch).exists():
                assert not query.awaitTermination(1)
            victim.kill()
            victim.start()
        query.processAllAvailable()
    finally:
        query.stop()
    # The last batch is committed, and may still be on its way to the queues.
    wanted = [[f"copy{number}", "240"] for number in (1, 2, 3)]
    eventually(
        lambda: all(row in trio[0].table("list_queues", "name", "messages") for row in wanted),
        "all are moved",
        0.1,
    )
    for number, node in enumerate(trio, 1):
        assert sorted(drained(node, f"copy{number}")) == sorted(bodies)
