"""A limit for what browsers send: forms and files."""

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# Largest body of a form (bytes), files included.
BODY_MAX: Final = 64 * 2**20


class BodyLimit:
    """Middleware: refuses larger bodies before they are read, and those that hide their length.

    Browsers say the length of each form, and the server cuts a body off there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if "transfer-encoding" in headers:
                reply = PlainTextResponse("A form needs its length.", 411)
                await reply(scope, receive, send)
                return
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > BODY_MAX:
                reply = PlainTextResponse(f"A form has {BODY_MAX} bytes at most.", 413)
                await reply(scope, receive, send)
                return
        await self._app(scope, receive, send)
