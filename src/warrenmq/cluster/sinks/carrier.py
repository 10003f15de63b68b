"""Carries messages of sinks to the masters of their queues, until these have them.

A slice's messages for a node travel in one or more calls; those for this node need none. If a call
fails, or its answer, its messages are sent again after a pause, to where the masters are by then:
each queue takes each message once (`broker/vhost/sinks/receipts.py`). Nodes do not wait for each
other.

The master of a mirrored queue hands out a message before its copies have it, and may die then. The
next master takes the message when it is sent again, as it has no receipt. So a message that may
have been handed out is sent again as known, and has the redelivered flag there.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.remote.slice_carrier import Delivery, SliceCarrier, SliceWaiter
from warrenmq.broker.vhost.sinks.receipt_waits import TakeWaiter
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.sinks.calls import (
    PIECE_BYTES,
    Carried,
    CarriedMessage,
    CarryPiece,
    CarryRequest,
    CarrySlice,
    decode_answer,
    encode_request,
)
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# Pause before messages are sent again (ms).
_RETRY_MS: Final = 200
# This node, among the nodes that messages go to.
_HERE: Final = ""
# Bytes of a carried message beside its body, its properties and the names of its queues.
_MESSAGE_BYTES: Final = 600


class StagedCarrier(SliceCarrier):
    """The carrier of a node."""

    def __init__(self, broker: Broker, calls: NodeCalls, clock: ClusterClock) -> None:
        self.broker = broker
        self.calls = calls
        self.clock = clock

    def carry(
        self, vhost: bytes, sink: bytes, floor: int, deliveries: list[Delivery], waiter: SliceWaiter
    ) -> None:
        _Slice(self, self.broker.vhosts[vhost], sink, waiter).send(deliveries)


class _Slice:
    """A slice of `sink` on the way to its queues."""

    def __init__(
        self, carrier: StagedCarrier, vhost: Vhost, sink: bytes, waiter: SliceWaiter
    ) -> None:
        self.carrier = carrier
        self.vhost = vhost
        self.sink = sink
        self._waiter = waiter
        # Messages for nodes that are on their way, or wait to be sent again.
        self._open = 0
        # Nodes that are known to be in the way, so each is logged once.
        self._told: set[str] = set()

    def send(self, deliveries: list[Delivery]) -> None:
        """Send messages to the nodes that lead their queues now."""
        # One more, so that nothing is over before all have been sent.
        self._open += 1
        nodes: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            queues: dict[str, list[MessageTaker]] = {}
            for each in delivery.queues:
                queue = each.current()
                if not queue.is_deleted:
                    queues.setdefault(_home_of(queue), []).append(queue)
            for node, found in queues.items():
                part = Delivery(delivery.position, delivery.message, found, delivery.is_known)
                nodes.setdefault(node, []).append(part)
        for node, parts in nodes.items():
            self._open += 1
            _Journey(self, node, parts).begin()
        self.end_one()

    def send_again(self, node: str, deliveries: list[Delivery], failure: str) -> None:
        """Send messages that `node` has not got, after a pause."""
        if node not in self._told:
            self._told.add(node)
            logger.warning(
                "a batch of a sink waits for %s, which has queues of it: %s",
                f"node {node}" if node else "this node",
                failure,
            )

        def again() -> None:
            if self.vhost.staging.is_stopped:
                # The next start delivers the messages.
                return
            if not self._waiter.is_over():
                self.send(deliveries)
            self.end_one()

        self.carrier.clock.call_later(_RETRY_MS, again)

    def end_one(self) -> None:
        """Count the messages for a node as delivered."""
        self._open -= 1
        if self._open == 0:
            self._waiter.on_delivered(self.carrier.clock.now_ms())


class _Journey(TakeWaiter):
    """Messages of a slice on the way to one node."""

    def __init__(self, part_of: _Slice, node: str, deliveries: list[Delivery]) -> None:
        self._slice = part_of
        self._node = node
        self._deliveries = deliveries
        # Calls without an answer, and why one has failed, "" for none.
        self._open = 0
        self._failure = ""
        # A consumer may have had messages that the node has not got for good.
        self._may_be_known = False
        # There was a link for the calls.
        self._is_sent = False

    def begin(self) -> None:
        """Send the messages."""
        carrier, vhost, sink = self._slice.carrier, self._slice.vhost, self._slice.sink
        now_ms = carrier.clock.now_ms()
        if self._node == _HERE:
            vhost.receipts.take(sink, self._deliveries, self, "", now_ms)
            return
        requests = self._requests()
        self._open = len(requests)
        self._is_sent = carrier.calls.has_link(self._node)
        for request in requests:
            carrier.calls.ask(self._node, encode_request(request), now_ms, self._on_answer)

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        if failure:
            if may_be_known:
                for delivery in self._deliveries:
                    delivery.is_known = True
            self._slice.send_again(self._node, self._deliveries, failure)
        else:
            self._slice.end_one()

    def _requests(self) -> list[CarryRequest]:
        vhost, sink = self._slice.vhost, self._slice.sink
        floor = int(vhost.receipts.floor_of(sink))
        found: list[CarryRequest] = []
        gathered: list[CarriedMessage] = []
        size = 0
        for delivery in self._deliveries:
            message = delivery.message
            body = message.body
            is_large = len(body) > PIECE_BYTES
            if is_large:
                for start in range(0, len(body), PIECE_BYTES):
                    data = body[start : start + PIECE_BYTES]
                    found.append(CarryPiece(vhost.name, sink, delivery.position, start, data))
            carried = CarriedMessage(
                delivery.position,
                [queue.name for queue in delivery.queues],
                message.address,
                message.properties,
                b"" if is_large else body,
                message.persistent,
                delivery.is_known,
                len(body) if is_large else 0,
            )
            more = len(carried.body) + len(carried.properties) + _MESSAGE_BYTES
            more += sum(map(len, carried.queues))
            if gathered and size + more > PIECE_BYTES:
                found.append(CarrySlice(vhost.name, sink, floor, gathered))
                gathered, size = [], 0
            gathered.append(carried)
            size += more
        found.append(CarrySlice(vhost.name, sink, floor, gathered))
        return found

    def _on_answer(self, answer: bytes, failure: str) -> None:
        self._open -= 1
        carried = Carried(failure, 0, self._is_sent) if failure else _read(answer)
        self._failure = carried.failure or self._failure
        self._may_be_known = self._may_be_known or carried.may_be_known
        self._slice.vhost.receipts.raise_floor(self._slice.sink, carried.floor)
        if self._open == 0:
            self.on_taken(self._failure, self._may_be_known)


def _home_of(queue: MessageTaker) -> str:
    """The node that leads `queue`."""
    return name_text(queue.home.name) if isinstance(queue, RemoteQueue) else _HERE


def _read(answer: bytes) -> Carried:
    try:
        return decode_answer(answer)
    except msgspec.DecodeError:
        return Carried("the node has an earlier version")
