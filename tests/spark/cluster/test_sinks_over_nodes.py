"""Sinks whose messages go to queues of several nodes, each once, whatever is killed."""

import threading
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from tests.spark.cluster.over_nodes import drained, fan
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode
from tests.support.command_line import warren, warren_json
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import DescribeSink, ListSinks, SinkList, SinkStatus
from warrenmq.spark.sinks.commit import Committed, commit
from warrenmq.spark.sinks.options import SinkOptions, parse_sink_options
from warrenmq.spark.sinks.staging import StagedRows, stage_rows

# More than a few slices.
MESSAGES = 8000
# A body that takes more than one call between nodes.
LARGE = 200_000


def options_of(node: ClusterNode, exchange: str) -> SinkOptions:
    return parse_sink_options({"uri": node.uri, "exchange": exchange, "routingKey": ""})


def stage(options: SinkOptions, sink: str, partition: int, bodies: list[bytes]) -> StagedRows:
    return stage_rows(
        options, sink, 0, partition, iter([pa.RecordBatch.from_pydict({"body": bodies})])
    )


def status(node: ClusterNode, sink: str) -> SinkStatus:
    with AdminClient(NodeAddress(node.uri)) as client:
        return client.request(DescribeSink(sink), SinkStatus)


def check(trio: list[ClusterNode], name: str, bodies: list[bytes]) -> None:
    """Each queue has the messages of the batch once, in order, and no node keeps stages."""
    for number, node in enumerate(trio, 1):
        assert list(drained(node, f"{name}{number}")) == bodies, node.name
    for node in trio:
        with AdminClient(NodeAddress(node.uri)) as client:
            sinks = client.request(ListSinks(), SinkList).sinks
        # Jobs of other tests may have left stages at nodes that died; these keep them for an hour.
        (own,) = [each for each in sinks if name in each.sink]
        assert own.sink == name and own.stages == 0


def test_a_batch_reaches_queues_of_all_nodes_in_order(trio: list[ClusterNode]) -> None:
    """Messages of all sizes, by fanout and by name; a repeated commit changes nothing."""
    fan(trio, "fan")
    options = options_of(trio[0], "fan")
    bodies = [b"%d" % number for number in range(5000)]
    bodies[100] = bytes(LARGE)
    parts = [stage(options, "fan", 1, bodies[2500:]), stage(options, "fan", 0, bodies[:2500])]
    assert commit(options, "fan", 0, parts, True) is Committed.NOW
    # The other node with the stages knows that the batch is done.
    assert commit(options_of(trio[1], "fan"), "fan", 0, parts, True) is Committed.BEFORE
    check(trio, "fan", bodies)
    shown = warren_json("sink", "show", "fan", "--uri", trio[2].uri)
    assert (shown["batch"], shown["is_busy"]) == (0, False)
    assert warren("sink", "delete", "fan", "--uri", trio[1].uri).returncode == 0
    listed = warren_json("sink", "list", "--uri", trio[1].uri)
    assert "fan" not in [each["sink"] for each in listed["sinks"]]


KILLS: dict[str, Callable[[list[ClusterNode]], ClusterNode]] = {
    "the sink's node": lambda trio: trio[0],
    "the home of a queue": lambda trio: trio[1],
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_in_the_midst_of_a_move_loses_and_doubles_nothing(
    trio: list[ClusterNode], kill: str
) -> None:
    name = f"move{list(KILLS).index(kill)}"
    fan(trio, name)
    options = options_of(trio[0], name)
    bodies = [b"%d" % number for number in range(MESSAGES)]
    parts = [stage(options, name, 0, bodies)]
    commit(options, name, 0, parts, False)
    eventually(lambda: status(trio[0], name).messages_left < MESSAGES, "some are moved", 0.001)
    victim = KILLS[kill](trio)
    victim.kill()
    comes_back = threading.Thread(target=victim.start)
    comes_back.start()
    assert commit(options, name, 0, parts, True) in (Committed.BEFORE, Committed.EITHER)
    comes_back.join()
    check(trio, name, bodies)
