"""A node of a cluster starts without a free byte, as docs/operations/disk.md promises."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode
from tests.support.etcd import EtcdServer
from tests.support.stores.small_disk import SmallDisk, mounted_disk
from warrenmq.store.disk.space_reserve import RESERVE_BYTES, RESERVE_PATH

pytestmark = pytest.mark.kill

COUNT = 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The file system of the data directory of the first node."""
    (tmp_path / "a").mkdir()
    with mounted_disk(tmp_path / "a" / "data") as disk:
        yield disk


@pytest.fixture
def nodes(
    tmp_path: Path, disk: SmallDisk, etcd: EtcdServer, cluster_name: str
) -> Iterator[list[ClusterNode]]:
    """Two nodes of one cluster, started; the data of the first are on the small disk."""
    nodes = [ClusterNode(tmp_path / name, name, cluster_name, etcd.url) for name in ("a", "b")]
    try:
        for node in nodes:
            node.settings += ("disk_free_limit.absolute=0",)
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.kill()
    for node in nodes:
        log = node.log_path.read_text()
        assert "Traceback" not in log, log[-4000:]


def publish(node: ClusterNode, queue: str) -> None:
    """Declare `queue` at `node`, and publish messages to it, all confirmed."""
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for _ in range(COUNT):
            channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))


def has_in_sync(node: ClusterNode, queues: set[str]) -> bool:
    """Whether every one of the mirrored `queues` has a copy in sync beside its master."""
    rows = node.table("list_queues", "name", "synchronised_slave_pids")
    return queues == {name for name, copies in rows if copies not in ("", "[]")}


def test_starts_on_a_full_disk(nodes: list[ClusterNode], disk: SmallDisk) -> None:
    """With the reserve, without it after a kill, and without it after a clean stop.

    A node that has to store a new vhost says that it cannot start.
    """
    node, other = nodes
    reserve = disk.path / RESERVE_PATH
    policy = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    assert node.ctl("set_policy", "ha", "^m", policy).code == 0
    publish(node, "q")
    publish(node, "m")
    ends: list[Callable[[], object]] = [node.kill, node.kill, node.stop]
    for number, end in enumerate(ends):
        assert reserve.stat().st_size == (RESERVE_BYTES if number == 0 else 0)
        end()
        # The cluster goes on meanwhile; this queue's copy finds no room at the next start.
        publish(other, f"m{number}")
        disk.fill()
        node.start()
        # Local commands find the node.
        assert ["q", str(COUNT)] in node.table("list_queues", "name", "messages")
        assert not list(disk.path.glob(".*"))

    node.stop()
    assert other.ctl("add_vhost", "new").code == 0
    disk.fill()
    assert node.refused() == 1
    last_line = node.log_path.read_text().splitlines()[-1]
    assert "cannot start: " in last_line
    assert last_line.endswith("database or disk is full")

    disk.free()
    node.start()
    eventually(lambda: reserve.stat().st_size == RESERVE_BYTES, "the reserve is held again")
    mirrored = {"m", "m0", "m1", "m2"}
    eventually(lambda: has_in_sync(node, mirrored), "all copies are in sync")
    assert all(count == str(COUNT) for _, count in node.table("list_queues", "name", "messages"))
