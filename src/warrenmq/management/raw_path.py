"""Paths as clients send them: `%2F` in a segment belongs to the segment.

uvicorn decodes the path before routing, so that a vhost called "/" would be a part of the path. The
middleware gives the router the path as it came, and the convertor `segment` decodes what a route
takes out of it: a route is declared as `/api/queues/{vhost:segment}/{queue:segment}`.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from warrenmq.management.error_replies import refused
from warrenmq.management.errors import HttpRefusal, not_found


class _Segment(Convertor[str]):
    """One segment of a path."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _Segment())

# Longest path (bytes); RabbitMQ's server refuses a longer first line.
_PATH_MAX: Final = 8000
# The methods that every path has.
_EVERYWHERE: Final = frozenset({"HEAD", "OPTIONS"})


class RawPath:
    """Middleware: raw paths, trailing slashes, HEAD for each GET, OPTIONS, 405 with `allow`.

    `prefix` stands before the paths that clients ask for, and nothing is outside of it.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[APIRoute], prefix: str = "") -> None:
        self._app = app
        self._routes = list(routes)
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1")
        if len(path) > _PATH_MAX:
            reason = f"the path has more than {_PATH_MAX} bytes"
            await refused(HttpRefusal(414, "bad_request", reason))(scope, receive, send)
            return
        if not f"{path}/".startswith(f"{self._prefix}/"):
            await refused(not_found())(scope, receive, send)
            return
        path = path.removeprefix(self._prefix).rstrip("/") or "/"
        methods = self._methods(path)
        method = scope["method"]
        if methods and method not in methods:
            allow = {"allow": ", ".join(sorted(methods))}
            await Response(None, 405, allow)(scope, receive, send)
        elif methods and method == "OPTIONS":
            allow = {"allow": ", ".join(sorted(methods))}
            await Response(None, 200, allow)(scope, receive, send)
        else:
            # uvicorn leaves the body of a reply to HEAD out by itself.
            routed = "GET" if method == "HEAD" else method
            await self._app({**scope, "path": path, "method": routed}, receive, send)

    def _methods(self, path: str) -> set[str]:
        """The methods of a path, empty for one that does not exist."""
        found: set[str] = set()
        for route in self._routes:
            if route.path_regex.match(path):
                found.update(route.methods or ())
        return found | _EVERYWHERE if found else found
