"""Mirrored queues on three real nodes: a master dies by SIGKILL."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer

pytestmark = [pytest.mark.kill, pytest.mark.slow]

POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
PERSISTENT = pika.BasicProperties(delivery_mode=2)
COUNT = 200


@pytest.fixture
def trio(tmp_path: Path, own_etcd: EtcdServer) -> Iterator[ClusterNodes]:
    with ClusterNodes(tmp_path, own_etcd.url, "n1", "n2", "n3") as cluster:
        assert cluster.nodes[0].ctl("set_policy", "all", "^ha", POLICY).code == 0
        yield cluster


def copies_of(node: ClusterNode, queue: str) -> tuple[str, int, int]:
    """The master's pid, and how many mirrors there are and are synchronised, as `node` sees it."""
    columns = ("name", "pid", "slave_pids", "synchronised_slave_pids")
    for name, pid, all_mirrors, synced in node.table("list_queues", *columns):
        if name == queue:
            return pid, all_mirrors.count("<"), synced.count("<")
    raise AssertionError(f"{queue} is not listed")


def test_a_confirmed_message_survives_its_master(trio: ClusterNodes) -> None:
    with channels(trio.nodes[:1]) as [channel]:
        channel.queue_declare("ha1", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "ha1", b"%d" % number, PERSISTENT)
    trio.nodes[0].kill()
    with channels(trio.nodes[1:2]) as [channel]:

        def is_served() -> bool:
            declared = channel.queue_declare("ha1", durable=True)
            return int(declared.method.message_count) == COUNT

        eventually(is_served, "a mirror takes over")
        for number in range(COUNT):
            method, _properties, body = channel.basic_get("ha1", auto_ack=True)
            assert method is not None and method.redelivered, "it may have been delivered"
            assert body == b"%d" % number
    promotions = [
        line
        for node in trio.nodes
        for line in node.log_path.read_text().splitlines()
        if "Promoting" in line
    ]
    assert len(promotions) == 1, "only the mirror is promoted"
    assert f"the leader on node '{trio.nodes[0].name}' has died or is silent" in promotions[0]


def test_a_mirrored_queue_expires_on_all_nodes(trio: ClusterNodes) -> None:
    with channels(trio.nodes[:1]) as [channel]:
        channel.queue_declare("ha2", durable=True, arguments={"x-expires": 300})
        channel.queue_declare("ha3", durable=True, auto_delete=True)
        channel.basic_cancel(channel.basic_consume("ha3", lambda *_: None))
    eventually(
        lambda: not any(node.table("list_queues", "name") for node in trio.nodes),
        "both queues are gone",
    )
