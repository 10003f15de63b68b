"""Takes staged messages from other nodes into the queues of this one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.sinks.stage import Stage
from warrenmq.broker.vhost.sinks.stand_ins import StandIns
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.links.node_calls import Answerer
from warrenmq.cluster.sinks import calls
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.model.message import Message

_FULL = "memory or disk is short"


class StagedReceiver:
    """Answers the calls of other nodes about staged messages, and passes all others to `rest`."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int], rest: Answerer) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._rest = rest
        self._stand_ins: dict[bytes, tuple[Vhost, StandIns]] = {}
        # The pieces of large bodies that have come, by origin, vhost, stage and seq id.
        self._pieces: dict[tuple[str, bytes, int, int], bytearray] = {}

    def answer(self, node: str, request: bytes, reply: Callable[[bytes], None]) -> None:
        """Carry out what `node` asks for, and pass the answer to `reply`, once, now or later."""
        if not request.startswith(calls.MARK):
            self._rest(node, request, reply)
            return

        def answer(failure: str = "") -> None:
            reply(msgspec.msgpack.encode(calls.Carried(failure)))

        try:
            decoded = calls.decode_request(request)
        except msgspec.DecodeError as error:
            answer(f"it cannot be read: {error}")
            return
        vhost = self._broker.vhosts.get(decoded.vhost)
        if vhost is None:
            answer("the vhost is not there")
        elif isinstance(decoded, calls.CarrySlice):
            self._take(vhost, decoded, answer)
        elif isinstance(decoded, calls.FinishStage):
            origin = decoded.origin.encode()
            self._of(vhost).drop(origin, 0, decoded.stage, self._now_ms())
            stage = decoded.origin, decoded.vhost, decoded.stage
            for place in [place for place in self._pieces if place[:3] == stage]:
                del self._pieces[place]
            answer()
        else:
            self._take_piece(decoded)
            answer()

    def _of(self, vhost: Vhost) -> StandIns:
        known = self._stand_ins.get(vhost.name)
        if known is None or known[0] is not vhost:
            known = self._stand_ins[vhost.name] = vhost, StandIns(vhost.staging)
        return known[1]

    def _take(self, vhost: Vhost, carried: calls.CarrySlice, answer: Callable[[str], None]) -> None:
        if vhost.staging.is_full():
            answer(_FULL)
            return
        stand_ins = self._of(vhost)
        now_ms = self._now_ms()
        origin = carried.origin.encode()
        stand_ins.drop(origin, carried.oldest, -1, now_ms)
        stage = stand_ins.of(origin, carried.stage, now_ms)
        stand_ins.settle(stage, carried.settled_below)
        failure = ""
        for message in carried.messages:
            failure = self._take_message(vhost, stage, carried, message) or failure
        stand_ins.when_durable(stage, lambda: answer(failure))

    def _take_message(
        self, vhost: Vhost, stage: Stage, carried: calls.CarrySlice, message: calls.CarriedMessage
    ) -> str:
        """Publish one message; returns why not, or ""."""
        queues: list[MessageTaker] = []
        for name in message.queues:
            queue = vhost.queues.get(name)
            if queue is None:
                # The queue is deleted, or this node has not followed its declaration yet.
                return "a queue is not there"
            queues.append(queue)
        body = message.body
        if message.pieces_bytes:
            place = carried.origin, carried.vhost, carried.stage, message.seq
            body = bytes(self._pieces.pop(place, b""))
            if len(body) != message.pieces_bytes:
                return "a piece is missing"
        now_ms = self._now_ms()
        content = Message(message.address, message.properties, body, message.is_persistent, now_ms)
        self._of(vhost).take(stage, message.seq, queues, content, message.is_known, now_ms)
        return ""

    def _take_piece(self, piece: calls.CarryPiece) -> None:
        place = piece.origin, piece.vhost, piece.stage, piece.seq
        known = self._pieces.get(place)
        if known is None or piece.start == 0:
            known = self._pieces[place] = bytearray()
        known += piece.data
