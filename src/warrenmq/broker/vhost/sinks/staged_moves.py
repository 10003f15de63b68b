"""Slices of a stage on the way to their queues, on this node and on others.

The messages of a slice are published together. On a lone node each has a MOVE of its own, with its
place in the stage: a start that finds the MOVE publishes the message nowhere again.

In a cluster the queues know what they have got of the sink (`receipts.py`), so every slice may be
repeated. Slices for plain queues of this node follow each other without a wait. Any other one
waits until all of its queues have their messages (`SliceCarrier`). A message that has to wait at a
delayed exchange stays with this node: it gets a MOVE when the queues have theirs.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.content.properties import PublishProperties
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.copies import (
    CopyOptions,
    CopyWaiter,
    distant_of,
    local_of,
)
from warrenmq.broker.vhost.remote.slice_carrier import Delivery, SliceWaiter
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.sinks.stage import MoveSlice, Stage
from warrenmq.broker.vhost.sinks.staged_routes import StagedRoutes, inspect
from warrenmq.queues.entry import Entry
from warrenmq.queues.message_taker import MessageTaker
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

    def __init__(
        self,
        vhost: VhostQueues,
        routes: StagedRoutes,
        delayed: DelayedMessages,
        receipts: Receipts,
    ) -> None:
        self._vhost: VhostQueues = vhost
        self._routes: StagedRoutes = routes
        self._delayed: DelayedMessages = delayed
        self._receipts: Receipts = receipts

    def publish(self, taken: MoveSlice, entries: list[Entry], now_ms: i64) -> None:
        """Publish `entries`, those of the slice `taken` that are not published yet."""
        if len(taken.stage.sink_key) > 0:
            self._deliver(taken, entries, now_ms)
            return
        parcel = _Parcel(self, taken)
        remote = self._delayed.handovers.remote
        for entry in entries:
            move = self._route(taken.stage, entry, now_ms)
            parcel.moves.append(move)
            distant = distant_of(move.queues)
            if len(distant) == 0:
                continue
            move.queues = local_of(move.queues)
            parcel.left += 1
            properties = move.properties
            # A committed message must not vanish: no queue may refuse it.
            options = CopyOptions(
                properties.expiration_ms, properties.priority, move.is_known, False
            )
            remote.send(parcel, distant, _plain(move.message), options, now_ms)
        if parcel.left == 0:
            parcel.arrive(now_ms)
        else:
            taken.stage.is_sending = True

    def _deliver(self, taken: MoveSlice, entries: list[Entry], now_ms: i64) -> None:
        """Deliver messages of a cluster's sink, each to the queues that have not got it."""
        stage = taken.stage
        sink = stage.sink_key
        self._receipts.raise_floor(sink, stage.before_first + min(stage.unacked))
        floor = self._receipts.floor_of(sink)
        deliveries: list[Delivery] = []
        delivered = _Delivered(self, taken)
        is_near = True
        for entry in entries:
            position = stage.before_first + entry.seq
            if position < floor:
                # Another mover has delivered it.
                continue
            move = self._route(stage, entry, now_ms)
            if len(move.waits) > 0:
                delivered.waiting.append(move)
            if len(move.queues) > 0:
                is_near = is_near and len(distant_of(move.queues)) == 0
                deliveries.append(
                    Delivery(position, _plain(move.message), move.queues, move.is_known)
                )
        if is_near and len(delivered.waiting) == 0:
            failure = self._receipts.publish(sink, deliveries, now_ms)
            # Nothing is too far ahead, as there is a bound for messages that are not settled.
            assert len(failure) == 0
            taken.watch()
            return
        carrier = self._vhost.node.slice_carrier
        assert carrier is not None
        stage.is_sending = True
        carrier.carry(self._vhost.name, sink, floor, deliveries, delivered)

    def wait(self, move: _Move, now_ms: i64) -> None:
        """Let a message wait at delayed exchanges of this node."""
        move.queues = []
        self.arrive(move, now_ms)

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
        is_known = entry.redelivered or stage.is_repeated
        return _Move(message, queues, self._routes.waits, properties, is_known)

    def arrive(self, move: _Move, now_ms: i64) -> None:
        """Publish to queues of this node."""
        message, properties, is_known = move.message, move.properties, move.is_known
        ttl_ms, priority = properties.expiration_ms, properties.priority
        arrive(move.queues, message, ttl_ms, priority, now_ms, is_known, may_refuse=False)
        self._delayed.keep_all(message, move.waits, properties.headers, is_known, now_ms)
        self._vhost.journal.moves.add(message)


class _Delivered(SliceWaiter):
    """A slice of a cluster's sink whose messages are on their way to their queues."""

    def __init__(self, staged: StagedMoves, taken: MoveSlice) -> None:
        # Messages that have to wait at delayed exchanges when the queues have theirs.
        self.waiting: list[_Move] = []
        self._staged: StagedMoves = staged
        self._taken: MoveSlice = taken

    def is_over(self) -> bool:
        return self._taken.stage.is_dropped

    def on_delivered(self, now_ms: i64) -> None:
        taken = self._taken
        taken.stage.is_sending = False
        if not taken.stage.is_dropped:
            for move in self.waiting:
                self._staged.wait(move, now_ms)
                taken.messages.append(move.message)
        self.waiting = []
        taken.watch()


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
