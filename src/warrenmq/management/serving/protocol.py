"""One client's connection: uvicorn's protocol, with limits on the time and room a client takes.

A client that sends or reads slowly costs a connection and nothing else, and only for so long. The
limits are those of RabbitMQ's server of HTTP.
"""

import asyncio
import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from warrenmq.server.config.options.http_listeners import HttpListener
from warrenmq.server.listening.tls import ListenerTls

# Bytes of a request's head, which is its path and its headers.
_HEAD_BYTES_MAX: Final = 65536
_HEAD_TOO_LARGE: Final = "431 Request Header Fields Too Large"
_TOO_MANY: Final = "503 Service Unavailable"
_REASONS: Final = {
    _HEAD_TOO_LARGE: "the head of the request is too large",
    _TOO_MANY: "there are too many connections",
}


class HttpProtocol(HttpToolsProtocol):
    """A client of a listener with these `options`; `tls` checks its certificate."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        options: HttpListener,
        connections_max: int,
        tls: ListenerTls | None,
    ) -> None:
        super().__init__(config, state, {})
        self._request_timeout_s = options.request_timeout_ms / 1000
        self._idle_timeout_s = options.idle_timeout_ms / 1000
        self._connections_max = connections_max
        self._tls = tls
        self._head_bytes = 0
        # Whether the client is in the midst of a request's head, or about to send the first.
        self._is_in_head = True
        # Ends the connection unless the client goes on in time; None: it owes nothing.
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # uvicorn narrows asyncio's type
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        # A reply has a head and a body. Without this, the body waits 40 ms until the client has
        # acked the head; asyncio sets it only for sockets whose protocol number is set.
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = transport.get_extra_info("ssl_object")
        if self._tls is not None and self._tls.chains.is_too_long(client):
            transport.abort()
        elif len(self.connections) > self._connections_max:
            self._refuse(_TOO_MANY)
        else:
            self._expect(self._request_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # The read in which a head begins may hold much else, so it does not count.
        self._head_bytes += len(data) if self._is_in_head else 0
        super().data_received(data)
        if self._is_in_head:
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(_HEAD_TOO_LARGE)
        elif self._deadline is None and self.cycle.response_complete:
            # Empty lines between requests end uvicorn's own wait for the next one.
            self._expect(self._request_timeout_s)

    def on_message_begin(self) -> None:
        if not self._is_in_head:
            self._is_in_head = True
            self._head_bytes = 0
            self._expect(self._request_timeout_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._expect(self._idle_timeout_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._expect(self._idle_timeout_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect(None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._expect(self._idle_timeout_s)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._expect(None)
        super().resume_writing()

    def _expect(self, timeout_s: float | None) -> None:
        """Give the client so long for its next step; None: it is not its turn."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = (
            None if timeout_s is None else self.loop.call_later(timeout_s, self._give_up)
        )

    def _give_up(self) -> None:
        self.transport.abort()

    def _refuse(self, status: str) -> None:
        """Answer without a look at the request, and close."""
        body = b'{"error":"refused","reason":"%s"}' % _REASONS[status].encode()
        head: dict[str, Any] = {
            "content-type": "application/json",
            "content-length": len(body),
            "connection": "close",
        }
        lines = "".join([f"{name}: {value}\r\n" for name, value in head.items()])
        self.transport.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)
        self.transport.close()
