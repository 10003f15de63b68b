"""A master dies, and clients of other nodes have something open with its queues (cases t16).

A *watch* prepares a queue of its own, yields while the master is lost, and checks what became of
it. All watches of `failover_clients.py` can share one death.
"""

from collections.abc import Callable, Iterator, Sequence

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer
from warrenmq.wire.methods import BasicAck, QueueDeclare, QueueDeclareOk

POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
PREFIX = "case"
# The first master of all queues, and where clients are.
MASTER, NEAR, FAR = "n1", "n2", "n3"


class Failover:
    """Queues of MASTER, and channels at the nodes of its mirrors."""

    def __init__(self, cluster: MirroredCluster, near: ChannelPeer, far: ChannelPeer) -> None:
        self.cluster = cluster
        self._near = near
        self._far = far

    def near(self) -> ChannelPeer:
        """A new channel at the node of a mirror."""
        return self._near.peer.channel()

    def far(self) -> ChannelPeer:
        """A new channel at the node of another mirror."""
        return self._far.peer.channel()

    def declare(self, name: bytes, arguments: bytes = b"") -> bytes:
        """A new durable queue, whose master is MASTER; returns its name."""
        queue = PREFIX.encode() + b"-" + name
        with self.cluster.client(MASTER) as client:
            client.declare(queue, durable=True, arguments=arguments)
        return queue

    def fill(self, queue: bytes, *bodies: bytes, properties: bytes = PERSISTENT) -> None:
        """Publish messages, which are confirmed."""
        channel = self.near()
        channel.confirm_select()
        for body in bodies:
            channel.publish(queue, body, properties)
        assert all(isinstance(each, BasicAck) for each in channel.confirms(len(bodies)))
        channel.close()

    def await_served(self, queue: bytes) -> None:
        """Return when another node serves the queue."""
        eventually(lambda: is_served(self.far(), queue), f"{queue!r} is served", 0.05)


Watch = Callable[[Failover], Iterator[None]]


def is_served(channel: ChannelPeer, queue: bytes) -> bool:
    """Whether the queue is there; closes the channel."""
    channel.send(QueueDeclare(queue, True))
    try:
        channel.expect(QueueDeclareOk)
    except ChannelClosedError:
        channel.await_close()
        return False
    channel.close()
    return True


def fail_over(cluster: MirroredCluster, watches: Sequence[Watch], lose: Callable[[], None]) -> None:
    """Let all watches prepare, lose MASTER by `lose`, and let all watches check."""
    printed = cluster[MASTER].ctl("set_policy", PREFIX, f"^{PREFIX}", POLICY)
    assert printed.code == 0, printed
    with cluster.client(NEAR) as near, cluster.client(FAR) as far:
        world = Failover(cluster, near, far)
        running = [watch(world) for watch in watches]
        for each in running:
            next(each)
        lose()
        for each in running:
            for _ in each:
                raise AssertionError("a watch yields once")
