"""The sums of a node are those of its listings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.control.totals import QUEUES_A_TURN, TotalsCalls
from warrenmq.admin.protocol.control import MONITORING, NEEDS, ControlReply, List, Rows
from warrenmq.admin.protocol.totals import DescribeTotals, MirrorSums, NodeTotals, VhostSums
from warrenmq.wire.methods import TxSelect, TxSelectOk

Listing = Literal["queues", "connections", "channels", "exchanges"]
LISTINGS = ("queues", "connections", "channels")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with messages of all kinds in queues of all kinds."""
    node = NodeThread(tmp_path)
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"plain")
    channel.declare(b"durable", durable=True)
    channel.declare(b"levels", durable=True, arguments=table(**{"x-max-priority": 2}))
    channel.declare(b"lazy", durable=True, arguments=table(**{"x-queue-mode": "lazy"}))
    for name in (b"plain", b"durable", b"levels", b"lazy"):
        channel.publish(name, b"transient")
        channel.publish(name, b"persistent one", PERSISTENT)
        channel.publish(name, bytes(9000), PERSISTENT)
        channel.get(name)
    channel.qos(7)
    channel.consume(b"plain")
    committing = peer.channel()
    committing.send(TxSelect())
    committing.expect(TxSelectOk)
    committing.qos(3, whole_channel=True)
    committing.ack(committing.get(b"durable").got.delivery_tag)
    committing.publish(b"plain", b"not committed")
    committing.count(b"plain")
    yield node
    peer.close()
    node.stop()


def listed_sums(client: AdminClient, what: Listing, columns: list[str]) -> dict[str, Any]:
    """The sums of the columns of a listing, and under its name the number of its rows."""
    request = List(what=what, columns=columns, vhost="/")
    rows = client.request(request, Rows).rows
    return {what: len(rows)} | {
        name: sum(column) for name, column in zip(columns, zip(*rows, strict=True), strict=True)
    }


def test_the_sums_are_those_of_the_listings(node: NodeThread) -> None:
    with AdminClient(NodeAddress(node.uri)) as client:

        def sums() -> NodeTotals:
            return client.request(DescribeTotals(), NodeTotals)

        def are_same() -> bool:
            found = msgspec.to_builtins(sums())
            queues, clients = found["queues"], found["clients"]
            of_queues = [name for name in queues if name not in LISTINGS]
            del clients["publishers"]
            of_channels = [name for name in clients if name not in {*LISTINGS, "send_pend"}]
            listed = listed_sums(client, "connections", ["send_pend"])
            listed |= listed_sums(client, "channels", of_channels)
            return bool(listed == clients and queues == listed_sums(client, "queues", of_queues))

        # Meanwhile the lazy queue may still page.
        eventually(are_same, "the same sums")
        totals = sums()
        exchanges = listed_sums(client, "exchanges", ["durable"])
    assert totals.queues.queues == 4 and totals.queues.messages_persistent > 0
    assert totals.clients.publishers == 2
    assert (totals.clients.acks_uncommitted, totals.clients.messages_uncommitted) == (1, 1)
    assert totals.mirrors == MirrorSums(0, 0, 0, 0)
    assert totals.vhosts == {
        "/": VhostSums(
            exchanges=exchanges["exchanges"],
            queues=4,
            consumers=1,
            messages=totals.queues.messages,
            messages_ready=totals.queues.messages_ready,
            messages_unacknowledged=totals.queues.messages_unacknowledged,
        )
    }


def test_each_turn_adds_a_slice(node: NodeThread) -> None:
    replies: list[ControlReply] = []
    steps: list[Any] = []

    def take() -> None:
        calls = TotalsCalls(node.node.broker, None, steps.append, replies.append)
        (vhost,) = node.node.broker.vhosts.values()
        (queue,) = [each for each in vhost.queues.values() if each.name == b"plain"]
        for number in range(2 * QUEUES_A_TURN):
            vhost.queues[b"other %d" % number] = queue
        calls.start(DescribeTotals())
        while steps:
            steps.pop()()
        for number in range(2 * QUEUES_A_TURN):
            del vhost.queues[b"other %d" % number]

    node.call(take)
    (totals,) = replies
    assert isinstance(totals, NodeTotals)
    assert totals.queues.queues == 4 + 2 * QUEUES_A_TURN


def test_sums_are_for_monitors() -> None:
    assert NEEDS[DescribeTotals] == MONITORING
