"""Limits for what browsers send: forms and files."""

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from warrenmq.management.ui.sign_ins import COOKIE, SignIns

# Largest form with a file (bytes), and the largest one without, which the API's bodies equal.
BODY_MAX: Final = 64 * 2**20
_FORM_MAX: Final = 10 * 2**20
# Who is not signed in sends a name and a password.
_STRANGERS_MAX: Final = 16 * 2**10


class BodyLimit:
    """Middleware: refuses larger bodies before they are read, and those that hide their length.

    Browsers say the length of each form, and the server cuts a body off there.
    """

    def __init__(self, app: ASGIApp, sign_ins: SignIns) -> None:
        self._app = app
        self._sign_ins = sign_ins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if "transfer-encoding" in headers:
                reply = PlainTextResponse("A form needs its length.", 411)
                await reply(scope, receive, send)
                return
            length = headers.get("content-length", "0")
            if length != "0":
                longest = self._longest(Request(scope))
                if not length.isdecimal() or int(length) > longest:
                    reply = PlainTextResponse(f"A form has {longest} bytes at most.", 413)
                    await reply(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _longest(self, request: Request) -> int:
        """The length of the longest body that the sender may send (bytes)."""
        if self._sign_ins.find(request.cookies.get(COOKIE, ""), is_used=False) is None:
            return _STRANGERS_MAX
        is_with_file = request.headers.get("content-type", "").startswith("multipart/form-data")
        return BODY_MAX if is_with_file else _FORM_MAX
