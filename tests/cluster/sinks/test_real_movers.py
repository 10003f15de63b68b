"""Sinks of a cluster of real nodes: a batch that two nodes have, and a mover that is killed."""

import pytest

from tests.cluster.sinks.real_sinks import drained, staged_commit, status
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, channels
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import BatchCommitted, CommitBatch, SinkStatus

MESSAGES = 20_000


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
