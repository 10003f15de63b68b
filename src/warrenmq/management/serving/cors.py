"""CORS: lets pages of chosen other sites use the API in a browser, as `management.cors` says."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warrenmq.server.config.options.http_listeners import ManagementOptions


class WithCors:
    """Middleware that adds the headers a browser asks for."""

    def __init__(self, app: ASGIApp, options: ManagementOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        asked = Headers(scope=scope)
        origin = asked.get("origin")
        if origin is None or not self._options.allows_origin(origin):
            await self._app(scope, receive, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = origin
                headers["access-control-allow-credentials"] = "true"
                headers["access-control-expose-headers"] = "location"
                if scope["method"] == "OPTIONS":
                    headers["access-control-max-age"] = str(self._options.cors_max_age)
                    headers["access-control-allow-methods"] = headers.get("allow", "")
                    headers["access-control-allow-headers"] = asked.get(
                        "access-control-request-headers", ""
                    )
            await send(message)

        await self._app(scope, receive, send_with_cors)
