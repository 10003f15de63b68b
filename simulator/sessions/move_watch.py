"""Finds which staged messages a node publishes, and to which places, in one end of a turn."""

from __future__ import annotations

from typing import Final

from simulator.models.messages import QueueModel, Violation, number_of
from simulator.models.sink_records import StagedMessage
from simulator.models.sinks import StagedMessages
from simulator.models.topology import TopologyModel
from simulator.simulated.node import SimulatedNode
from warrenmq.store.model.message import MovedMessage


def route(topology: TopologyModel, target: bytes, exchange: bytes, key: bytes) -> list[QueueModel]:
    """The queues of a staged message; `target` is the queue of its stage, or empty."""
    if not target:
        return topology.route(exchange, [key])
    queue = topology.queues.get(target)
    return [] if queue is None else [queue]


class _MoveWatch:
    """Compares the slices being published before and after the end of a turn.

    Subclasses define `on_published`.
    """

    def __init__(self, staged: StagedMessages) -> None:
        self.staged: Final = staged
        self._known: list[object] = []
        # Seq id of the next message in each queue, by queue id.
        self._next: dict[int, int] = {}

    def begin(self, node: SimulatedNode) -> None:
        """Remember the state before the vhost ends its turn."""
        self._known = list(node.vhost.staging.mover.slices)
        self._next = {queue.id: queue.next_seq for queue in node.vhost.queues.values()}

    def end(self, node: SimulatedNode) -> None:
        """Report the messages that the vhost has published since `begin`."""
        for taken in node.vhost.staging.mover.slices:
            if not any(taken is known for known in self._known):
                for moved in taken.messages:
                    self._follow(node, moved)
        # References kept here would keep the whole node in memory.
        self._known = []

    def _follow(self, node: SimulatedNode, moved: MovedMessage) -> None:
        message = self.staged.expect(number_of(moved.body))
        places: list[tuple[int, int]] = []
        topology = self.staged.oracle.topology
        for queue in route(topology, message.stage.target, message.exchange, message.key):
            places.append((queue.id, self._next[queue.id]))
            self._next[queue.id] += 1
        self.on_published(message, places, node.now_ms)

    def on_published(
        self, message: StagedMessage, places: list[tuple[int, int]], now_ms: int
    ) -> None:
        """Take a message that is at `places`: (queue id, seq id)."""
        raise NotImplementedError


class OracleWatch(_MoveWatch):
    """Reports to the oracle; `is_sure`: the oracle knows the disk that the node started from."""

    def __init__(self, staged: StagedMessages, is_sure: bool) -> None:
        super().__init__(staged)
        self.is_sure = is_sure

    def on_published(
        self, message: StagedMessage, places: list[tuple[int, int]], now_ms: int
    ) -> None:
        """See _MoveWatch; messages must be published in the order of their batch."""
        before = message.previous
        if (
            self.is_sure
            and before is not None
            and before.published_by is not self
            and not before.is_durable
        ):
            raise Violation(
                "order",
                f"message {message.content.number} of a batch is published before message {before.content.number}",
            )
        queues = self.staged.oracle.queues
        found = []
        for queue_id, seq in places:
            queue = queues[queue_id]
            times = [time for time in (message.expiration_ms, queue.ttl_ms) if time]
            found.append((queue, seq, now_ms + min(times) if times else 0))
        self.staged.published(message, self, found)


class AuditWatch(_MoveWatch):
    """Collects, per queue id, what a node without clients publishes."""

    def __init__(self, staged: StagedMessages) -> None:
        super().__init__(staged)
        self.numbers: set[int] = set()
        self.by_queue: dict[int, set[int]] = {}

    def without_published(self, queue: QueueModel, numbers: list[int]) -> list[int]:
        """The numbers found in `queue` without those that this node has published."""
        if len(set(numbers)) < len(numbers):
            raise Violation(
                "twice", f"queue {queue.name} has messages twice after a restart: {numbers}"
            )
        published = self.by_queue.get(queue.id, set())
        return [number for number in numbers if number not in published]

    def on_published(
        self, message: StagedMessage, places: list[tuple[int, int]], now_ms: int
    ) -> None:
        """See _MoveWatch; a later start may publish the message again until its move is on disk."""
        number = message.content.number
        self.numbers.add(number)
        for queue_id, _ in places:
            self.by_queue.setdefault(queue_id, set()).add(number)
