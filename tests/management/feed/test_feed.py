"""A feed tells its sink what the nodes have, again after a restart, and of a whole cluster."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.node_thread import NodeThread
from tests.support.cluster.trio import ClusterNodes, channels
from tests.support.etcd import EtcdServer
from warrenmq.admin.client.client import NodeAddress
from warrenmq.admin.protocol.changes import QUEUE, Changes
from warrenmq.management.feed.feed import Feed

INTERVAL_S = 0.02


class Recorder:
    """A sink that keeps the names of the queues of each node."""

    def __init__(self) -> None:
        self.queues: dict[str, dict[int, str]] = {}
        self.ticks: dict[str, int] = {}
        self._lock = threading.Lock()

    def on_changes(self, node: str, kind: str, changes: Changes) -> None:
        with self._lock:
            if kind == QUEUE:
                queues = self.queues.setdefault(node, {})
                for gone in changes.gone:
                    del queues[gone]
                queues.update({each.id: each.name for each in changes.changed})

    def on_tick(self, node: str, now_ms: int) -> None:
        with self._lock:
            assert now_ms > self.ticks.get(node, 0) - 1
            self.ticks[node] = now_ms

    def names(self, node: str) -> list[str]:
        with self._lock:
            return sorted(self.queues.get(node, {}).values())


class Place:
    """The address of the node that runs at the moment."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def address(self) -> NodeAddress:
        return NodeAddress(self.uri)


Follow = Callable[..., Recorder]


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Starts feeds, which end with the test."""
    feeds = []

    def start(address: Callable[[], NodeAddress], sink: Recorder | None = None) -> Recorder:
        sink = sink or Recorder()
        feeds.append(Feed(address, sink, INTERVAL_S))
        return sink

    yield start
    for feed in feeds:
        feed.end()


def test_a_feed_lives_longer_than_its_node(tmp_path: Path, follow: Follow) -> None:
    node = NodeThread(tmp_path)
    name = node.node.config.node_name
    place = Place(node.uri)
    channel = node.peer().open().channel()
    channel.declare(b"stays", durable=True)
    channel.declare(b"goes")
    sink = follow(place.address)
    eventually(lambda: sink.names(name) == ["goes", "stays"], "the queues are told")
    channel.delete(b"goes")
    eventually(lambda: sink.names(name) == ["stays"], "the deleted queue is gone")
    channel.declare(b"transient")
    eventually(lambda: sink.names(name) == ["stays", "transient"], "the new queue is told")
    node.stop()
    again = NodeThread(tmp_path)
    place.uri = again.uri
    eventually(lambda: sink.names(name) == ["stays"], "the restarted node is told anew")
    again.stop()


class FailingRecorder(Recorder):
    """A sink that fails so many times."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def on_changes(self, node: str, kind: str, changes: Changes) -> None:
        if self.failures and kind == QUEUE:
            self.failures -= 1
            raise RuntimeError("the sink fails")
        super().on_changes(node, kind, changes)


def test_a_feed_lives_longer_than_faults_of_its_sink(
    tmp_path: Path, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    node = NodeThread(tmp_path)
    name = node.node.config.node_name
    node.peer().open().channel().declare(b"q", durable=True)
    sink = FailingRecorder(2)
    follow(Place(node.uri).address, sink)
    eventually(lambda: sink.names(name) == ["q"], "the queue is told")
    (fault,) = [record for record in caplog.records if record.name == "warren.management"]
    assert fault.exc_info is not None and "internal error" in fault.getMessage()
    node.stop()


@pytest.mark.slow
def test_one_node_passes_on_the_figures_of_all(
    etcd: EtcdServer, tmp_path: Path, follow: Follow
) -> None:
    with ClusterNodes(tmp_path, etcd.url, "n1", "n2") as cluster:
        here, there = cluster.nodes
        with channels(cluster.nodes) as (first, second):
            first.queue_declare("q0", durable=True)
            second.queue_declare("q1", durable=True)
            second.queue_declare("q2", durable=True)
        sink = follow(lambda: NodeAddress(here.uri))

        def shows(*there_too: str) -> None:
            wanted = (["q0"], list(there_too))
            eventually(lambda: (sink.names(here.name), sink.names(there.name)) == wanted, "shown")

        shows("q1", "q2")
        there.kill()
        with channels([here]) as (channel,):
            channel.queue_declare("q3", durable=True)
        eventually(lambda: sink.names(here.name) == ["q0", "q3"], "the own node is told on")
        there.start()
        cluster.await_all()
        with channels([there]) as (channel,):
            channel.queue_delete("q1")
            channel.queue_delete("q3")
        shows("q2")
