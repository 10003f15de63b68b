"""Jobs on mirrored queues whose master dies in the midst, and what its directory then tells."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.awaiting import eventually
from tests.support.command_line import warren_json
from warrenmq.pipeline import Step, archive, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.cluster.trio import ClusterNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

POLICY = '{"ha-mode": "all", "ha-sync-mode": "automatic"}'
MESSAGES = 600


class KillAfterFirstBatch:
    """A job's progress that kills a node as soon as the archive has messages."""

    def __init__(self, node: "ClusterNode") -> None:
        self._node = node
        self.left_at_kill = -1

    def show(self, step: Step) -> None:
        if step.name == "archiving" and step.done and self.left_at_kill < 0:
            self.left_at_kill = MESSAGES - step.done
            self._node.kill()


def test_an_archive_goes_on_at_the_next_master(
    spark: "SparkSession", trio: "list[ClusterNode]", tmp_path: Path
) -> None:
    """The dead master is also the node that the job knows; each message is archived once.

    The directories then tell of which epoch each copy is: the dead master does not know the epoch
    of the next one.
    """
    import pyarrow.parquet as pq

    from tests.spark.cluster.over_nodes import DURABLE
    from tests.support.cluster.trio import channels

    assert trio[0].ctl("set_policy", "mirrored", "^mirrored", POLICY).code == 0
    bodies = [b"m%d" % number for number in range(MESSAGES)]
    with channels(trio) as opened:
        opened[0].queue_declare("mirrored", durable=True)
        opened[1].queue_declare("unmirrored", durable=True)
        eventually(lambda: len(_copies(trio[1])) == 2, "the queue has two mirrors in sync")
        for number, body in enumerate(bodies):
            queue = "mirrored" if number % 2 else "unmirrored"
            opened[1].basic_publish("", queue, body, DURABLE)
    progress = KillAfterFirstBatch(trio[0])
    try:
        result = archive(
            tmp_path / "archive",
            uri=trio[0].uri,
            queues=["mirrored", "unmirrored"],
            max_messages=60,
            spark=spark,
            progress=progress,
        )
        assert progress.left_at_kill > 0
        assert (result.messages, result.lag_messages) == (MESSAGES, 0)
        read = pq.read_table(tmp_path / "archive", columns=["body"])["body"].to_pylist()
        assert sorted(read) == sorted(bodies)
        old, new = (_told(node, tmp_path / node.name) for node in trio[:2])
        assert old["birth"] == new["birth"] > 0
        assert old["epoch"] < new["epoch"]
        assert {old["role"], new["role"], old["in_sync"], new["in_sync"]} == {"unknown"}
    finally:
        trio[0].start()
        trio[1].ctl("clear_policy", "mirrored")


class KillInTheMiddle:
    """A job's progress that kills a node when some of the messages are published, not all."""

    def __init__(self, node: "ClusterNode") -> None:
        self._node = node
        self.done_at_kill = 0

    def show(self, step: Step) -> None:
        if step.name == "publishing" and 0 < step.done < MESSAGES and not self.done_at_kill:
            self.done_at_kill = step.done
            self._node.kill()


def test_a_replay_goes_on_through_another_node(trio: "list[ClusterNode]", tmp_path: Path) -> None:
    """The node of the URI dies in the middle, with the master of a queue; each row comes once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.spark.cluster.over_nodes import drained
    from tests.support.cluster.trio import channels

    queues = ["replayed-mirrored", "replayed-plain"]
    assert trio[0].ctl("set_policy", "replayed", "^replayed-mirrored$", POLICY).code == 0
    with channels(trio) as opened:
        for queue, channel in zip(queues, opened, strict=False):
            channel.queue_declare(queue, durable=True)
    eventually(lambda: len(_copies(trio[1], queues[0])) == 2, "the queue has two mirrors in sync")
    bodies = [b"m%d" % number for number in range(MESSAGES)]
    rows = {
        "body": bodies,
        "exchange": [""] * MESSAGES,
        "routing_key": [queues[number % 2] for number in range(MESSAGES)],
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    progress = KillInTheMiddle(trio[0])
    try:
        result = replay(
            [tmp_path / "rows.parquet"],
            uri=trio[0].uri,
            # Several batches.
            rate=MESSAGES / 4,
            engine="local",
            progress=progress,
        )
        assert 0 < progress.done_at_kill < MESSAGES
        assert (result.published, result.unroutable) == (MESSAGES, 0)
        # The other nodes still serve both queues.
        for number, queue in enumerate(queues):
            assert list(drained(trio[1], queue)) == bodies[number::2]
    finally:
        trio[0].start()
        trio[1].ctl("clear_policy", "replayed")


def _copies(node: "ClusterNode", queue: str = "mirrored") -> list[str]:
    rows = node.table("list_queues", "name", "synchronised_slave_pids")
    (pids,) = [pids for name, pids in rows if name == queue]
    return [pid for pid in pids.strip("[]").split(",") if pid]


def _told(node: "ClusterNode", copied: Path) -> dict[str, Any]:
    """What a copy of the node's directory tells of the queue, alike in report and table."""
    from warrenmq.offline.data_directory import opened
    from warrenmq.tables.metadata import metadata_rows

    shutil.copytree(node.directory / "data", copied)
    report = warren_json("store", "report", str(copied))
    assert report["member"]["node"] == node.name
    told = {queue["name"]: queue["copy"] for queue in report["vhosts"][0]["queues"]}
    with opened(copied) as data:
        rows = metadata_rows(data, "/")
    table = {row["name"]: json.loads(row["json"]) for row in rows if row["kind"] == "queue"}
    assert table["mirrored"]["copy"] == told["mirrored"]
    assert told.get("unmirrored") is None
    (member,) = [json.loads(row["json"]) for row in rows if row["kind"] == "cluster"]
    assert member == report["member"]
    found: dict[str, Any] = told["mirrored"]
    return found
