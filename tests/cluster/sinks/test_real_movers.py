"""Sinks of a cluster of real nodes: a batch that two nodes have, and a mover that is killed."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.staged import staged_message
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    DescribeSink,
    FinishStage,
    OpenStage,
    SinkStatus,
    StageCopies,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
)

MESSAGES = 20_000
# Messages of one request.
_BLOCK = 2000


@pytest.fixture(scope="module")
def trio(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """Three running nodes."""
    directory = tmp_path_factory.mktemp("movers")
    with ClusterNodes(directory, etcd.url, "n1", "n2", "n3", cluster="movers") as cluster:
        yield cluster.nodes


def stage(client: AdminClient, sink: str, batch: int, queue: str, bodies: list[bytes]) -> int:
    """Stage `bodies` for a queue; returns the id of the stage."""
    opened = client.request(OpenStage(sink, batch), StageOpened)
    messages = [staged_message(body, queue.encode()) for body in bodies]
    for first in range(0, len(messages), _BLOCK):
        block = memoryview(b"".join(messages[first : first + _BLOCK]))
        client.request(StageMessages(opened.stage, block), Staged)
    client.request(FinishStage(opened.stage, len(messages)), StageFinished)
    return opened.stage


def staged_commit(
    nodes: list[ClusterNode], sink: str, batch: int, queue: str, bodies: list[bytes]
) -> CommitBatch:
    """Stage the batch at all `nodes`; returns the commit for the first of them."""
    stages: list[int] = []
    for node in nodes:
        with AdminClient(NodeAddress(node.uri)) as client:
            stages.append(stage(client, sink, batch, queue, bodies))
    copies = [StageCopies(node.name, [id]) for node, id in zip(nodes, stages, strict=True)]
    return CommitBatch(sink, batch, stages[:1], copies=copies[1:])


def status(node: ClusterNode, sink: str) -> SinkStatus:
    """What a node says of a sink."""
    with AdminClient(NodeAddress(node.uri)) as client:
        return client.request(DescribeSink(sink), SinkStatus)


def drained(node: ClusterNode, queue: str) -> list[bytes]:
    """All messages of a queue."""
    with channels([node]) as (channel,):
        count = channel.queue_declare(queue, passive=True).method.message_count
        delivered = itertools.islice(channel.consume(queue, auto_ack=True), count)
        found = [body for _method, _properties, body in delivered]
        channel.cancel()
        return found


@pytest.mark.slow
@pytest.mark.kill
def test_another_node_goes_on_when_the_mover_is_killed(trio: list[ClusterNode]) -> None:
    """The batch is in the queue of a third node once, in order, before the mover is back."""
    one, two, three = trio
    bodies = [b"%d" % number for number in range(MESSAGES)]
    with channels([three]) as (channel,):
        channel.queue_declare("far", durable=True)
    commit = staged_commit([one, two], "moved", 0, "far", bodies)
    with AdminClient(NodeAddress(one.uri)) as client:
        assert client.request(commit, BatchCommitted) == BatchCommitted(False, False)
    assert status(three, "moved").nodes == [one.name, two.name]
    eventually(lambda: status(one, "moved").messages_left < MESSAGES, "some are moved", 0.001)
    one.kill()
    again = CommitBatch("moved", 0, [], wait_ms=60_000)
    with AdminClient(NodeAddress(two.uri)) as client:
        assert client.request(again, BatchCommitted, 60) == BatchCommitted(True, True)
    assert drained(three, "far") == bodies
    one.start()
    idle = SinkStatus("moved", 0, False, 0, 0, 0)
    eventually(
        lambda: [status(node, "moved") for node in trio] == [idle] * 3,
        "no node has a stage any more",
    )
