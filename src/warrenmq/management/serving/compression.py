"""Compresses large replies with gzip for clients that accept it."""

import gzip
from typing import Final

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Smaller bodies (bytes) gain nothing; RabbitMQ's limit.
_BYTES_MIN: Final = 300
# The fastest level: it makes JSON ten times smaller, and a higher one little more.
_LEVEL: Final = 1


class Compressed:
    """Middleware: gzip, on another thread, so that other clients need not wait for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if not _accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            await self._app(scope, receive, send)
            return
        start: Message = {}

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            body = message.get("body", b"")
            is_whole = bool(start) and not message.get("more_body", False)
            if is_whole and len(body) >= _BYTES_MIN:
                body = await to_thread.run_sync(gzip.compress, body, _LEVEL)
                headers = MutableHeaders(scope=start)
                headers["content-encoding"] = "gzip"
                headers["content-length"] = str(len(body))
                message = {**message, "body": body}
            if start:
                await send(start)
                start = {}
            await send(message)

        await self._app(scope, receive, send_compressed)


def _accepts_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
