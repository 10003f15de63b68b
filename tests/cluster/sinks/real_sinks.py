"""Sinks of a cluster of real nodes: batches that several nodes have."""

import itertools

from tests.support.brokers.staged import staged_message
from tests.support.cluster.trio import ClusterNode, channels
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import (
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

# Messages of one request.
_BLOCK = 2000


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
