"""A node measures how long its clients wait, and how long its disk takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import MONITORING, NEEDS
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies, Spread


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node that has just started."""
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def measured(node: NodeThread) -> NodeLatencies:
    """What the node has measured."""
    with AdminClient(NodeAddress(node.uri)) as client:
        return client.request(DescribeLatencies(), NodeLatencies)


def added(before: Spread, after: Spread) -> int:
    """How many values have come."""
    assert before.bounds == after.bounds and len(after.counts) == len(after.bounds) + 1
    return sum(after.counts) - sum(before.counts)


def test_batches_and_confirms_are_measured(node: NodeThread) -> None:
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"q", durable=True)
    channel.confirm_select()
    before = measured(node)
    assert sum(before.confirms.counts) == 0
    # The start has taken one.
    assert sum(before.checkpoints.counts) > 0 and before.checkpoints.total > 0
    for _ in range(3):
        channel.publish(b"q", b"waits for the disk", PERSISTENT)
        channel.event()
    after = measured(node)
    peer.close()
    assert added(before.confirms, after.confirms) == 3
    assert after.confirms.total >= after.syncs.total - before.syncs.total > 0
    assert added(before.syncs, after.syncs) == added(before.batch_bytes, after.batch_bytes) == 3
    assert after.batch_bytes.total - before.batch_bytes.total > 3 * len("waits for the disk")
    assert after.flushes.total >= after.syncs.total


def test_reads_of_paged_out_messages_are_measured(node: NodeThread) -> None:
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"lazy", arguments=table(**{"x-queue-mode": "lazy"}))
    channel.publish_each(b"lazy", *[bytes(100_000)] * 40)
    channel.drain(b"lazy")
    peer.close()
    assert sum(measured(node).reads.counts) > 0


def test_the_timers_of_the_loop_are_measured(node: NodeThread) -> None:
    def ticks() -> int:
        return sum(measured(node).loop_delays.counts)

    before = ticks()
    eventually(lambda: ticks() > before, "a tick")


def test_durations_are_for_monitors() -> None:
    assert NEEDS[DescribeLatencies] == MONITORING
