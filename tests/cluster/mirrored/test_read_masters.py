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
from warrenmq.vocabulary.error_codes import MOVED

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


def open_group(client: AdminClient) -> tuple[int, int]:
    """Open the group; returns its epoch and the incarnation of its queue."""
    opened = client.request(OpenGroup("g", [QUEUE]), GroupOpened)
    return opened.epoch, opened.members[0].incarnation


def reserve(client: AdminClient, epoch: int, incarnation: int, start: int, count: int) -> int:
    """Reserve `count` messages from `start` on; returns the end of their range."""
    # A new master hands out nothing before it has heard of its mirrors.
    asked = Reserve("g", epoch, {incarnation: start}, count, 1 << 20, acks=False, wait_ms=WAIT_MS)
    end = client.request(asked, Reserved).members[0].end
    plan = client.request(PlanRange("g", epoch, incarnation, start, end, MANY), RangePlan)
    assert sum(part.message_count for part in plan.slices) == count
    return end


def has_moved(request: Callable[[], object]) -> bool:
    """Whether a request is refused because another node has become the master of the queue."""
    with pytest.raises(AdminRefusedError) as refused:
        request()
    return refused.value.code == MOVED


def is_led_by(node: ClusterNode, leader: ClusterNode, mirrors: int) -> bool:
    columns = ("name", "leader", "synchronised_slave_pids", "messages_ready")
    [[_name, name, synced, ready]] = node.table("list_queues", *columns)
    return (name, synced.count("<")) == (leader.name, mirrors) and int(ready) > 0


def test_a_killed_master_comes_back_as_a_mirror_and_leads_again(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    """The reader goes on at either node with the epoch and the range that it has."""
    one, two = pair
    with AdminClient(NodeAddress(one.uri)) as client:
        epoch, incarnation = open_group(client)
        end = reserve(client, epoch, incarnation, 0, RESERVED)
        start = end - RESERVED + ACKED
        client.request(Ack("g", epoch, {incarnation: start}), Acked)
    one.kill()
    with AdminClient(NodeAddress(two.uri)) as client:
        eventually(lambda: is_led_by(two, two, 0), "the mirror is the master")
        assert reserve(client, epoch, incarnation, start, RESERVED - ACKED) == end
    one.start()
    eventually(lambda: is_led_by(two, two, 1), "the killed master is a mirror in sync")
    late = Ack("g", epoch, {incarnation: end})
    with AdminClient(NodeAddress(one.uri)) as client:
        assert has_moved(lambda: client.request(late, Acked))
    assert two.ctl("drain").code == 0
    eventually(lambda: is_led_by(two, one, 1), "the first node is the master again")
    with AdminClient(NodeAddress(one.uri)) as client:
        assert reserve(client, epoch, incarnation, start, RESERVED - ACKED) == end
        client.request(late, Acked)
    with channels([one]) as [channel]:
        for number in range(RESERVED, COUNT):
            method, _properties, body = channel.basic_get(QUEUE.decode(), auto_ack=True)
            assert method is not None and body == b"%d" % number
        assert channel.basic_get(QUEUE.decode())[0] is None
    assert not one.errors() and not two.errors()


def test_a_killed_master_without_mirrors_leads_again_alone(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    """The group has its range again, as on a lone node."""
    one, two = pair
    two.kill()
    with AdminClient(NodeAddress(one.uri)) as client:
        epoch, incarnation = open_group(client)
        end = reserve(client, epoch, incarnation, 0, RESERVED)
    one.kill()
    one.start()
    eventually(lambda: is_led_by(one, one, 0), "the node is the master again")
    with AdminClient(NodeAddress(one.uri)) as client:
        assert reserve(client, epoch, incarnation, 0, RESERVED) == end
        client.request(Ack("g", epoch, {incarnation: end}), Acked)
    assert not one.errors()
