"""Answers the requests that other nodes of the cluster pass on."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.peers import Answer, decode_passed
from warrenmq.admin.node import AdminNode
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.vocabulary.error_codes import BAD_REQUEST


class PeerCalls:
    """Carries out requests of other nodes on `node`."""

    def __init__(self, node: AdminNode, clock: Clock) -> None:
        self._node = node
        self._clock = clock

    def answer(self, node: str, request: bytes, reply: Callable[[bytes], None]) -> None:
        """Carry out what `node` asks for, and pass the answer to `reply`, once, now or later."""

        def encode(answer: Answer) -> None:
            reply(msgspec.msgpack.encode(answer))

        try:
            user, passed = decode_passed(request)
        except msgspec.DecodeError as error:
            # A node of a later version asks for something that this one does not know.
            encode(ErrorReply(BAD_REQUEST, f"node {node} asks for something unknown: {error}"))
        else:
            self._node.carry(user, passed, self._clock, encode)
