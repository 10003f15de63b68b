"""The page of a request: who asks, what the URL says, and the reply.

A page shows itself whole at first. Every few seconds the browser asks for the same URL again with a
header of htmx, and gets the parts that were made with `live` only; it puts each of them in the
place of the one with its id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import htpy as h
from fastapi import Depends, Request
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, RedirectResponse, Response

from warrenmq.management.ui import frame
from warrenmq.management.ui.api import Api
from warrenmq.management.ui.sign_ins import SignIn, SignIns

COOKIE: Final = "warren_session"
# Ranges of charts by name: length and interval of samples (s).
RANGES: Final = {
    "1m": (60, 5),
    "10m": (600, 5),
    "1h": (3600, 60),
    "8h": (28800, 600),
    "7d": (604800, 1800),
}
_RANGE: Final = "10m"
# Tags that include another one (RabbitMQ's).
_INCLUDED_IN: Final = {
    "management": {"management", "policymaker", "monitoring", "administrator"},
    "policymaker": {"policymaker", "administrator"},
    "monitoring": {"monitoring", "administrator"},
    "administrator": {"administrator"},
}


class SignInNeeded(Exception):
    """Nobody is signed in; `url` is what was asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class ForeignForm(Exception):
    """A form was sent from a page of another site."""


@dataclass
class Page:
    """A page for one request. `query` is what the URL says behind `?`."""

    request: Request
    sign_in: SignIn
    api: Api
    prefix: str
    is_refresh: bool
    _live: list[h.Element] = field(default_factory=list)

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the URL; of a repeated name the last value."""
        return self.request.query_params

    @property
    def path(self) -> str:
        """The escaped path of the page, without the prefix."""
        path: str = self.request.scope["path"]
        return path

    @property
    def vhost(self) -> str:
        """The vhost that the user has picked; empty: all."""
        return self.query.get("vhost", "")

    @property
    def range(self) -> str:
        """The name of the range of all charts."""
        name = self.query.get("range", _RANGE)
        return name if name in RANGES else _RANGE

    def has_tag(self, tag: str) -> bool:
        """Whether the user has `tag`, or one that includes it."""
        return not _INCLUDED_IN[tag].isdisjoint(self.sign_in.tags)

    def samples(self, *groups: str) -> dict[str, int]:
        """The query that asks the API for samples of the range; `groups` such as `lengths`."""
        length, interval = RANGES[self.range]
        return {
            name: value
            for group in groups
            for name, value in ((f"{group}_age", length), (f"{group}_incr", interval))
        }

    def url(self, **changes: Any) -> str:
        """The URL of this page with other values in its query; None leaves one out."""
        return self.link(self.path, **{**self.query, **changes})

    def link(self, path: str, **query: Any) -> str:
        """The URL of another page, with vhost, range and pause of this one."""
        kept = {
            name: self.query[name] for name in ("vhost", "range", "pause") if name in self.query
        }
        values = {name: value for name, value in {**kept, **query}.items() if value is not None}
        return f"{self.prefix}{path}" + (f"?{urlencode(values)}" if values else "")

    def live(self, name: str, *content: h.Node) -> h.Element:
        """A part of the page that refreshes itself; `name` is its id."""
        part = h.div(id=name)[content]
        self._live.append(h.div(id=name, hx_swap_oob="outerMorph")[content])
        return part

    async def show(self, title: str, *content: h.Node, status: int = 200) -> Response:
        """The reply: the page, or what of it is live."""
        seen = await frame.seen(self)
        if self.is_refresh:
            parts = [frame.live_parts(self, seen), *self._live]
            return HTMLResponse(str(h.fragment[parts]), headers={"cache-control": "no-store"})
        return HTMLResponse(
            str(frame.document(self, seen, title, content)),
            status,
            headers={"cache-control": "no-store"},
        )

    async def form(self) -> FormData:
        """The fields of the form that was sent."""
        return await self.request.form(max_files=1, max_part_size=64 * 2**20)

    def go(self, path: str, said: str = "", **query: Any) -> Response:
        """Send the browser on to another page, which says what was done."""
        self.sign_in.said = said
        return RedirectResponse(self.link(path, **query), 303)


def _page(request: Request) -> Page:
    if request.method != "GET" and not is_own_form(request):
        raise ForeignForm
    sign_ins: SignIns = request.app.state.sign_ins
    is_refresh = "hx-request" in request.headers
    found = sign_ins.find(request.cookies.get(COOKIE, ""), not is_refresh)
    if found is None:
        query = f"?{request.url.query}" if request.url.query else ""
        raise SignInNeeded(request.scope["path"] + query if request.method == "GET" else "/")
    peer = request.client.host if request.client is not None else ""
    api = Api(sign_ins.site, found.user, found.ticket, peer)
    return Page(request, found, api, request.app.state.prefix, is_refresh)


# The page of a handler.
PageOf = Annotated[Page, Depends(_page)]


def is_own_form(request: Request) -> bool:
    """Whether a form was sent by a page of this site, as browsers say it of each."""
    fetched = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        return False
    return fetched in (None, "same-origin", "none")
