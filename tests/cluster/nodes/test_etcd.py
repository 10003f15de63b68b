"""A cluster whose etcd is slow, in the minority, away, compacted, or emptied."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes.networks_here import make_network
from tests.cluster.nodes.real_cluster import NAMES, RealCluster, await_writable
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.cluster.relays import RelayNetwork
from tests.support.etcd import require_etcd
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueDeclare,
)

CONFIRMS = 50
# A queue that needed etcd would wait for the five seconds of a decision, or for etcd's return.
GAP_LIMIT_MS = 4000
SLOW_MS = 500
UNDECIDED = b"RESOURCE_ERROR - the cluster has not decided in time: "


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes and three members of etcd, with relays in between."""
    require_etcd()
    directory = tmp_path_factory.mktemp("etcd")
    with RelayNetwork() as network, RealCluster(network, directory, members=3) as made:
        yield made
        for node in made.nodes.values():
            assert "Traceback" not in node.log(), node.log()[-4000:]


def relays(cluster: RealCluster) -> RelayNetwork:
    """The network, with what only relays can do."""
    assert isinstance(cluster.network, RelayNetwork)
    return cluster.network


def assert_undecided(clients: list[ChannelPeer]) -> None:
    """What is new cannot be declared; clients hear of it after the same time."""
    channels = [client.peer.channel() for client in clients]
    for number, channel in enumerate(channels):
        channel.send(QueueDeclare(b"new-%d" % number, False, True))
    for channel in channels:
        close = channel.await_close()
        assert (close.reply_code, close.reply_text[: len(UNDECIDED)]) == (506, UNDECIDED)


def assert_decided(clients: list[ChannelPeer], name: bytes) -> None:
    """Declare through each node, use through the next, delete through the one after."""
    for number, client in enumerate(clients):
        queue = b"%s-%d" % (name, number)
        client.declare(queue, durable=True)
        clients[number - 1].publish(queue, b"m", PERSISTENT)
        assert clients[number - 1].drain(queue) == [b"m"]
        clients[number - 2].delete(queue)


def is_confirmed(client: ChannelPeer, queue: bytes) -> bool:
    """Publish to a queue; whether the answer is an ack."""
    channel = client.peer.channel()
    channel.confirm_select()
    channel.publish(queue, b"m", PERSISTENT)
    (answer,) = channel.confirms(1)
    channel.close()
    return isinstance(answer, BasicAck)


@pytest.mark.slow
def test_clients_go_on_without_etcd(cluster: RealCluster, tmp_path: Path) -> None:
    """Publishing, confirms, consuming and acks need none; what is there can be declared again."""
    network, members = relays(cluster), cluster.members
    etcd_links = [network.between(name, member.name) for name in NAMES for member in members]
    with cluster.workload(tmp_path) as run, cluster.clients() as clients:
        run.await_confirms(CONFIRMS)
        clients[0].declare(b"known", durable=True)
        with run.fault("slow", "etcd", GAP_LIMIT_MS):
            for link in etcd_links:
                link.delay_ms = SLOW_MS
            assert_decided(clients, b"slow")
            run.await_confirms(CONFIRMS)
            for link in etcd_links:
                link.delay_ms = 0
        with run.fault("kill", "a member", GAP_LIMIT_MS):
            members[0].kill()
            assert_decided(clients, b"two")
            run.await_confirms(CONFIRMS)
        with run.fault("kill", "the majority", GAP_LIMIT_MS):
            members[1].kill()
            assert_undecided(clients)
            run.await_confirms(CONFIRMS)
        with run.fault("kill", "all members", GAP_LIMIT_MS):
            members[2].kill()
            assert_undecided(clients)
            for client in clients:
                client.declare(b"known", durable=True)
            run.await_confirms(CONFIRMS)
        with run.fault("start", "all members", GAP_LIMIT_MS):
            for member in members:
                member.launch()
            await_writable(cluster)
            # A declaration waits for the nodes that are announced, and leases may have ended. What
            # a node declares is decided only while it is announced.
            for number, client in enumerate(clients):
                client.declare(b"own-%d" % number, durable=True)
            for name in NAMES:
                assert cluster[name].ctl("await_online_nodes", "3").code == 0
            assert_decided(clients, b"back")
            run.await_confirms(CONFIRMS)
        clients[1].delete(b"known")
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()


def test_a_node_that_has_missed_decisions_catches_up(cluster: RealCluster) -> None:
    """Its watch breaks; etcd forgets what it has not followed."""
    network = relays(cluster)
    with cluster.clients() as (first, second, third):
        first.declare(b"goes", durable=True)
        second.declare(b"again", durable=True)
        for member in cluster.members:
            network.cut("n3", member.name)
            network.between("n3", member.name).reset()
        first.delete(b"goes")
        second.delete(b"again")
        first.declare(b"again", durable=True)
        first.exchange(b"comes", durable=True)
        first.bind(b"again", b"comes", b"key")
        missing = third.peer.channel()
        missing.refused(
            ExchangeDeclare(b"comes", b"", True), 404, "no exchange 'comes' in vhost '/'"
        )
        cluster.compact()
        network.heal()
        node = cluster["n3"]
        eventually(lambda: "this node has missed decisions" in node.log(), "it catches up")
        assert "does not know" not in node.log(), "it has cut its links"
        # Declarations wait for the nodes that follow.
        second.declare(b"follows", durable=True)
        third.publish(b"key", b"m", PERSISTENT, b"comes")
        assert third.drain(b"again") == [b"m"]
        third.publish(b"goes", b"m", PERSISTENT, mandatory=True)
        assert third.message().returned.reply_code == 312
        third.delete(b"again")
        third.delete(b"follows")
        assert isinstance(third.call(ExchangeDelete(b"comes")), ExchangeDeleteOk)


def test_a_node_whose_lease_was_revoked_announces_itself_again(cluster: RealCluster) -> None:
    """Its exclusive queues are gone, its durable ones serve on."""
    name = cluster["n2"].node.replace("@", "%40")
    before = cluster.keys("nodes")[name]["lease"]
    with cluster.clients() as (first, second, _third):
        second.declare(b"keeps", durable=True)
        second.declare(b"own", exclusive=True)
        second.consume(b"own")
        cluster.etcd("lease", "revoke", f"{before:x}")
        assert isinstance(second.event(), BasicCancel)
        eventually(
            lambda: cluster.keys("nodes").get(name, {"lease": before})["lease"] != before,
            "the node is announced again",
        )
        # The others link with it again.
        eventually(lambda: is_confirmed(first, b"keeps"), "its queues serve")
        first.refused(QueueDeclare(b"own", True), 404, "no queue 'own' in vhost '/'")
        second.declare(b"own", exclusive=True)
        assert b"m" in second.drain(b"keeps")
        second.delete(b"keeps")


@pytest.mark.slow
def test_an_etcd_without_the_cluster(tmp_path: Path) -> None:
    """A running node decides nothing there, and does not become part of it; its clients go on.

    It does not start with it, and no message is touched: with the old etcd all are there.
    """
    require_etcd()
    with make_network() as network, RealCluster(network, tmp_path, names=["n1"]) as cluster:
        node, member = cluster["n1"], cluster.members[0]
        data, kept = tmp_path / member.name, tmp_path / "kept"
        with cluster.client("n1") as client:
            client.declare(b"q", durable=True)
            member.kill()
            data.rename(kept)
            member.start()
            eventually(lambda: "waiting to announce the node" in node.log(), "it is not announced")
            assert_undecided([client])
            assert is_confirmed(client, b"q")
            client.declare(b"q", durable=True)
            assert cluster.keys("nodes") == cluster.keys("q") == {}
        assert node.stop() == 0
        node.launch()
        assert node.await_end() == 1
        assert "etcd has no cluster 'real', of which this node is a member" in node.log()
        member.kill()
        shutil.rmtree(data)
        kept.rename(data)
        # A node that starts waits for etcd.
        node.launch()
        eventually(lambda: "waiting for etcd: " in node.log(), "it waits")
        member.start()
        node.await_ready()
        with cluster.client("n1") as client:
            assert client.drain(b"q") == [b"m"]
