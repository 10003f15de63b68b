"""Carriers of sinks' messages between the two nodes of a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.remote.two_nodes import BACK, FRONT, LinkedBroker, TwoNodes
from warrenmq.broker.definitions.rights import Rights
from warrenmq.broker.vhost.sinks.stage import Author, Stage
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.links.node_calls import ANSWER_MS, Answered, NodeCalls
from warrenmq.cluster.sinks.carrier import StagedCarrier
from warrenmq.cluster.sinks.receiver import StagedReceiver
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue

SINK_BIRTH = 1
SINK_KEY = b"sink/%d" % SINK_BIRTH


class Timers(ClusterClock):
    """The common clock of the nodes."""

    def __init__(self, cluster: TwoNodes) -> None:
        self._cluster = cluster
        self._timers: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self._cluster.front.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers.append((self.now_ms() + delay_ms, callback))

    def call_due(self) -> None:
        """Make the calls that are due."""
        due = [call for at_ms, call in self._timers if at_ms <= self.now_ms()]
        self._timers = [timer for timer in self._timers if timer[0] > self.now_ms()]
        for call in due:
            call()


class MemoryCalls(NodeCalls):
    """Calls of the node `name` to the other one, which may get lost."""

    def __init__(self, cars: Carriers, name: bytes) -> None:
        super().__init__(lambda: None)
        self._cars = cars
        self._name = name
        # Messages of all calls.
        self.sent_bytes = 0
        # Numbers of calls to come of which the answer is lost.
        self.lost_answers = 0
        self.is_cut = False

    def has_link(self, node: str) -> bool:
        return not self.is_cut

    def ask(
        self,
        node: str,
        request: bytes,
        now_ms: int,
        done: Answered,
        wait_ms: int = ANSWER_MS,
    ) -> None:
        if self.is_cut:
            done(b"", f"there is no link to node {node}")
            return
        self.sent_bytes += len(request)
        is_lost = self.lost_answers > 0
        self.lost_answers -= is_lost

        def reply(answer: bytes) -> None:
            if is_lost:
                done(b"", "the link was lost")
            else:
                done(answer, "")

        self._cars.receivers[node.encode()].answer(self._name.decode(), request, reply)


class Carriers:
    """The carriers and receivers of both nodes of `cluster`."""

    def __init__(self, cluster: TwoNodes) -> None:
        self.cluster = cluster
        self.timers = Timers(cluster)
        # What both nodes have followed; the sink of `SINK_KEY` is in force later.
        self.followed = 0
        self.receivers: dict[bytes, StagedReceiver] = {}
        self.calls: dict[bytes, MemoryCalls] = {}
        for name, node in cluster.nodes.items():
            self.calls[name] = MemoryCalls(self, name)
            self.receivers[name] = StagedReceiver(
                node.broker,
                lambda: self.followed,
                self.timers.now_ms,
                lambda _node, _request, _reply: None,
            )
            node.broker.slice_carrier = StagedCarrier(node.broker, self.calls[name], self.timers)

    def pass_time(self, ms: int = 1000) -> None:
        """Let `ms` pass, and make the calls that fall due."""
        for _ in range(0, ms, 50):
            self.cluster.advance(50)
            self.timers.call_due()
        self.cluster.pump()

    def move(self, name: bytes, messages: list[bytes], slice_messages: int = 4) -> Stage:
        """Let the node `name` move a committed stage of the sink with `messages`."""
        node = self.cluster.nodes[name]
        staging = node.vhost.staging
        staging.mover.slice_messages = slice_messages
        account = node.broker.access.account(b"guest")
        author = Author(account, Rights(account.name, b"/", ".*", ".*", ".*"))
        client = object()
        stage = staging.open(b"sink", 0, client, node.now_ms)
        staging.stage_block(stage.queue.id, client, b"".join(messages), author, node.now_ms)
        finished: list[object] = []
        staging.finish(stage.queue.id, client, len(messages), finished.append, node.now_ms)
        self.cluster.pump()
        assert finished == [None]
        stage.sink_key = SINK_KEY
        staging.commit(b"sink", 0, [stage.queue.id], {}, False, lambda _outcome, _reason: None)
        self.cluster.pump()
        return stage

    def is_moving(self, name: bytes) -> bool:
        """Whether the node `name` has messages to deliver."""
        return self.cluster.nodes[name].vhost.staging.is_busy(b"sink")

    def bodies(self, name: bytes, queue: bytes) -> list[bytes]:
        """What a queue of the node `name` has."""
        return [entry.message.body for entry in self._entries(name, queue)]

    def known_bodies(self, name: bytes, queue: bytes) -> list[bytes]:
        """What a queue of the node `name` has that a consumer may have had before."""
        return [entry.message.body for entry in self._entries(name, queue) if entry.redelivered]

    def _entries(self, name: bytes, queue: bytes) -> list[Entry]:
        return self.cluster.nodes[name].vhost.queues[queue].backing.peek(0, 1000, 1 << 24)


def other_of(name: bytes) -> bytes:
    """The other node."""
    return BACK if name == FRONT else FRONT


def copy_of(node: LinkedBroker, queue: Queue) -> Queue:
    """A new hidden copy of `queue` on `node`."""
    definition = queue.definition
    definition = type(definition)(
        definition.name,
        node.broker.next_queue_id(),
        definition.durable,
        definition.auto_delete,
        None,
        definition.arguments,
        definition.settings,
        definition.birth,
    )
    return node.vhost.add_hidden_queue(definition, node.now_ms)
