"""The call for sums over all queues and clients of a node.

They are taken in slices, one a turn, so that their number delays no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.totals import (
    ClientSums,
    DescribeTotals,
    MirrorSums,
    NodeTotals,
    QueueSums,
)
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.client_totals import ClientTotals
from warrenmq.broker.mirrors import MirrorControl, MirrorFacts
from warrenmq.queues.queue_totals import QueueTotals

# Queues, mirrored queues and connections that one turn adds: some milliseconds at most.
QUEUES_A_TURN: Final = 500
MIRRORED_A_TURN: Final = 50
CONNECTIONS_A_TURN: Final = 200

_Each = TypeVar("_Each")


class TotalsCalls:
    """Adds up what `broker` has; `later` runs a step in another turn, `reply` answers a request."""

    def __init__(
        self,
        broker: Broker,
        later: Callable[[Callable[[], None]], None],
        reply: Callable[[ControlReply], None],
    ) -> None:
        self._broker = broker
        self._later = later
        self._reply = reply

    def start(self, _request: DescribeTotals) -> None:
        """Answer the request with the sums."""
        self._step(self._steps())

    def _step(self, steps: Iterator[None]) -> None:
        if next(steps, self) is None:
            self._later(lambda: self._step(steps))

    def _steps(self) -> Iterator[None]:
        broker = self._broker
        queues, clients, mirrored = QueueTotals(), ClientTotals(), _MirrorTotals()
        for vhost in list(broker.vhosts.values()):
            for part in _slices(list(vhost.queues.values()), QUEUES_A_TURN):
                for queue in part:
                    if not queue.is_deleted:
                        queues.add(queue)
                yield
            if broker.mirrors is not None:
                for names in _slices(list(vhost.queues), MIRRORED_A_TURN):
                    mirrored.add(broker.mirrors, vhost.name, names)
                    yield
        for connections in _slices(list(broker.connections), CONNECTIONS_A_TURN):
            for connection in connections:
                clients.add(connection)
            yield
        self._reply(
            NodeTotals(
                queues=msgspec.convert(queues, QueueSums, from_attributes=True),
                clients=msgspec.convert(clients, ClientSums, from_attributes=True),
                mirrors=msgspec.convert(mirrored, MirrorSums, from_attributes=True),
            )
        )


class _MirrorTotals:
    """The sums over the mirrored queues that were added; see MirrorSums."""

    def __init__(self) -> None:
        self.queues = 0
        self.mirrors = 0
        self.synchronised = 0
        self.unprotected = 0

    def add(self, control: MirrorControl, vhost: bytes, names: list[bytes]) -> None:
        """Add those of the queues `names` that have mirrors."""
        for name in names:
            facts = control.facts_of(vhost, name)
            if facts is not None and facts.mirrors:
                self._add(facts)

    def _add(self, facts: MirrorFacts) -> None:
        synchronised = sum(mirror.is_synced for mirror in facts.mirrors)
        self.queues += 1
        self.mirrors += len(facts.mirrors)
        self.synchronised += synchronised
        self.unprotected += synchronised == 0


def _slices(items: list[_Each], size: int) -> Iterator[list[_Each]]:
    return (items[at : at + size] for at in range(0, len(items), size))
