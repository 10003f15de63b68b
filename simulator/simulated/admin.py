"""A client of the admin protocol in a history: real frames over a session called as a function."""

from __future__ import annotations

from collections.abc import Callable

from simulator.simulated.node import SimulatedNode
from warrenmq.admin.protocol.requests import (
    LENGTH_BYTES,
    LoggedIn,
    Login,
    Reply,
    Request,
    decode_reply,
    encode_frame,
)
from warrenmq.admin.server import AdminSession


class AdminClient:
    """One admin connection, which has at most one request without an answer."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.output = bytearray()
        self.then: Callable[[Reply], None] | None = None
        self.is_closed = False
        self.session = AdminSession(node.admin, self, node.clock, "simulated", True)
        self.session.receive(bytes(encode_frame(Login("guest", "guest", "/"))))
        reply = self._take()
        assert isinstance(reply, LoggedIn), reply

    def write(self, data: bytearray, /) -> None:
        """Take bytes that the session sends."""
        self.output += data

    def close(self) -> None:
        """Note that the session closes the connection."""
        self.is_closed = True

    def leave(self) -> None:
        """Disconnect the client; the answer to an open request is dropped."""
        self.then = None
        self.session.connection_lost()

    def ask(self, request: Request, then: Callable[[Reply], None]) -> None:
        """Send `request`; `then` gets the answer, now or in a later turn."""
        self.then = then
        self.session.receive(bytes(encode_frame(request)))

    def take_answers(self) -> None:
        """Pass each answer that has come to its callback, which may send another request."""
        while self.output and self.then is not None:
            then, self.then = self.then, None
            then(self._take())

    def answer_to(self, request: Request) -> Reply:
        """Send `request` and let the node work until it answers; returns the answer."""
        replies: list[Reply] = []
        self.ask(request, replies.append)
        self.take_answers()
        if not replies:
            self.node.drain()
            self.take_answers()
        return replies[0]

    def _take(self) -> Reply:
        end = LENGTH_BYTES + int.from_bytes(self.output[:LENGTH_BYTES], "big")
        reply = decode_reply(bytes(self.output[LENGTH_BYTES:end]))
        del self.output[:end]
        return reply
