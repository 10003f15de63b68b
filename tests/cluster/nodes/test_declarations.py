"""What is declared through one node is there on all, at once and after a death."""

import json
from pathlib import Path

import pytest

from tests.cluster.nodes.fail_point_kills import newcomer
from tests.cluster.nodes.real_cluster import AMQP, NAMES, RealCluster, RealNode, inside
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer
from warrenmq.offline.data_directory import opened
from warrenmq.offline.salvage import salvage
from warrenmq.pipeline.backups.cluster_definitions import MISSING
from warrenmq.pipeline.backups.job import backup
from warrenmq.pipeline.backups.restore_job import restore
from warrenmq.wire.methods import QueueDeclare

VHOST = "gone"
MIN_MASTERS = table(**{"x-queue-master-locator": "min-masters"})
DEFINITIONS = {
    "users": [{"name": "ann", "password": "secret", "tags": "administrator"}],
    "vhosts": [{"name": VHOST}],
    "permissions": [
        {"user": "ann", "vhost": VHOST, "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "policies": [
        {
            "vhost": VHOST,
            "name": "all",
            "pattern": "",
            "definition": {"max-length": 9},
            "priority": 0,
        }
    ],
    "queues": [{"vhost": VHOST, "name": "tasks", "durable": True}],
    "bindings": [
        {
            "vhost": VHOST,
            "source": "amq.fanout",
            "destination": "tasks",
            "destination_type": "queue",
            "routing_key": "",
        }
    ],
}
ABSENT = "no queue '{}' in vhost '{}'"


def assert_absent(client: ChannelPeer, queue: str, vhost: str = "/") -> None:
    client.refused(QueueDeclare(queue.encode(), True), 404, ABSENT.format(queue, vhost))


@pytest.mark.kill
@pytest.mark.parametrize("victim", ["n1", "n3"], ids=["declaring node", "home"])
def test_a_declared_queue_outlives_the_death_of(cluster: RealCluster, victim: str) -> None:
    """The client's node and the queue's home are different; each dies right behind declare-ok."""
    with cluster.clients() as (first, second, _third):
        first.declare(b"one", durable=True)
        second.declare(b"two", durable=True)
        # The node with the fewest queues is the third.
        first.declare(b"three", durable=True, arguments=MIN_MASTERS)
        cluster[victim].kill()
    cluster[victim].start()
    cluster.await_linked()
    with cluster.clients() as clients:
        for number, client in enumerate(clients):
            client.confirm_select()
            client.publish(b"three", b"%d" % number, PERSISTENT)
            client.confirms(1)
        found = cluster["n2"].ctl("-s", "list_queues", "name", "pid", "messages").rows()
        assert [(name, pid[1:3], count) for name, pid, count in found] == [
            ("one", "n1", "0"), ("three", "n3", "3"), ("two", "n2", "0")
        ]  # fmt: skip
        assert clients[1].drain(b"three") == [b"0", b"1", b"2"]
        for queue in (b"one", b"two", b"three"):
            clients[0].delete(queue)


def test_a_queue_is_declared_used_and_deleted_through_any_node(cluster: RealCluster) -> None:
    """Twenty lives of one name: what the next one gets is its own."""
    with cluster.clients() as clients:
        for life in range(20):
            declarer, publisher, deleter = (clients[(life + step) % 3] for step in range(3))
            declarer.declare(b"life", durable=life % 2 == 0)
            publisher.publish(b"life", b"%d" % life, PERSISTENT)
            assert publisher.drain(b"life") == [b"%d" % life]
            publisher.publish(b"life", b"goes with the queue", PERSISTENT)
            publisher.count(b"life")
            assert deleter.delete(b"life") == 1
            assert_absent(declarer, "life")
            clients[life % 3] = declarer.peer.channel()
    assert cluster.keys("q") == {}


def assert_imported(node: RealNode) -> None:
    assert node.ctl("authenticate_user", "ann", "secret").code == 0
    assert node.ctl("-s", "list_permissions", "-p", VHOST).rows() == [["ann", ".*", ".*", ".*"]]
    assert node.ctl("-s", "list_policies", "-p", VHOST).rows()[0][:2] == [VHOST, "all"]
    assert node.ctl("-s", "list_bindings", "-p", VHOST, "source_name", "destination_name").rows() == [
        ["", "tasks"], ["amq.fanout", "tasks"]
    ]  # fmt: skip


def test_imported_definitions_are_there_on_all_nodes(cluster: RealCluster, tmp_path: Path) -> None:
    """The vhost, the user and what refers to them come in one import, and none is there before."""
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    assert cluster["n2"].ctl("import_definitions", str(file)).code == 0
    for name in NAMES:
        assert_imported(cluster[name])
    assert cluster["n1"].ctl("delete_user", "ann").code == 0
    assert cluster["n3"].ctl("delete_vhost", VHOST).code == 0


def test_a_new_cluster_begins_with_the_definitions_of_a_file(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """Backups of the node as Parquet have them, too, though its directory has queues only."""
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    node = newcomer(cluster, tmp_path, "first", "imported", {"load_definitions": str(file)})
    host, port = cluster.network.listen("first", AMQP)
    uri = f"amqp://ann:secret@{host}:{port}/{VHOST}"
    try:
        node.start()
        assert_imported(node)
        assert node.ctl("-s", "list_vhosts").rows() == [[VHOST]]
        assert node.stop() == 0
        node.start()
        assert_imported(node)
        with inside(cluster.network, "first"):
            live = backup(uri, tmp_path / "live", engine="local")
        assert node.stop() == 0
    finally:
        node.kill()
    saved = salvage(node.data, tmp_path / "saved")
    assert saved.losses == ["exchanges, bindings and users, which are in the etcd of the cluster"]
    with opened(tmp_path / "saved") as data:
        assert [user.name for user in data.definitions.users] == [b"guest"]
    bare = backup(node.data, tmp_path / "bare", vhost=VHOST, engine="local")
    whole = backup(node.data, tmp_path / "whole", vhost=VHOST, definitions=file, engine="local")
    assert (live.left_out, live.exit_code) == (whole.left_out, whole.exit_code) == ([], 0)
    assert (bare.left_out, bare.exit_code) == ([MISSING], 1)
    for name in ("live", "whole"):
        restore(tmp_path / name, tmp_path / f"restored {name}", engine="local")
        with opened(tmp_path / f"restored {name}") as data:
            found = data.definitions
        assert [user.name for user in found.users] == [b"ann"]
        assert [each.user for each in found.permissions] == [b"ann"]
        assert [each.name for each in found.queues] == [b"tasks"]
        assert [(each.source, each.destination) for each in found.bindings] == [
            (b"amq.fanout", b"tasks")
        ]


def test_a_vhost_goes_with_its_queues_on_all_nodes(cluster: RealCluster) -> None:
    """A vhost of the same name has nothing of it."""
    first, second, third = (cluster[name] for name in NAMES)
    assert first.ctl("add_vhost", VHOST).code == 0
    assert first.ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*").code == 0
    for name in NAMES:
        with cluster.client(name, VHOST.encode()) as client:
            client.declare(name.encode(), durable=True)
            client.bind(name.encode(), b"amq.fanout")
            client.confirm_select()
            client.publish(b"", b"m", PERSISTENT, b"amq.fanout")
            client.confirms(1)
    with cluster.client("n3", VHOST.encode()) as client:
        assert [client.count(name.encode()) for name in NAMES] == [3, 2, 1]
        assert second.ctl("delete_vhost", VHOST).code == 0
        client.peer.await_close()
    assert cluster.keys("q") == cluster.keys("b") == {}
    assert third.ctl("add_vhost", VHOST).code == 0
    assert first.ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*").code == 0
    for name in NAMES:
        with cluster.client(name, VHOST.encode()) as client:
            assert_absent(client, name, VHOST)
    with cluster.client("n1", VHOST.encode()) as client:
        assert client.declare(b"n3", durable=True).message_count == 0
        client.publish(b"", b"m", PERSISTENT, b"amq.fanout")
        assert client.count(b"n3") == 0
    assert first.ctl("delete_vhost", VHOST).code == 0
