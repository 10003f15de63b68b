"""The headers that every reply has."""

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'",
    "vary": "accept, accept-encoding, origin",
    "x-content-type-options": "nosniff",
}


class WithHeaders:
    """Middleware that adds RabbitMQ's headers to replies; `others` are the configuration's."""

    def __init__(self, app: ASGIApp, others: Mapping[str, str]) -> None:
        self._app = app
        self._headers = {**_HEADERS, **others}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
