"""The HTTP API as the pages use it: requests of the signed-in user, inside the process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec
from starlette.types import ASGIApp

# A request may wait for a silent node of a cluster (s).
_TIMEOUT_S: Final = 60.0


class ApiError(Exception):
    """The API refuses a request; `status` is HTTP's, and `reason` says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Site:
    """The API's application, and the prefix of its paths."""

    app: ASGIApp
    prefix: str


class Api:
    """Requests to the API `site` as `user`; `secret` is the user's password or ticket.

    `peer` is the address of the user's browser, for which the API has rules.
    """

    def __init__(self, site: Site, user: str, secret: str, peer: str) -> None:
        self._url = f"http://api{site.prefix}/api/"
        self._user = user
        self._secret = secret
        self._transport = httpx.ASGITransport(
            site.app, client=(peer, 0), raise_app_exceptions=False
        )

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """What is at `path`, which begins behind `/api/`. Raises ApiError."""
        return await self._request("GET", path, query=query)

    async def post(self, path: str, body: Any = None) -> Any:
        """The reply to `body` as JSON. Raises ApiError."""
        return await self._request("POST", path, body)

    async def put(self, path: str, body: Any = None) -> Any:
        """The reply to `body` as JSON. Raises ApiError."""
        return await self._request("PUT", path, body)

    async def delete(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        """The reply to a DELETE. Raises ApiError."""
        return await self._request("DELETE", path, headers=headers)

    async def read(self, path: str) -> httpx.Response:
        """The reply as it is, for what is no JSON. Raises ApiError."""
        return await self._send("GET", path)

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        reply = await self._send(method, path, body, query, headers)
        return msgspec.json.decode(reply.content) if reply.content else None

    async def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=self._transport,
            auth=httpx.BasicAuth(self._user.encode(), self._secret.encode()),
            base_url=self._url,
            trust_env=False,
            timeout=_TIMEOUT_S,
        ) as client:
            content = b"" if body is None else msgspec.json.encode(body)
            reply = await client.request(
                method, path, content=content, params=query, headers=headers
            )
        if reply.is_error:
            raise ApiError(reply.status_code, _reason(reply))
        return reply


def path_to(*segments: str) -> str:
    """A path of the API or of a page with each segment escaped."""
    return "/".join([quote(segment, safe="") for segment in segments])


def _reason(reply: httpx.Response) -> str:
    try:
        found = msgspec.json.decode(reply.content)
    except msgspec.DecodeError:
        return reply.text or reply.reason_phrase
    if isinstance(found, dict):
        return str(found.get("reason") or found.get("error") or reply.reason_phrase)
    return reply.reason_phrase
