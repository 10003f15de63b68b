"""Who becomes master, and what becomes of queues that are declared or deleted (cases t13, t15).

The queue of a case has its master on n1; clients are at the nodes that stay.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tests.cluster.mirrored.failover import is_served
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, ConnectionClosedError
from warrenmq.wire.methods import BasicAck, QueueDeclare

QueueCase = Callable[[MirroredCluster], None]

QUEUE = b"promoted"
NAME = QUEUE.decode()
MASTER, OTHER, THIRD = "n1", "n2", "n3"
# Messages that mirrors do not have where the policy is manual, and messages that they have.
EARLIER, LATER = 20, 5
SYNCED, UNSYNCED, NONE = "synced", "unsynced", "none"
KILL, STOP, PARTITION = "kill", "stop", "partition"
# A lease of etcd ends within this time, and everybody has heard of it (s).
LEASE_S = 14
DECLARATIONS = 10


def set_policy(cluster: MirroredCluster, definition: str, name: str = NAME) -> None:
    """Set the policy for queues whose names begin with `name`."""
    printed = cluster[OTHER].ctl("set_policy", name, f"^{name}", definition)
    assert printed.code == 0, printed


def fill(cluster: MirroredCluster, count: int, queue: bytes = QUEUE, name: str = MASTER) -> None:
    """Publish messages through a node; all are confirmed."""
    with cluster.client(name) as client:
        client.confirm_select()
        for number in range(count):
            client.publish(queue, b"%d" % number, PERSISTENT)
        assert all(isinstance(each, BasicAck) for each in client.confirms(count))


def count(cluster: MirroredCluster, name: str, queue: bytes = QUEUE) -> int:
    """How many messages the queue has, seen from a node; -1 while nobody serves it."""
    with cluster.client(name) as client:
        return client.count(queue) if is_served(client.peer.channel(), queue) else -1


# -- promotion -------------------------------------------------------------------------------------


def promotion(promotes: str, mirrors: str, loss: str, cluster: MirroredCluster) -> None:
    """Lose the master of a queue whose mirrors are synced, unsynced, or not there.

    The key that is for other losses says the opposite.
    """
    other = "when-synced" if promotes == "always" else "always"
    on_shutdown, on_failure = (promotes, other) if loss == STOP else (other, promotes)
    definition = (
        f'"ha-promote-on-failure":"{on_failure}","ha-promote-on-shutdown":"{on_shutdown}",'
        f'"ha-sync-mode":"{"automatic" if mirrors == SYNCED else "manual"}"'
    )
    mode = '"ha-mode":"exactly","ha-params":1' if mirrors == NONE else '"ha-mode":"all"'
    # Mirrors of a queue that has no messages yet are in sync at once.
    cluster[OTHER].ctl("clear_policy", NAME)
    with cluster.client(MASTER) as client:
        client.declare(QUEUE, durable=True)
    fill(cluster, EARLIER)
    set_policy(cluster, f"{{{mode},{definition}}}")
    expected = set() if mirrors == NONE else {OTHER, THIRD}
    synced = expected if mirrors == SYNCED else set()
    eventually(lambda: _placed(cluster) == (MASTER, expected, synced), "the mirrors are there", 0.1)
    fill(cluster, LATER)
    takes_over = mirrors == SYNCED or (mirrors == UNSYNCED and promotes == "always")
    kept = EARLIER + LATER
    with lost(cluster, loss):
        if takes_over:
            eventually(lambda: count(cluster, THIRD) >= 0, "a mirror has taken over", 0.1)
            found = count(cluster, THIRD)
            # No confirm waited for a mirror that is not in sync.
            assert found <= LATER if mirrors == UNSYNCED else found == kept, found
            kept = found
            if mirrors == UNSYNCED:
                logs = cluster[OTHER].log() + cluster[THIRD].log()
                assert "Promoting unsynchronised mirror on node" in logs
            fill(cluster, 1, name=OTHER)
            kept += 1
            if loss == PARTITION:
                _confirms_nothing(cluster)
        else:
            # Nobody takes over, however long it lasts; the queue is listed, and fails at once.
            time.sleep(LEASE_S if loss == PARTITION else 2)
            assert count(cluster, THIRD) == -1
            if mirrors == UNSYNCED and loss != PARTITION:
                master, _mirrors, _synced = cluster.nodes_of(NAME)
                assert master == "", "recorded as down"
    cluster.await_linked()
    eventually(lambda: count(cluster, MASTER) == kept, f"{kept} messages are there", 0.1)
    with cluster.client(OTHER) as client:
        client.delete(QUEUE)


def _placed(cluster: MirroredCluster) -> tuple[str, set[str], set[str]]:
    try:
        return cluster.nodes_of(NAME)
    except KeyError:
        return "", set(), set()


def _confirms_nothing(cluster: MirroredCluster) -> None:
    """A deposed master, which clients still reach, confirms no publish."""
    with cluster.client(MASTER) as client:
        client.confirm_select()
        client.publish(QUEUE, b"lost", PERSISTENT)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                answer = client.event(0.2)
            except TimeoutError:
                continue
            assert not isinstance(answer, BasicAck), "confirmed by a deposed master"
            return


@contextmanager
def lost(cluster: MirroredCluster, loss: str) -> Iterator[None]:
    """The node of the master is lost during the block."""
    node = cluster[MASTER]
    if loss == KILL:
        node.kill()
    elif loss == STOP:
        assert node.stop() == 0
    else:
        for other in (OTHER, THIRD, *(member.name for member in cluster.members)):
            cluster.network.cut(MASTER, other)
    yield
    if loss == PARTITION:
        cluster.network.heal()
    else:
        node.start()


def alone(name: str, cluster: MirroredCluster) -> None:
    """All nodes die, and one mirror returns alone: it has every confirmed message."""
    set_policy(cluster, '{"ha-mode":"all","ha-sync-mode":"automatic"}')
    with cluster.client(MASTER) as client:
        client.declare(QUEUE, durable=True)
    fill(cluster, EARLIER)
    for node in cluster.nodes.values():
        node.kill()
    cluster[name].start()
    eventually(lambda: count(cluster, name) == EARLIER, f"{name} serves", 0.1)
    for node in cluster.nodes.values():
        if node.name != name:
            node.launch()
    for node in cluster.nodes.values():
        node.await_ready()
    cluster.await_linked()
    with cluster.client(MASTER) as client:
        assert client.drain(QUEUE) == [b"%d" % number for number in range(EARLIER)]
        client.delete(QUEUE)


def forgotten_home(cluster: MirroredCluster) -> None:
    """The node of a master dies for good; the queue goes on, and the node returns empty."""
    set_policy(cluster, '{"ha-mode":"all","ha-sync-mode":"automatic"}')
    with cluster.client(MASTER) as client:
        client.declare(QUEUE, durable=True)
    fill(cluster, EARLIER)
    cluster[MASTER].kill()
    eventually(lambda: count(cluster, THIRD) == EARLIER, "a mirror takes over", 0.1)
    cluster.await_forgotten_lease(MASTER)
    printed = cluster[OTHER].ctl("forget_cluster_node", cluster[MASTER].node)
    assert printed.code == 0, printed
    fill(cluster, LATER, name=OTHER)
    shutil.rmtree(cluster[MASTER].data)
    cluster[MASTER].start()
    cluster.await_linked()
    eventually(
        lambda: MASTER in cluster.nodes_of(NAME)[2], "the returned node has a mirror in sync", 0.2
    )
    assert count(cluster, MASTER) == EARLIER + LATER
    with cluster.client(MASTER) as client:
        client.delete(QUEUE)


# -- declarations ----------------------------------------------------------------------------------


def declared_and_killed(cluster: MirroredCluster) -> None:
    """At declare-ok the mirrors are there: the node that answered may die at once."""
    set_policy(cluster, '{"ha-mode":"all","ha-sync-mode":"automatic"}')
    for number in range(DECLARATIONS):
        queue = QUEUE + b"-%d" % number
        with cluster.client(MASTER) as client:
            client.declare(queue, durable=True)
            cluster[MASTER].kill()
        eventually(partial(_is_usable, cluster, queue), f"{queue!r} is served")
        cluster[MASTER].start()
        cluster.await_linked()
        with cluster.client(THIRD) as client:
            client.delete(queue)


def _is_usable(cluster: MirroredCluster, queue: bytes) -> bool:
    if count(cluster, OTHER, queue) < 0:
        return False
    fill(cluster, 1, queue, OTHER)
    assert count(cluster, THIRD, queue) == 1
    return True


def declared_and_deleted(cluster: MirroredCluster) -> None:
    """Declared through one node, used at once through another, deleted through the third."""
    set_policy(cluster, '{"ha-mode":"all","ha-sync-mode":"automatic"}')
    with cluster.clients() as clients:
        for client in clients:
            client.confirm_select()
        for number in range(20):
            one, two, three = (clients[(number + place) % 3] for place in range(3))
            one.declare(QUEUE, durable=True)
            two.publish(QUEUE, b"%d" % number, PERSISTENT, mandatory=True)
            assert isinstance(two.event(), BasicAck)
            assert three.delete(QUEUE) == 1
    eventually(lambda: NAME not in cluster.groups(NAME), "no group is left", 0.1)


def vhost_deleted(cluster: MirroredCluster) -> None:
    """A vhost goes with its mirrored queues on all nodes, and may be made again."""
    node = cluster[OTHER]
    for _ in range(3):
        for command in (
            ("add_vhost", "mirrored"),
            ("set_permissions", "-p", "mirrored", "guest", ".*", ".*", ".*"),
            ("set_policy", "-p", "mirrored", "all", ".*", '{"ha-mode":"all"}'),
        ):
            assert node.ctl(*command).code == 0, command
        eventually(partial(_all_have_vhost, cluster), "all nodes have the vhost")
        with (
            cluster.client(MASTER, b"mirrored") as client,
            cluster.client(THIRD, b"mirrored") as far,
        ):
            for number in range(3):
                client.declare(b"q%d" % number, durable=True)
                far.confirm_select()
                far.publish(b"q%d" % number, b"m", PERSISTENT, mandatory=True)
            assert len(far.confirms(3)) > 0
            assert node.ctl("delete_vhost", "mirrored").code == 0
            eventually(partial(_is_closed, client), "its clients are closed")
        eventually(
            lambda: not any(key.startswith("mirrored") for key in cluster.keys("q")),
            "no queue is left", 0.1,
        )  # fmt: skip


def _all_have_vhost(cluster: MirroredCluster) -> bool:
    return all(
        ["mirrored"] in node.ctl("-s", "list_vhosts").rows()
        and node.ctl("-s", "list_policies", "-p", "mirrored").rows()
        for node in cluster.nodes.values()
    )


def _is_closed(client: ChannelPeer) -> bool:
    try:
        client.call(QueueDeclare(b"q0", True))
    except (ConnectionClosedError, EOFError):
        return True
    return False


def queue_cases() -> dict[str, QueueCase]:
    """All cases by name."""
    cases: dict[str, QueueCase] = {
        f"t13-{promotes}-{mirrors}-{loss}": partial(promotion, promotes, mirrors, loss)
        for promotes, mirrors, loss in itertools.product(
            ("when-synced", "always"), (SYNCED, UNSYNCED, NONE), (KILL, STOP, PARTITION)
        )
    }
    cases |= {f"t13-alone-{name}": partial(alone, name) for name in (OTHER, THIRD)}
    cases["t13-forgotten-home"] = forgotten_home
    cases["t15-declared-and-killed"] = declared_and_killed
    cases["t15-declared-and-deleted"] = declared_and_deleted
    cases["t15-vhost-deleted"] = vhost_deleted
    return cases
