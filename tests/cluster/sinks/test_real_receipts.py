"""A batch of a sink goes into a mirrored queue of real nodes, whose master is killed meanwhile."""

import pytest

from tests.cluster.sinks.real_sinks import drained, staged_commit, status
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, channels
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import BatchCommitted, CommitBatch

POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
MESSAGES = 10_000
# Where the master is, among the mover, the other node with the stages, and a third one.
MASTERS = {"another node": 2, "the mover": 0}

pytestmark = [pytest.mark.slow, pytest.mark.kill]


def is_in_sync(node: ClusterNode, queue: str) -> bool:
    """Whether both mirrors of a queue are in sync."""
    rows = node.table("list_queues", "name", "synchronised_slave_pids")
    return any(name == queue and pids.count("<") == 2 for name, pids in rows)


@pytest.mark.parametrize("master", MASTERS)
def test_each_message_is_in_a_mirrored_queue_once_whoever_dies(
    trio: list[ClusterNode], master: str
) -> None:
    """In order, too; the next master knows what it has got as a mirror."""
    queue = f"ha{MASTERS[master]}"
    victim = trio[MASTERS[master]]
    assert trio[0].ctl("set_policy", "all", "^ha", POLICY).code == 0
    with channels([victim]) as (channel,):
        channel.queue_declare(queue, durable=True)
    eventually(lambda: is_in_sync(victim, queue), "the mirrors are in sync")
    bodies = [b"%d" % number for number in range(MESSAGES)]
    commit = staged_commit(trio[:2], queue, 0, queue, bodies)
    with AdminClient(NodeAddress(trio[0].uri)) as client:
        assert client.request(commit, BatchCommitted) == BatchCommitted(False, False)
    eventually(lambda: status(trio[0], queue).messages_left < MESSAGES, "some are moved", 0.001)
    victim.kill()
    again = CommitBatch(queue, 0, [], wait_ms=60_000)
    with AdminClient(NodeAddress(trio[1].uri)) as client:
        assert client.request(again, BatchCommitted, 60) == BatchCommitted(True, True)
    victim.start()
    eventually(lambda: is_in_sync(trio[1], queue), "the killed node is in sync again")
    assert drained(trio[1], queue) == bodies
