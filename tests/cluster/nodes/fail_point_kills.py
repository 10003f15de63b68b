"""Nodes that die at a fail point while they join, declare or publish, and what is there afterwards.

Each function arms a point of a node, lets clients work until the node dies there, starts it again
without fail points, and checks that all nodes agree.
"""

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster.nodes.real_cluster import RealCluster, RealNode
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer, ConnectionClosedError
from tests.support.cluster.workload_process import RecordedRun
from warrenmq.wire.methods import BasicAck, QueueDeclare, QueueDeclareOk

# Points that a node passes while it makes the cluster or joins it, in order.
MAKE = ("upload.part", "cluster.made", "definitions.loaded", "node.registered")
JOIN = ("member.joined", "definitions.loaded", "node.registered")
# While a client declares a queue that is to live on the node; while clients publish to it, on the
# node and on others, and to others through it.
DECLARE = ("decision.proposed", "decision.committed", "change.followed", "row.stored")
PUBLISH = (
    "journal.synced",
    "operations.queued", "operations.applied", "outcome.reported", "events.queued", "outcome.taken",
)  # fmt: skip
# Hits of points that are passed many times, so that some work is done before.
LATER_HIT = 30
QUEUE = b"declared"
# Queues on the node that dies, and on another one.
HERE = b"here"
THERE = b"there"


def kill_in_start(node: RealNode, point: str, hit: int = 1) -> None:
    """Let the node die in its start; the next start succeeds."""
    node.arm(f"{point}=kill@{hit}")
    node.launch()
    assert node.await_end() == -signal.SIGKILL, node.log()
    node.arm("")
    node.start()


def kill_in_declare(cluster: RealCluster, run: RecordedRun, name: str, point: str) -> None:
    """Let the node die while its client declares a queue: all nodes have it afterwards, or none."""
    node = cluster[name]
    with run.fault("kill", node.node, is_lone_crash=True, queues=(cluster.queue_of(name),)):
        node.kill()
        node.arm(f"{point}=kill@1")
        node.start()
        with died(node), cluster.client(name) as client:
            client.declare(QUEUE, durable=True)
    run.await_confirms(1)
    with run.fault("start", node.node):
        node.start()
        cluster.await_linked()
    with cluster.clients() as clients:
        is_there = [has_queue(client) for client in clients]
        assert len(set(is_there)) == 1, is_there
        # Used through each node, and deleted through each, in turn.
        for number, client in enumerate(clients):
            client = client.peer.channel()
            client.declare(QUEUE, durable=True)
            client.confirm_select()
            client.publish(QUEUE, b"%d" % number, PERSISTENT)
            assert isinstance(client.event(), BasicAck)
            assert clients[number - 1].peer.channel().drain(QUEUE) == [b"%d" % number]
            clients[number - 2].peer.channel().delete(QUEUE)


def kill_in_publish(cluster: RealCluster, run: RecordedRun, name: str, point: str) -> None:
    """Let the node die while clients publish to its queues, and through it to another node's."""
    node = cluster[name]
    other = next(each for each in cluster.names if each != name)
    for home, queue in ((name, HERE), (other, THERE)):
        with cluster.client(home) as client:
            client.declare(queue, durable=True)
    confirmed: Counter[bytes] = Counter()
    with run.fault("kill", node.node, is_lone_crash=True, queues=(cluster.queue_of(name),)):
        node.kill()
        node.arm(f"{point}=kill@{LATER_HIT}")
        node.start()
        cluster.await_linked()
        with died(node), cluster.client(name) as near, cluster.client(other) as far:
            near.confirm_select()
            far.confirm_select()
            while not node.has_ended():
                near.publish(THERE, b"m", PERSISTENT)
                far.publish(HERE, b"m", PERSISTENT)
                for client, queue in ((near, THERE), (far, HERE)):
                    confirmed[queue] += isinstance(client.event(), BasicAck)
    run.await_confirms(1)
    with run.fault("start", node.node):
        node.start()
        cluster.await_linked()
    with cluster.client(other) as client:
        for queue in (HERE, THERE):
            assert client.delete(queue) >= confirmed[queue] > 0, confirmed
    run.await_confirms(LATER_HIT)


@contextlib.contextmanager
def died(node: RealNode) -> Iterator[None]:
    """Expect that the node dies at its fail point in the block, and disarm it."""
    with contextlib.suppress(ConnectionClosedError, EOFError):
        yield
    assert node.await_end() == -signal.SIGKILL, node.log()
    node.arm("")


def has_queue(client: ChannelPeer) -> bool:
    """Whether the client's node has the queue."""
    try:
        return isinstance(client.call(QueueDeclare(QUEUE, True)), QueueDeclareOk)
    except ChannelClosedError:
        client.await_close()
        return False


def newcomer(
    cluster: RealCluster,
    directory: Path,
    name: str,
    cluster_name: str = "",
    settings: Mapping[str, str] | None = None,
) -> RealNode:
    """A node that has not joined yet, with a directory of its own; or one of another cluster."""
    cluster.network.add(name)
    return RealNode(
        name,
        cluster.network,
        directory,
        cluster.urls(name),
        settings or {},
        cluster_name=cluster_name,
    )
