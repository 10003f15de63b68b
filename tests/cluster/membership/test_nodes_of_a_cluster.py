"""Three real nodes, seen and steered by `warrenctl`."""

import json
import re
import signal
from collections.abc import Iterator

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, ClusterNodes, Printed, channels
from tests.support.etcd import EtcdServer
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.protocol.cluster import ForgetNode
from warrenmq.admin.protocol.control import (
    CloseConnections,
    Counted,
    DeleteQueue,
    List,
    PurgeQueue,
    Rows,
)
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED

DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def trio(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """Three nodes; each test leaves them running, and without queues."""
    with ClusterNodes(tmp_path_factory.mktemp("trio"), etcd.url, "n1", "n2", "n3") as cluster:
        yield cluster.nodes


def declare(nodes: list[ClusterNode], messages: int = 0) -> None:
    """Declare the durable queue `qN` on each node, with so many messages."""
    with channels(nodes) as opened:
        for number, channel in enumerate(opened, 1):
            channel.queue_declare(f"q{number}", durable=True)
            for _ in range(messages):
                channel.basic_publish("", f"q{number}", b"m", DURABLE)


def delete(node: ClusterNode, *queues: str) -> None:
    for queue in queues:
        assert node.ctl("delete_queue", queue).code == 0


def homes(node: ClusterNode, *flags: str) -> dict[str, tuple[str, str]]:
    """Node and state of each queue, as `node` lists them."""
    found = node.table("list_queues", *flags, "name", "pid", "state")
    return {name: (node_of_pid(pid), state) for name, pid, state in found}


def await_printed(node: ClusterNode, text: str, *command: str) -> None:
    """Return when `command` prints `text`."""
    eventually(lambda: text in node.ctl(*command).out, text)


def stop_app(node: ClusterNode) -> None:
    assert node.ctl("stop_app") == Printed("", "", 0)


# -- status ----------------------------------------------------------------------------------------

STATUS = """\
Basics

Cluster name: trio

Disk Nodes

n1@127.0.0.1
n2@127.0.0.1
n3@127.0.0.1

Running Nodes

n1@127.0.0.1
n2@127.0.0.1
n3@127.0.0.1

Versions

n1@127.0.0.1: RabbitMQ VERSION (warren VERSION) on Python VERSION
n2@127.0.0.1: RabbitMQ VERSION (warren VERSION) on Python VERSION
n3@127.0.0.1: RabbitMQ VERSION (warren VERSION) on Python VERSION

Maintenance status

Node: n1@127.0.0.1, status: not under maintenance
Node: n2@127.0.0.1, status: marked for maintenance
Node: n3@127.0.0.1, status: not under maintenance

Alarms

Free disk space alarm on node n3@127.0.0.1

Network Partitions

(none)

Listeners

Node: n1@127.0.0.1, interface: 127.0.0.1, port: N, protocol: amqp, purpose: AMQP 0-9-1
Node: n1@127.0.0.1, interface: 127.0.0.1, port: N, protocol: clustering, \
purpose: inter-node communication
Node: n2@127.0.0.1, interface: 127.0.0.1, port: N, protocol: amqp, purpose: AMQP 0-9-1
Node: n2@127.0.0.1, interface: 127.0.0.1, port: N, protocol: clustering, \
purpose: inter-node communication
Node: n3@127.0.0.1, interface: 127.0.0.1, port: N, protocol: amqp, purpose: AMQP 0-9-1
Node: n3@127.0.0.1, interface: 127.0.0.1, port: N, protocol: clustering, \
purpose: inter-node communication

Metadata store

etcd VERSION, database size: N bytes
Member: m0, URLs: http://127.0.0.1:PORT
Last failure: (none)

Followed decisions

Node: n1@127.0.0.1, decisions: N
Node: n2@127.0.0.1, decisions: N
Node: n3@127.0.0.1, decisions: N

Links

Node: n1@127.0.0.1, peer: n2@127.0.0.1, up for: N s, unsent: N bytes, decisions: N
Node: n1@127.0.0.1, peer: n3@127.0.0.1, up for: N s, unsent: N bytes, decisions: N
Node: n2@127.0.0.1, peer: n1@127.0.0.1, up for: N s, unsent: N bytes, decisions: N
Node: n2@127.0.0.1, peer: n3@127.0.0.1, up for: N s, unsent: N bytes, decisions: N
Node: n3@127.0.0.1, peer: n1@127.0.0.1, up for: N s, unsent: N bytes, decisions: N
Node: n3@127.0.0.1, peer: n2@127.0.0.1, up for: N s, unsent: N bytes, decisions: N

Feature flags

"""
PLACEHOLDERS = (
    (r"(?<![\d.])\d+\.\d+\.\d+(?:rc\d+)?(?![\d.])", "VERSION"),
    (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
    (r"(?<=: )\d+(?= |,|$)", "N"),
)


def normal(text: str) -> str:
    for pattern, replacement in PLACEHOLDERS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def test_the_status_has_every_node(trio: list[ClusterNode]) -> None:
    """What a node alone knows, such as an alarm on its disk, is seen from any other."""
    assert trio[1].ctl("drain").code == 0
    assert trio[2].ctl("set_disk_free_limit", "1000TB").code == 0
    for node in trio:
        await_printed(node, "alarm on node", "cluster_status")
        assert normal(node.ctl("cluster_status").out).startswith(STATUS)
    status = json.loads(trio[0].ctl("cluster_status", "--formatter", "json").out)
    names = [node.name for node in trio]
    assert (status["disk_nodes"], status["running_nodes"]) == (names, names)
    assert [status[key] for key in ("ram_nodes", "partitions")] == [[], {}]
    assert sorted(status["versions"]) == sorted(status["listeners"]) == names
    assert status["etcd"]["failure"] == status["etcd"]["last_failure"] == ""
    assert [[link["peer"] for link in status["links"][name]] for name in names] == [
        [other for other in names if other != name] for name in names
    ]
    assert trio[0].ctl("check_alarms").err == f"Free disk space alarm on node {names[2]}\n"
    assert trio[0].ctl("check_local_alarms").code == 0
    assert trio[1].ctl("revive").code == 0
    assert trio[2].ctl("set_disk_free_limit", "1MB").code == 0
    eventually(lambda: trio[0].ctl("check_alarms").code == 0, "no alarm")
    assert trio[1].table("discover_peers") == [[name] for name in names]


def test_a_node_in_maintenance_gets_no_queues(trio: list[ClusterNode]) -> None:
    """Others know it before its clients are gone; its queues stay, and no queue has mirrors."""
    with channels(trio[1:2]) as (channel,):
        channel.queue_declare("kept", durable=True)
    assert trio[1].ctl("drain").code == 0
    with channels(trio[:1]) as (channel,):
        for number in range(6):
            arguments = {"x-queue-master-locator": "min-masters"}
            channel.queue_declare(f"q{number}", durable=True, arguments=arguments)
    nodes = {name: node for name, (node, _state) in homes(trio[0]).items()}
    assert nodes.pop("kept") == trio[1].name
    assert sorted(nodes.values()) == sorted([trio[0].name, trio[2].name] * 3)
    for node in trio:
        assert node.ctl("sync_queue", "kept") == Printed("", "Error:\nnot_mirrored\n", 69)
    assert trio[1].ctl("revive").code == 0
    with channels(trio[1:2]) as (channel,):
        channel.queue_declare("again", durable=True)
    assert homes(trio[2])["again"] == (trio[1].name, "running")
    delete(trio[0], "kept", "again", *nodes)


# -- listings --------------------------------------------------------------------------------------


def test_listings_have_the_objects_of_all_nodes(trio: list[ClusterNode]) -> None:
    declare(trio, messages=2)
    with channels(trio) as opened:
        for number, channel in enumerate(opened, 1):
            # A consumer of the next node's queue.
            channel.basic_qos(prefetch_count=number)
            channel.basic_consume(f"q{number % 3 + 1}", lambda *_: None, consumer_tag=f"c{number}")
        names = [node.name for node in trio]
        queues = [[f"q{number}", "true", "2", "1"] for number in (1, 2, 3)]
        clients = [[f"c{number}", f"q{number % 3 + 1}", "true"] for number in (1, 2, 3)]
        for number, node in enumerate(trio, 1):
            columns = ("name", "durable", "messages", "consumers")
            assert node.table("list_queues", *columns) == queues
            assert node.table("list_queues", "--local", *columns) == [queues[number - 1]]
            assert node.table("list_queues", "--offline") == []
            assert homes(node) == {
                f"q{each}": (name, "running") for each, name in enumerate(names, 1)
            }
            rows = node.table("list_consumers")
            assert sorted([row[2], row[0], row[5]] for row in rows) == clients
            assert sorted(node_of_pid(row[1]) for row in rows) == names
            assert node.table("list_vhosts", "cluster_state") == [
                ["[" + ",".join(f'{{"{name}","running"}}' for name in names) + "]"]
            ]
            for what in ("list_connections", "list_channels"):
                assert sorted(node_of_pid(pid) for (pid,) in node.table(what, "pid")) == names
            assert node.table("list_users", "--formatter", "csv") == trio[0].table(
                "list_users", "--formatter", "csv"
            )
    delete(trio[0], "q1", "q2", "q3")
    assert [homes(node) for node in trio] == [{}, {}, {}]


def test_objects_of_other_nodes_are_changed_through_any(trio: list[ClusterNode]) -> None:
    declare(trio, messages=2)
    first = trio[0]
    assert first.ctl("delete_queue", "q3", "--if-empty") == Printed(
        "", "Error:\nQueue is not empty\n", 64
    )
    assert first.ctl("purge_queue", "q3").code == 0
    assert first.ctl("delete_queue", "q3", "--if-empty").out == (
        "Queue was successfully deleted with 0 ready messages\n"
    )
    assert first.ctl("delete_queue", "q3").err == "Error:\nQueue not found\n"
    connections = [pika.BlockingConnection(pika.URLParameters(node.uri)) for node in trio]
    pid = trio[2].table("list_connections", "pid")
    own = next(each for (each,) in pid if trio[1].name in each)
    assert first.ctl("close_connection", own, "maintenance").code == 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        connections[1].channel()
    closed = first.ctl("close_all_connections", "--limit", "1", "bye").out
    assert closed == "Closed 1 connections\n"
    assert first.ctl("close_all_connections", "bye").out == "Closed 1 connections\n"
    for connection in (connections[0], connections[2]):
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="bye"):
            connection.channel()
    delete(trio[1], "q1", "q2")


def test_the_node_of_the_session_checks_the_rights(trio: list[ClusterNode]) -> None:
    """A user may do at queues of other nodes what it may do at those of its own."""
    declare(trio)
    admin = trio[0]
    for words in ("add_user u p", "set_user_tags u monitoring", "set_permissions u ^$ ^$ ^q2$"):
        assert admin.ctl(*words.split()).code == 0
    with AdminClient(NodeAddress(trio[0].uri.replace("guest:guest", "u:p"))) as user:
        assert user.request(PurgeQueue(vhost="/", queue=b"q2"), Counted) == Counted(0)
        for request in (
            PurgeQueue(vhost="/", queue=b"q3"),
            DeleteQueue(vhost="/", queue=b"q2"),
            ForgetNode(node=trio[1].name),
            CloseConnections(user="guest", reason="bye", is_everywhere=True),
        ):
            with pytest.raises(AdminRefusedError) as refused:
                user.request(request, Counted)
            assert refused.value.code == ACCESS_REFUSED
        # Without a name the user closes its own connections, of which there are none.
        everywhere = CloseConnections(reason="bye", is_everywhere=True)
        with pika.BlockingConnection(pika.URLParameters(trio[1].uri)) as others:
            assert user.request(everywhere, Counted) == Counted(0)
            others.channel()
        listed = user.request(List(what="queues", columns=["name"], vhost="/"), Rows)
        assert sorted(listed.rows) == [["q1"], ["q2"], ["q3"]]
        named = List(what="queues", columns=["name"], vhost="/", names=["q2", "none"])
        assert user.request(named, Rows) == Rows([["q2"]])
    assert admin.ctl("delete_user", "u").code == 0
    delete(admin, "q1", "q2", "q3")


# -- nodes that are gone ---------------------------------------------------------------------------


def test_queues_of_a_dead_node_are_down_until_it_is_back(trio: list[ClusterNode]) -> None:
    declare(trio, messages=3)
    dead = trio[2]
    dead.kill()
    for node in trio[:2]:
        await_printed(node, "q3\tdown", "list_queues", "name", "state")
        assert homes(node, "--offline") == {"q3": (dead.name, "down")}
        assert sorted(homes(node, "--online")) == ["q1", "q2"]
        assert sorted(homes(node, "--online", "--offline")) == ["q1", "q2", "q3"]
    row = trio[0].table("list_queues", "--offline", "name", "durable", "messages", "type")
    assert row == [["q3", "true", "", "classic"]]
    named = List(what="queues", columns=["name", "state"], vhost="/", names=["q3", "q1"])
    with AdminClient(NodeAddress(trio[0].uri)) as user:
        assert user.request(named, Rows) == Rows([["q1", "running"], ["q3", "down"]])
    assert "is down or inaccessible" in trio[0].ctl("purge_queue", "q3").err
    dead.start()
    assert trio[0].ctl("await_online_nodes", "3").code == 0
    assert trio[1].table("list_queues", "name", "messages") == [
        ["q1", "3"],
        ["q2", "3"],
        ["q3", "3"],
    ]
    # While it is down, what was deleted is gone when it comes back.
    dead.kill()
    # Until its lease has ended nobody knows that it is dead, and not only cut off.
    eventually(
        lambda: (
            f"there is no link to node {dead.name}, but its lease in etcd has not ended yet"
            in trio[0].ctl("forget_cluster_node", dead.name).err
        ),
        "the command says what to wait for",
    )
    await_printed(trio[0], "q3\tdown", "list_queues", "name", "state")
    assert trio[0].ctl("delete_queue", "q3", "--if-empty").code == 69
    delete(trio[0], "q3")
    dead.start()
    assert trio[0].ctl("await_online_nodes", "3").code == 0
    assert sorted(homes(dead)) == ["q1", "q2"]
    delete(trio[0], "q1", "q2")


def test_rows_of_a_node_that_stands_still_are_missed(trio: list[ClusterNode]) -> None:
    """The others are printed all the same; the exit status says that some are missing."""
    frozen = trio[2]
    with channels(trio):
        frozen.send_signal(signal.SIGSTOP)
        try:
            listed = trio[0].ctl("-s", "list_connections", "pid")
            assert sorted(node_of_pid(pid) for pid in listed.out.splitlines()) == [
                node.name for node in trio[:2]
            ]
            assert (listed.err, listed.code) == (
                f"Error:\nnode {frozen.name} has not answered: its rows are missing\n", 75
            )  # fmt: skip
            # The node still has its record, and no link.
            text = trio[0].ctl("cluster_status").out
            assert f"Node {trio[0].name} cannot communicate with {frozen.name}\n" in text
            assert f"{frozen.name}: RabbitMQ" in text and ", which does not answer\n" in text
            assert trio[0].ctl("-s", "list_connections", "pid") == listed
        finally:
            frozen.send_signal(signal.SIGCONT)
        assert trio[0].ctl("await_online_nodes", "3").code == 0


# -- membership ------------------------------------------------------------------------------------


def test_a_node_stops_and_starts_its_broker(trio: list[ClusterNode]) -> None:
    declare(trio, messages=1)
    with channels(trio[2:]) as (channel,):
        channel.queue_declare("transient")
    stop_app(trio[2])
    assert homes(trio[0])["q3"] == (trio[2].name, "down")
    status = json.loads(trio[0].ctl("cluster_status", "--formatter", "json").out)
    assert [len(status[key]) for key in ("disk_nodes", "running_nodes")] == [3, 2]
    # What is decided meanwhile is followed later.
    delete(trio[0], "q1")
    with channels(trio[:1]) as (channel,):
        channel.queue_declare("new", durable=True)
        channel.queue_bind("q3", "amq.direct", "key")
    assert trio[2].ctl("start_app") == Printed("", "", 0)
    assert trio[0].ctl("await_online_nodes", "3").code == 0
    assert [sorted(homes(node)) for node in trio] == [["new", "q2", "q3"]] * 3
    with channels(trio[2:]) as (channel,):
        channel.basic_publish("amq.direct", "key", b"m", DURABLE)
    assert trio[0].table("list_queues", "--online", "name", "messages") == [
        ["new", "0"], ["q2", "1"], ["q3", "2"]
    ]  # fmt: skip
    delete(trio[1], "new", "q2", "q3")


def test_a_node_is_forgotten_reset_and_joins_again(trio: list[ClusterNode]) -> None:
    first, other = trio[0], trio[2]
    declare(trio, messages=1)
    assert first.ctl("forget_cluster_node", "other@host") == Printed(
        "", "Error:\n{:not_a_cluster_node, 'The node selected is not in the cluster.'}\n", 69
    )
    assert first.ctl("forget_cluster_node", other.name) == Printed(
        "",
        f"Error:\nRabbitMQ on node {other.name} must be stopped with "
        f"'warrenctl -n {other.name} stop_app' before it can be removed\n",
        69,
    )
    assert other.ctl("join_cluster", first.name).code == 64
    stop_app(other)
    refused = first.ctl("forget_cluster_node", other.name)
    assert refused.code == 69 and "has 1 durable queues" in refused.err, refused
    assert "'q3' in vhost '/'" in refused.err
    assert first.ctl("forget_cluster_node", other.name, "--force") == Printed("", "", 0)
    assert [sorted(homes(node)) for node in trio[:2]] == [["q1", "q2"]] * 2
    refused = other.ctl("start_app")
    assert refused.code == 69 and "the cluster disagrees" in refused.err, refused
    assert other.ctl("reset") == Printed("", "", 0)
    assert other.ctl("join_cluster", other.name) == Printed(
        "", f"Error:\nError: cannot cluster node with itself: {other.name}\n", 70
    )
    nobody = other.ctl("join_cluster", "nobody@host")
    assert nobody.code == 69 and "on node 'nobody@host'" in nobody.err
    assert other.ctl("join_cluster", first.name) == Printed("", "", 0)
    again = other.ctl("join_cluster", first.name)
    assert again == Printed("The node is already a member of this cluster\n", "", 0)
    assert other.ctl("start_app") == Printed("", "", 0)
    assert first.ctl("await_online_nodes", "3").code == 0
    assert [sorted(homes(node)) for node in trio] == [["q1", "q2"]] * 3
    with channels([other]) as (channel,):
        channel.queue_declare("q3", durable=True)
        channel.basic_publish("", "q3", b"m", DURABLE)
    assert first.table("list_queues", "name", "messages") == [["q1", "1"], ["q2", "1"], ["q3", "1"]]
    # A node that resets itself takes its queues with it, and joins at its start.
    stop_app(other)
    assert other.ctl("reset") == Printed("", "", 0)
    assert sorted(homes(first)) == ["q1", "q2"]
    assert other.ctl("start_app") == Printed("", "", 0)
    assert [sorted(homes(node)) for node in trio] == [["q1", "q2"]] * 3
    # It has lost nothing of that to a restart.
    assert other.stop() == 0
    other.start()
    assert sorted(homes(other)) == ["q1", "q2"]
    assert first.ctl("await_online_nodes", "3").code == 0
    delete(other, "q1", "q2")
