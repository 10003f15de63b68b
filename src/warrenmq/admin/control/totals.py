"""The call for sums over all queues and clients of a node, or of all nodes of its cluster.

They are taken in slices, one a turn, so that their number delays no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Final, TypeVar

import msgspec

from warrenmq.admin.control.peers import Answer, Peers
from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.totals import (
    ClientSums,
    DescribeTotals,
    MirrorSums,
    NodeTotals,
    QueueSums,
    VhostSums,
)
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.client_totals import ClientTotals
from warrenmq.broker.mirrors import MirrorControl
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.queue_totals import QueueTotals
from warrenmq.vocabulary.names import name_text

# Queues, mirrored queues and connections that one turn adds: some milliseconds at most.
QUEUES_A_TURN: Final = 500
MIRRORED_A_TURN: Final = 200
CONNECTIONS_A_TURN: Final = 200

_Each = TypeVar("_Each")
_Sums = TypeVar("_Sums", QueueSums, ClientSums, MirrorSums)


class TotalsCalls:
    """Adds up what `broker` has, and the `peers`, None for none, when a request asks for all nodes.

    `later` runs a step in another turn, `reply` answers a request.
    """

    def __init__(
        self,
        broker: Broker,
        peers: Peers | None,
        later: Callable[[Callable[[], None]], None],
        reply: Callable[[ControlReply], None],
    ) -> None:
        self._broker = broker
        self._peers = peers
        self._later = later
        self._reply = reply

    def start(self, request: DescribeTotals) -> None:
        """Answer the request with the sums."""
        peers = self._peers
        if request.which == "local" or peers is None:
            self._step(self._steps(self._reply))
        else:
            self._step(self._steps(lambda own: self._ask_all(peers, own)))

    def _ask_all(self, peers: Peers, own: NodeTotals) -> None:
        """Reply with the sums of all nodes; one that does not answer has no part in them."""

        def join(answers: dict[str, Answer]) -> None:
            others = [each for each in answers.values() if isinstance(each, NodeTotals)]
            self._reply(reduce(_joined, others, own))

        peers.ask_all(DescribeTotals(), join)

    def _step(self, steps: Iterator[None]) -> None:
        if next(steps, self) is None:
            self._later(lambda: self._step(steps))

    def _steps(self, done: Callable[[NodeTotals], None]) -> Iterator[None]:
        broker = self._broker
        vhosts: dict[str, VhostSums] = {}
        queues, clients, mirrored = QueueTotals(), ClientTotals(), _MirrorTotals()
        for vhost in list(broker.vhosts.values()):
            before = _of_queues(queues)
            for part in _slices(list(vhost.queues.values()), QUEUES_A_TURN):
                for queue in part:
                    if not queue.is_deleted:
                        queues.add(queue)
                yield
            vhosts[name_text(vhost.name)] = _of_vhost(vhost, before, _of_queues(queues))
            if broker.mirrors is not None:
                for names in _slices(list(vhost.queues), MIRRORED_A_TURN):
                    mirrored.add(broker.mirrors, vhost.name, names)
                    yield
        for connections in _slices(list(broker.connections), CONNECTIONS_A_TURN):
            for connection in connections:
                clients.add(connection)
            yield
        done(
            NodeTotals(
                queues=msgspec.convert(queues, QueueSums, from_attributes=True),
                clients=msgspec.convert(clients, ClientSums, from_attributes=True),
                mirrors=msgspec.convert(mirrored, MirrorSums, from_attributes=True),
                vhosts=vhosts,
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
            mirrors, synchronised = control.counts_of(vhost, name)
            if mirrors:
                self.queues += 1
                self.mirrors += mirrors
                self.synchronised += synchronised
                self.unprotected += synchronised == 0


def _of_queues(queues: QueueTotals) -> tuple[int, int, int]:
    return queues.consumers, queues.messages_ready, queues.messages_unacknowledged


def _of_vhost(vhost: Vhost, before: tuple[int, int, int], after: tuple[int, int, int]) -> VhostSums:
    """The sums of a vhost, whose queues have made `after` of the sums `before`."""
    consumers, ready, unacked = (new - old for old, new in zip(before, after, strict=True))
    return VhostSums(
        exchanges=len(vhost.router.exchanges),
        queues=len(vhost.queues) + len(vhost.remote_queues),
        consumers=consumers,
        messages=ready + unacked,
        messages_ready=ready,
        messages_unacknowledged=unacked,
    )


def _joined(own: NodeTotals, other: NodeTotals) -> NodeTotals:
    """The sums of both nodes; both know the same vhosts, exchanges and queues."""
    return NodeTotals(
        queues=_added(own.queues, other.queues),
        clients=_added(own.clients, other.clients),
        mirrors=_added(own.mirrors, other.mirrors),
        vhosts={
            name: _with_messages(vhost, other.vhosts[name]) if name in other.vhosts else vhost
            for name, vhost in own.vhosts.items()
        },
    )


def _added(one: _Sums, other: _Sums) -> _Sums:
    names = one.__struct_fields__
    return type(one)(*(getattr(one, name) + getattr(other, name) for name in names))


def _with_messages(vhost: VhostSums, other: VhostSums) -> VhostSums:
    return msgspec.structs.replace(
        vhost,
        consumers=vhost.consumers + other.consumers,
        messages=vhost.messages + other.messages,
        messages_ready=vhost.messages_ready + other.messages_ready,
        messages_unacknowledged=vhost.messages_unacknowledged + other.messages_unacknowledged,
    )


def _slices(items: list[_Each], size: int) -> Iterator[list[_Each]]:
    return (items[at : at + size] for at in range(0, len(items), size))
