"""Nodes of a cluster in memory that decide about sinks in a model of etcd: real disks, no links."""

from collections.abc import Callable

from simulator.cluster.etcd_model import EtcdModel, ModelledStore, Run
from tests.cluster.model_cluster import Ends
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode, VirtualClock
from tests.support.brokers.staged import bodies, stage, staged_message
from warrenmq.admin.protocol.requests import Reply, Request
from warrenmq.admin.protocol.sinks import CommitBatch, StageCopies
from warrenmq.broker.definitions.metadata import Change, PutSink, PutVhost
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.records import RunningNode
from warrenmq.cluster.sinks.decision import SinkContext
from warrenmq.cluster.sinks.sinks import ClusterSinks

NAMES = ("n1", "n2", "n3")


class VirtualTimers(ClusterClock):
    """The timers of a node, by the clock of the test."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._clock.call_later(delay_ms / 1000, callback)


class SinkNode:
    """A node with a durable queue `q` of its own, which may crash; it runs from `start` on."""

    def __init__(self, name: str, model: EtcdModel, clock: VirtualClock) -> None:
        self.name = name
        self.disk = MemoryDisk()
        self.memory = MemoryNode(self.disk, clock)
        self.memory.declare(b"q")
        self.is_running = False
        self.is_draining = False
        self._model = model

    def start(self) -> None:
        """Come into the cluster with what is on the disk."""
        self.copy = DefinitionsCopy()
        timers = VirtualTimers(self.memory.clock)
        self.follower = Follower(
            self.name.encode(),
            self.memory.broker,
            self.copy,
            Ends(),
            lambda changes, done: done(""),
            lambda changes, done: done(""),
            self.memory.clock.now_ms,
        )
        self.store = ModelledStore(self._model, self._follow)
        self.sinks = ClusterSinks(
            SinkContext(
                self.name.encode(), self.copy, self.store, timers, self.follower.when_followed
            ),
            self.memory.broker,
        )
        self.follower.sinks = self.sinks
        self.store.told_revision = self._model.revision
        self.follower.load(self._model.load(), self._model.revision)
        self.is_running = True
        self.announce()
        self._set_running(self._model.running)

    def announce(self, is_draining: bool = False) -> None:
        """Tell the others that the node runs, and whether it is in maintenance mode."""
        record = RunningNode(self.name, 1, self.name, 1, "1", is_draining=is_draining)
        self._model.put_node(self.name.encode(), record)

    def crash(self) -> None:
        """Die; what is on the disk stays, and the lease ends."""
        self.pause()
        self.memory = self.memory.crash()
        self._model.drop_node(self.name.encode())

    def pause(self) -> None:
        """Let the node do nothing any more."""
        self.is_running = False
        self.store.drop_requests()

    def _follow(self, revision: int, changes: list[Change]) -> None:
        running = self._model.running_at.get(revision)
        if running is not None:
            self._set_running(running)
        self.follower.follow(revision, changes)

    def _set_running(self, running: dict[bytes, Run]) -> None:
        self.sinks.set_running({name.decode(): run.record for name, run in running.items()}, ())

    @property
    def staging(self) -> Staging:
        """The sinks and stages of the vhost /."""
        return self.memory.vhost.staging

    def row(self, sink: str = "s") -> PutSink | None:
        """The row of a sink as the node has followed it."""
        return self.copy.sinks.get((b"/", sink.encode()))

    def client(self) -> MemoryClient:
        """A new session."""
        return MemoryClient(self.memory)

    def stage(self, batch: int, *texts: str, sink: str = "s") -> int:
        """Stage messages for the queue `q`; returns the id of the stage."""
        messages = [staged_message(text.encode()) for text in texts]
        return stage(self.client(), sink, batch, messages)

    def bodies(self) -> list[bytes]:
        """What has come into the node's queue since the last call."""
        return bodies(self.memory)


class SinkCluster:
    """Three nodes; time moves in `settle` only."""

    def __init__(self) -> None:
        self.model = EtcdModel()
        self.clock = VirtualClock()
        self.model.commit([], [PutVhost(b"/", 0)])
        self.nodes = [SinkNode(name, self.model, self.clock) for name in NAMES]

    def start(self) -> "SinkCluster":
        """Let all nodes run."""
        for node in self.nodes:
            node.start()
        self.settle()
        return self

    def settle(self, ms: int = 600) -> None:
        """Let `ms` pass, and everything happen that is due."""
        for _ in range(0, ms, 25):
            for node in self.nodes:
                if node.is_running:
                    self.turn(node)
            self.clock.advance(25)

    def turn(self, node: SinkNode) -> None:
        """Let one node work, decide and follow."""
        node.memory.work()
        node.memory.commit()
        while node.store.request_count:
            node.store.answer()
        while node.store.tell():
            pass
        node.memory.work()
        node.memory.commit()

    def ask(self, client: MemoryClient, request: Request) -> Reply:
        """The reply to a request that the cluster has to decide."""
        client.send(request)
        for _ in range(50):
            self.settle(250)
            replies = client.replies()
            if replies:
                (reply,) = replies
                return reply
        raise AssertionError(f"no reply to {request}")

    def batch(self, number: int, *texts: str, at: tuple[int, ...] = (0, 1)) -> CommitBatch:
        """Stage a batch at some nodes; returns the commit for the first of them."""
        stages = [self.nodes[place].stage(number, *texts) for place in at]
        copies = [StageCopies(NAMES[place], [id]) for place, id in zip(at, stages, strict=True)]
        return CommitBatch("s", number, [stages[0]], wait_ms=0, copies=copies[1:])
