"""A cluster of one node, which leaves it, and loses etcd."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.trio import ClusterNode, ClusterNodes, Printed, channels
from tests.support.etcd import EtcdServer
from warrenmq.cluster.metadata.gateway import EtcdGateway

CLUSTER = "one"


@pytest.fixture
def node(own_etcd: EtcdServer, tmp_path: Path) -> Iterator[ClusterNode]:
    """The only member of a cluster, with a durable queue."""
    with ClusterNodes(tmp_path, own_etcd.url, "n1", cluster=CLUSTER) as cluster:
        with channels(cluster.nodes) as (channel,):
            channel.queue_declare("q", durable=True)
        yield cluster.nodes[0]


def keys(etcd: EtcdServer) -> list[bytes]:
    gateway = EtcdGateway([etcd.url])
    found, _revision = gateway.read_range(f"/warren/{CLUSTER}/".encode())
    gateway.close()
    return [each.key for each in found]


def test_the_last_member_takes_the_cluster_with_it(node: ClusterNode, own_etcd: EtcdServer) -> None:
    assert node.ctl("add_user", "u", "p").code == 0
    assert node.ctl("stop_app").code == 0
    assert node.ctl("reset") == Printed("", "", 0)
    assert keys(own_etcd) == []
    # Nobody is there whom it could join; its start makes the cluster anew.
    assert node.ctl("join_cluster", "n2@127.0.0.1").code == 69
    assert node.ctl("start_app") == Printed("", "", 0)
    assert node.table("list_queues", "name") == []
    assert node.table("list_users") == [["guest", "[administrator]"]]
    with channels([node]) as (channel,):
        channel.queue_declare("q2", durable=True)
    assert node.stop() == 0
    node.start()
    assert node.table("list_queues", "name") == [["q2"]]


def test_without_etcd_only_force_resets(node: ClusterNode, own_etcd: EtcdServer) -> None:
    before = keys(own_etcd)
    there = node.ctl("check_metadata_store")
    assert there.code == 0 and there.out.endswith(f" answers node {node.name}\n"), there
    own_etcd.kill()
    away = node.ctl("check_metadata_store")
    assert away.code == 69 and f"etcd does not answer node {node.name}: " in away.err, away
    status = node.ctl("cluster_status")
    assert status.code == 0 and "\netcd does not answer: " in status.out
    data = json.loads(node.ctl("cluster_status", "--formatter", "json").out)
    assert data["etcd"]["failure"] and data["disk_nodes"] == data["running_nodes"] == [node.name]
    own_etcd.start()
    own_etcd.await_ready()
    assert node.ctl("stop_app").code == 0
    own_etcd.kill()
    assert node.ctl("reset").code == 75
    assert node.ctl("force_reset") == Printed("", "", 0)
    own_etcd.start()
    own_etcd.await_ready()
    # The cluster still has the member, whose data directory is another one now.
    assert [key for key in before if b"/nodes/" not in key] == [
        key for key in keys(own_etcd) if b"/nodes/" not in key
    ]
    refused = node.ctl("start_app")
    assert refused.code == 69 and "with another data directory" in refused.err, refused
    assert node.ctl("forget_cluster_node", "--offline", "--force", node.name) == Printed("", "", 0)
    assert node.ctl("start_app") == Printed("", "", 0)
    assert node.table("list_queues", "name") == []
