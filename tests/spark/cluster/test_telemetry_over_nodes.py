"""Events and metrics of three nodes, read through one of them."""

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pika

from tests.spark.telemetry.queries import Offset, Query, Row
from tests.support.awaiting import eventually
from tests.support.cluster.trio import channels
from warrenmq.spark.telemetry.events import WarrenEventsDataSource
from warrenmq.spark.telemetry.metrics import WarrenMetricsDataSource

if TYPE_CHECKING:
    from tests.support.cluster.trio import ClusterNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_metrics_come_from_all_nodes_that_run(trio: "list[ClusterNode]") -> None:
    """The node of the URI may be the one that is down."""
    source = WarrenMetricsDataSource({"uri": trio[0].uri, "metrics": "connections,messages_ready"})
    done: list[tuple[Offset, list[Row]]] = []
    query = Query(source, done)

    def nodes(found: list[Row]) -> set[str]:
        return {row["node"] for row in found if row["metric"] == "connections"}

    everybody = {node.name for node in trio}
    assert nodes(query.drain()) == everybody
    with channels(trio) as opened:
        for number, channel in enumerate(opened):
            channel.queue_declare(f"tm{number}", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", f"tm{number}", b"x", pika.BasicProperties(delivery_mode=2))
    found = query.drain()
    depths = {
        (row["node"], row["queue"]): row["value"]
        for row in found
        if row["metric"] == "messages_ready" and str(row["queue"]).startswith("tm")
    }
    assert depths == {(node.name, f"tm{number}"): 1.0 for number, node in enumerate(trio)}
    trio[0].kill()
    try:
        others = everybody - {trio[0].name}
        eventually(lambda: nodes(query.drain()) == others, "the others are asked", 0.2)
    finally:
        trio[0].start()
    eventually(lambda: nodes(query.drain()) == everybody, "all are asked again", 0.2)
    rows = [row for _, batch in done for row in batch]
    keys = [(row["time"], row["node"], row["queue"], row["metric"]) for row in rows]
    assert len(set(keys)) == len(keys)


def test_events_of_all_nodes_are_in_one_stream(trio: "list[ClusterNode]") -> None:
    """Each node tells of its queues, and its master of the copies of a mirrored queue."""
    given = {"uri": trio[0].uri, "group": "over", "events": "queue.#,mirror.#,user.created"}
    done: list[tuple[Offset, list[Row]]] = []
    found = Query(WarrenEventsDataSource(given), done).drain()
    with channels(trio) as opened:
        for number, channel in enumerate(opened):
            channel.queue_declare(f"te{number}", durable=True)
        opened[2].queue_declare("te-mirrored", durable=True)
    assert trio[1].ctl("set_policy", "te", "^te-mirrored$", '{"ha-mode":"all"}').code == 0
    assert trio[1].ctl("add_user", "te", "te").code == 0

    def told(event: str) -> list[tuple[str, str]]:
        return sorted((row["name"], row["node"]) for row in found if row["event"] == event)

    def has_all() -> bool:
        nonlocal found
        found += Query(WarrenEventsDataSource(given), done).drain()
        in_sync = [row for row in found if row["event"] == "mirror.synchronised"]
        return len(in_sync) >= 2 and len(told("user.created")) >= 3

    eventually(has_all, "all events are there", 0.2)
    created = [each for each in told("queue.created") if each[0].startswith("te")]
    wanted = [(f"te{number}", node.name) for number, node in enumerate(trio)]
    assert [each for each in created if each[0] in ("te0", "te1", "te2")] == sorted(wanted)
    # Each node puts the new user in force, and tells of it.
    assert told("user.created") == sorted(("te", node.name) for node in trio)
    masters = {row["node"] for row in found if row["event"] == "mirror.synchronised"}
    mirrors = [
        json.loads(dict(row["fields"])["mirror"])
        for row in found
        if row["event"] == "mirror.synchronised"
    ]
    assert len(masters) == 1 and sorted(mirrors) == sorted({node.name for node in trio} - masters)
    seqs = [row["seq"] for row in found]
    assert len(set(seqs)) == len(seqs)
