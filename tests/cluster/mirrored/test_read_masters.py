"""A mirrored queue that a reader group reads, on real nodes: its master dies by SIGKILL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.protocol.requests import (
    Ack,
    Acked,
    GroupOpened,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
)
from warrenmq.vocabulary.error_codes import DATA_LOSS

pytestmark = [pytest.mark.kill, pytest.mark.slow]

POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
PERSISTENT = pika.BasicProperties(delivery_mode=2)
QUEUE = b"ha1"
COUNT = 200
# Messages that the group reserves, and of these, messages that it acks before the death.
RESERVED = 100
ACKED = 10
# How long a reserve waits for the first of them.
WAIT_MS = 10_000
# Seq ids of one slice of a plan, more than a range has.
MANY = 1 << 40


@pytest.fixture
def pair(tmp_path: Path, own_etcd: EtcdServer) -> Iterator[tuple[ClusterNode, ClusterNode]]:
    """Two nodes; the first is the master of QUEUE, which has COUNT messages."""
    with ClusterNodes(tmp_path, own_etcd.url, "n1", "n2") as cluster:
        one, two = cluster.nodes
        assert one.ctl("set_policy", "all", "^ha", POLICY).code == 0
        with channels([one]) as [channel]:
            channel.queue_declare(QUEUE.decode(), durable=True)
            for number in range(COUNT):
                channel.basic_publish("", QUEUE.decode(), b"%d" % number, PERSISTENT)
        yield one, two


def open_group(client: AdminClient, may_rebind: bool = False) -> tuple[int, int]:
    """Open the group; returns its epoch and the incarnation of its queue."""
    opened = client.request(OpenGroup("g", [QUEUE], may_rebind=may_rebind), GroupOpened)
    return opened.epoch, opened.members[0].incarnation


def reserve(client: AdminClient, epoch: int, incarnation: int) -> int:
    """Reserve RESERVED messages from the first one on; returns the end of their range."""
    # A new master hands out nothing before it has heard of its mirrors.
    asked = Reserve("g", epoch, {incarnation: 0}, RESERVED, 1 << 20, acks=False, wait_ms=WAIT_MS)
    end = client.request(asked, Reserved).members[0].end
    plan = client.request(PlanRange("g", epoch, incarnation, 0, end, MANY), RangePlan)
    assert sum(part.message_count for part in plan.slices) == RESERVED
    return end


def loses(request: Callable[[], object]) -> bool:
    """Whether a request is refused because the group has lost what it was reading."""
    with pytest.raises(AdminRefusedError) as refused:
        request()
    return refused.value.code == DATA_LOSS


def is_led_by(node: ClusterNode, leader: ClusterNode, mirrors: int) -> bool:
    columns = ("name", "leader", "synchronised_slave_pids", "messages_ready")
    [[_name, name, synced, ready]] = node.table("list_queues", *columns)
    return (name, synced.count("<")) == (leader.name, mirrors) and int(ready) > 0


def test_a_killed_master_comes_back_as_a_mirror_and_leads_again(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    """What the group had reserved is in the queue, and the group is told that it let go of it."""
    one, two = pair
    with AdminClient(NodeAddress(one.uri)) as client:
        epoch, incarnation = open_group(client)
        end = reserve(client, epoch, incarnation)
        client.request(Ack("g", epoch, {incarnation: end - RESERVED + ACKED}), Acked)
    one.kill()
    one.start()
    eventually(lambda: is_led_by(two, two, 1), "the killed master is a mirror in sync")
    late = Ack("g", epoch, {incarnation: end})
    with AdminClient(NodeAddress(one.uri)) as client:
        assert loses(lambda: client.request(late, Acked))
    assert two.ctl("drain").code == 0
    eventually(lambda: is_led_by(two, one, 1), "the first node is the master again")
    with AdminClient(NodeAddress(one.uri)) as client:
        assert loses(lambda: client.request(late, Acked))
        assert loses(lambda: open_group(client))
        epoch, incarnation = open_group(client, may_rebind=True)
        end = reserve(client, epoch, incarnation)
        client.request(Ack("g", epoch, {incarnation: end}), Acked)
    with channels([one]) as [channel]:
        for number in range(ACKED + RESERVED, COUNT):
            method, _properties, body = channel.basic_get(QUEUE.decode(), auto_ack=True)
            assert method is not None and body == b"%d" % number
        assert channel.basic_get(QUEUE.decode())[0] is None
    assert not one.errors() and not two.errors()


def test_a_killed_master_without_mirrors_leads_again_alone(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    """The group has let go of the queue then, too: all its messages are ready."""
    one, two = pair
    two.kill()
    with AdminClient(NodeAddress(one.uri)) as client:
        epoch, incarnation = open_group(client)
        end = reserve(client, epoch, incarnation)
    one.kill()
    one.start()
    eventually(lambda: is_led_by(one, one, 0), "the node is the master again")
    with AdminClient(NodeAddress(one.uri)) as client:
        assert loses(lambda: client.request(Ack("g", epoch, {incarnation: end}), Acked))
        epoch, incarnation = open_group(client, may_rebind=True)
        assert reserve(client, epoch, incarnation) == end
    assert not one.errors()
