"""Nodes that are not what they seem: clocks that are wrong, names and ports that are taken."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.nodes.real_cluster import RealCluster, RealNode, inside
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.cluster.networks import Address
from warrenmq.wire.methods import BasicAck
from warrenmq.wire.properties import Properties

HOUR_S = 3600
LONG_MS = b"600000"
SHORT_MS = b"1"


@pytest.mark.slow
def test_a_node_whose_clock_is_wrong(cluster: RealCluster) -> None:
    """Messages between it and others expire after their time: neither an hour early nor late."""
    other = cluster["n2"]
    letters = table(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"})
    with cluster.client("n1") as client:
        client.declare(b"expired", durable=True)
    for offset_s in (HOUR_S, -HOUR_S, 0):
        other.stop()
        other.set_clock(offset_s)
        other.start()
        cluster.await_linked()
        with cluster.client("n1") as right, cluster.client("n2") as wrong:
            right.declare(b"right", durable=True, arguments=letters)
            wrong.declare(b"wrong", durable=True, arguments=letters)
            for client in (right, wrong):
                client.confirm_select()
            # Messages expire at the head of a queue: the short ones come first.
            for expiration in (SHORT_MS, LONG_MS):
                properties = Properties(delivery_mode=2, expiration=expiration).encode()
                for client in (right, wrong):
                    for queue in (b"right", b"wrong"):
                        client.publish(queue, expiration, properties)
                        client.event()
                eventually(lambda: right.count(b"expired") == 4, "the short ones are dead letters")
            for queue in (b"right", b"wrong"):
                assert right.drain(queue) == [LONG_MS, LONG_MS]
            assert right.drain(b"expired") == [SHORT_MS] * 4
            right.delete(b"right")
            right.delete(b"wrong")
    with cluster.client("n1") as client:
        client.delete(b"expired")


@contextmanager
def foreign_server(cluster: RealCluster, node: RealNode) -> Iterator[Address]:
    """Somebody else listens where a dead node has listened, and answers nonsense."""
    with inside(cluster.network, node.name):
        server = socket.create_server(node.links)
    callers: list[str] = []

    def serve() -> None:
        while True:
            try:
                connected, caller = server.accept()
            except OSError:
                return
            with connected:
                callers.append(caller[0])
                connected.sendall(b"220 mail.example.org ESMTP\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield node.links
        eventually(lambda: len(callers) > 2, "nodes have tried to link with it")
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.kill
def test_somebody_else_takes_the_port_of_a_dead_node(cluster: RealCluster) -> None:
    """The others neither take it for the node nor stumble over it."""
    node = cluster["n3"]
    with cluster.client("n3") as client:
        client.declare(b"q", durable=True)
        client.confirm_select()
        client.publish(b"q", b"m", PERSISTENT)
        client.confirms(1)
    node.kill()
    with foreign_server(cluster, node), cluster.client("n1") as client:
        client.declare(b"here", durable=True)
        client.confirm_select()
        client.publish(b"here", b"m", PERSISTENT)
        assert isinstance(client.confirms(1)[0], BasicAck)
    node.start()
    cluster.await_linked()
    with cluster.client("n1") as client:
        assert client.drain(b"q") == [b"m"]
        client.delete(b"q")
        client.delete(b"here")


def double(cluster: RealCluster, directory: Path, node: RealNode) -> RealNode:
    """A second node with the name of `node`, at ports of its own."""
    cluster.network.add(f"{node.name}-double")
    return RealNode(
        f"{node.name}-double", cluster.network, directory, cluster.urls(node.name),
        {}, node.node,
    )  # fmt: skip


def test_a_second_node_of_a_name_is_refused(cluster: RealCluster, tmp_path: Path) -> None:
    """With a directory of its own it ends; with a copy of the first one's it waits."""
    node = cluster["n3"]
    second = double(cluster, tmp_path, node)
    with cluster.client("n3") as client:
        client.declare(b"q", durable=True)
        client.confirm_select()
        client.publish(b"q", b"m", PERSISTENT)
        client.confirms(1)
        try:
            second.launch()
            assert second.await_end() == 1
            assert f"has a member '{node.node}' with another data directory" in second.log()
            shutil.rmtree(second.data, ignore_errors=True)
            shutil.copytree(node.data, second.data, ignore=shutil.ignore_patterns("lock*"))
            second.launch()
            text = "waiting for the end of the node of this name that answers at"
            eventually(lambda: text in second.log() or second.has_ended(), "it waits")
            assert text in second.log(), second.log()
        finally:
            second.kill()
        client.publish(b"q", b"m", PERSISTENT)
        assert isinstance(client.event(), BasicAck)
        assert client.drain(b"q") == [b"m", b"m"]
        client.delete(b"q")
    cluster.await_linked()
