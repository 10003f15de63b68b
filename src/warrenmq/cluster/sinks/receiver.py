"""Takes messages of sinks from other nodes into the queues of this one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.remote.slice_carrier import Delivery
from warrenmq.broker.vhost.sinks.receipt_waits import TakeWaiter
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.links.node_calls import Answerer
from warrenmq.cluster.sinks import calls
from warrenmq.cluster.sinks.sink_row import parse_sink_key
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.model.message import Message

_FULL = "memory or disk is short"
_DELETED = "the sink is deleted"


class _Answer(TakeWaiter):
    """The answer to a slice of the sink `sink`."""

    def __init__(self, vhost: Vhost, sink: bytes, reply: Callable[[bytes], None]) -> None:
        self._vhost = vhost
        self._sink = sink
        self._reply = reply

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        floor = int(self._vhost.receipts.floor_of(self._sink))
        self._reply(msgspec.msgpack.encode(calls.Carried(failure, floor, may_be_known)))


class StagedReceiver:
    """Answers the calls of other nodes about staged messages, and passes all others to `rest`.

    `followed()` is the last revision of the cluster that is in force at this node.
    """

    def __init__(
        self,
        broker: Broker,
        followed: Callable[[], int],
        now_ms: Callable[[], int],
        rest: Answerer,
    ) -> None:
        self._broker = broker
        self._followed = followed
        self._now_ms = now_ms
        self._rest = rest
        # The pieces of large bodies that have come, by node, vhost, sink and position.
        self._pieces: dict[tuple[str, bytes, bytes, int], bytearray] = {}

    def answer(self, node: str, request: bytes, reply: Callable[[bytes], None]) -> None:
        """Carry out what `node` asks for, and pass the answer to `reply`, once, now or later."""
        if not request.startswith(calls.MARK):
            self._rest(node, request, reply)
            return

        def answer(failure: str = "") -> None:
            reply(msgspec.msgpack.encode(calls.Carried(failure)))

        try:
            decoded = calls.decode_request(request)
            life = parse_sink_key(decoded.sink)
        except (msgspec.DecodeError, ValueError) as error:
            answer(f"it cannot be read: {error}")
            return
        vhost = self._broker.vhosts.get(decoded.vhost)
        if vhost is None:
            answer("the vhost is not there")
        elif self._is_over(vhost, decoded.sink, *life):
            # The receipts of a deleted sink are gone. A mover that was frozen since before the
            # deletion sends messages that are here already, and they would be published twice.
            answer(_DELETED)
        elif isinstance(decoded, calls.CarryPiece):
            self._take_piece(node, decoded)
            answer()
        elif vhost.staging.is_full():
            answer(_FULL)
        else:
            self._take(node, vhost, decoded, _Answer(vhost, decoded.sink, reply))

    def _is_over(self, vhost: Vhost, key: bytes, name: bytes, birth: int) -> bool:
        """Whether the sink is deleted, and not only unknown because this node follows late."""
        sink = vhost.staging.sinks.get(name)
        return (sink is None or sink.key != key) and birth <= self._followed()

    def _take(self, node: str, vhost: Vhost, carried: calls.CarrySlice, answer: _Answer) -> None:
        vhost.receipts.raise_floor(carried.sink, carried.floor)
        failure = ""
        deliveries: list[Delivery] = []
        for message in carried.messages:
            body = self._body(node, carried, message)
            if body is None:
                failure = "a piece is missing"
                continue
            queues: list[MessageTaker] = []
            for name in message.queues:
                queue = vhost.queues.get(name)
                if queue is None:
                    # It is deleted, has its master elsewhere, or this node has not followed its
                    # declaration yet. The plain queues of a message share a receipt, so all wait.
                    failure = "a queue is not there"
                    queues = []
                    break
                queues.append(queue)
            content = Message(
                message.address, message.properties, body, message.is_persistent, self._now_ms()
            )
            deliveries.append(Delivery(message.position, content, queues, message.is_known))
        self._forget_pieces(carried)
        vhost.receipts.take(carried.sink, deliveries, answer, failure, self._now_ms())

    def _body(
        self, node: str, carried: calls.CarrySlice, message: calls.CarriedMessage
    ) -> bytes | None:
        """The body of a message; None if it has come in part only."""
        if not message.pieces_bytes:
            return message.body
        place = node, carried.vhost, carried.sink, message.position
        body = bytes(self._pieces.pop(place, b""))
        return body if len(body) == message.pieces_bytes else None

    def _take_piece(self, node: str, piece: calls.CarryPiece) -> None:
        place = node, piece.vhost, piece.sink, piece.position
        known = self._pieces.get(place)
        if known is None or piece.start == 0:
            known = self._pieces[place] = bytearray()
        known += piece.data

    def _forget_pieces(self, carried: calls.CarrySlice) -> None:
        """Forget pieces of messages that nobody sends any more."""
        sink = carried.vhost, carried.sink
        for place in [place for place in self._pieces if place[1:3] == sink]:
            if place[3] < carried.floor:
                del self._pieces[place]
