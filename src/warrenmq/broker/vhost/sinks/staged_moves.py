"""Slices of a stage on the way to their queues, on this node and on others.

The messages of a slice are published together. Their copies for queues of other nodes go first.
When these have arrived, the copies for this node follow, each with its MOVE: a start that finds the
MOVE publishes the message nowhere again. After a crash in between, copies are carried again, and
the other node knows which messages of the stage it has (`SliceCarrier`). A copy for a queue that
is mirrored, or from a node without a carrier, may be doubled (`broker/vhost/remote/copies.py`).
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.content.properties import PublishProperties
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.copies import CopyOptions, CopyWaiter, distant_of, local_of
from warrenmq.broker.vhost.remote.slice_carrier import Crossing, StagePlace
from warrenmq.broker.vhost.sinks.stage import MoveSlice, Stage
from warrenmq.broker.vhost.sinks.staged_routes import StagedRoutes, inspect
from warrenmq.queues.entry import Entry
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.routing.exchange import Exchange
from warrenmq.store.model.message import Message, MovedMessage


class _Move:
    """A staged message with the queues of this node and the exchanges that get it."""

    def __init__(
        self,
        message: MovedMessage,
        queues: list[MessageTaker],
        waits: list[Exchange],
        properties: PublishProperties,
        is_known: bool,
    ) -> None:
        self.message: MovedMessage = message
        self.queues: list[MessageTaker] = queues
        self.waits: list[Exchange] = waits
        self.properties: PublishProperties = properties
        # A consumer may have had the message: the redelivered flag stays.
        self.is_known: bool = is_known


class StagedMoves:
    """Publishes the staged messages of one vhost, by the bindings of the moment."""

    def __init__(self, vhost: VhostQueues, routes: StagedRoutes, delayed: DelayedMessages) -> None:
        self._vhost: VhostQueues = vhost
        self._routes: StagedRoutes = routes
        self._delayed: DelayedMessages = delayed

    def publish(self, taken: MoveSlice, entries: list[Entry], now_ms: i64) -> None:
        """Publish `entries`, those of the slice `taken` that are not published yet."""
        stage = taken.stage
        parcel = _Parcel(self, taken)
        remote = self._delayed.handovers.remote
        carrier = self._vhost.node.slice_carrier
        crossings: dict[bytes, list[Crossing]] = {}
        for entry in entries:
            move = self._route(stage, entry, now_ms)
            parcel.moves.append(move)
            distant = distant_of(move.queues)
            if len(distant) == 0:
                continue
            move.queues = local_of(move.queues)
            if carrier is not None:
                _add_crossings(crossings, move, [each for each in distant if _is_carried(each)])
                distant = [each for each in distant if not _is_carried(each)]
            if len(distant) > 0:
                parcel.left += 1
                properties = move.properties
                # A committed message must not vanish: no queue may refuse it.
                options = CopyOptions(
                    properties.expiration_ms, properties.priority, move.is_known, False
                )
                remote.send(parcel, distant, _plain(move.message), options, now_ms)
        parcel.left += len(crossings)
        if parcel.left == 0:
            parcel.arrive(now_ms)
            return
        stage.is_sending = True
        if carrier is not None:
            # All messages of earlier slices that are settled have a durable MOVE.
            settled_below: i64 = min(stage.unacked)
            place = StagePlace(self._vhost.name, stage.queue.id, settled_below)
            for home in crossings:
                carrier.carry(place, home, crossings[home], parcel)

    def _route(self, stage: Stage, entry: Entry, now_ms: i64) -> _Move:
        staged = entry.message
        properties = inspect(staged)
        message = MovedMessage(
            staged.address,
            properties.raw,
            staged.body,
            properties.persistent,
            now_ms,
            stage.queue.id,
            entry.seq,
        )
        queues = self._routes.queues_for(stage.target, staged.address, properties)
        return _Move(message, queues, self._routes.waits, properties, entry.redelivered)

    def arrive(self, move: _Move, now_ms: i64) -> None:
        """Publish to queues of this node."""
        message, properties, is_known = move.message, move.properties, move.is_known
        ttl_ms, priority = properties.expiration_ms, properties.priority
        arrive(move.queues, message, ttl_ms, priority, now_ms, is_known, may_refuse=False)
        self._delayed.keep_all(message, move.waits, properties.headers, is_known, now_ms)
        self._vhost.journal.moves.add(message)


def _is_carried(queue: MessageTaker) -> bool:
    """Whether a node that comes back knows which messages `queue` has got of a stage.

    A mirror that takes over does not.
    """
    return isinstance(queue, RemoteQueue) and not queue.keeps_consumers


def _add_crossings(
    crossings: dict[bytes, list[Crossing]], move: _Move, elsewhere: list[MessageTaker]
) -> None:
    """Add `move` to the crossings to each node that has some of the queues `elsewhere`."""
    homes: dict[bytes, list[RemoteQueue]] = {}
    for queue in elsewhere:
        assert isinstance(queue, RemoteQueue)
        homes.setdefault(queue.home.name, []).append(queue)
    for home in homes:
        crossing = Crossing(move.message, homes[home], move.is_known)
        crossings.setdefault(home, []).append(crossing)


class _Parcel(CopyWaiter):
    """The messages of a slice, while `left` of them are on their way to other nodes."""

    def __init__(self, staged: StagedMoves, taken: MoveSlice) -> None:
        self.moves: list[_Move] = []
        self.left: i64 = 0
        self._staged: StagedMoves = staged
        self._taken: MoveSlice = taken

    def on_copied(self, now_ms: i64) -> None:
        self.left -= 1
        if self.left == 0:
            self._taken.stage.is_sending = False
            self.arrive(now_ms)

    def arrive(self, now_ms: i64) -> None:
        """Publish to queues of this node, and wait for the journal."""
        taken = self._taken
        for move in self.moves:
            self._staged.arrive(move, now_ms)
            taken.messages.append(move.message)
        self.moves = []
        taken.watch()


def _plain(moved: MovedMessage) -> Message:
    """The content of a copy: another node makes a MOVE of its own, or none."""
    return Message(
        moved.address, moved.properties, moved.body, moved.persistent, moved.timestamp_ms
    )
