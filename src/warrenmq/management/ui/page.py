"""The page of a request: who asks, what the URL says, and the reply.

A page shows itself whole at first. Every few seconds the browser asks for the same URL again with a
header of htmx, and gets the parts that were made with `live` only; it puts each of them in the
place of the one with its id.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import htpy as h
from fastapi import Depends, Request
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, RedirectResponse, Response

from warrenmq.management.ui import frame
from warrenmq.management.ui.answers import Answer, answer_in, page_again, page_of_form
from warrenmq.management.ui.api import Api, ApiError
from warrenmq.management.ui.body_limit import BODY_MAX
from warrenmq.management.ui.sign_ins import COOKIE, SignIns
from warrenmq.management.ui.visit import Visit

_BAD_REQUEST: Final = 400


class SignInNeeded(Exception):
    """Nobody is signed in; `url` is what was asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class ForeignForm(Exception):
    """A form was sent from a page of another site."""


@dataclass
class Page(Visit):
    """The page of a visit, and the parts of it that refresh themselves."""

    # What became of one of its forms.
    answer: Answer | None = None
    _live: list[h.Element] = field(default_factory=list)
    # Whether a form of the page shows the answer.
    _is_beside: bool = False

    def live(self, name: str, *content: h.Node) -> h.Element:
        """A part of the page that refreshes itself; `name` is its id."""
        part = h.div(id=name)[content]
        self._live.append(h.div(id=name, hx_swap_oob="outerMorph")[content])
        return part

    def is_answered(self, form: str) -> bool:
        """Whether the page shows what became of its form for the path `form`."""
        return self.answer is not None and self.answer.form == form

    def answer_to(self, form: str) -> Answer | None:
        """The answer to the form for the path `form`, which shows it."""
        if not self.is_answered(form):
            return None
        self._is_beside = True
        return self.answer

    async def show(self, title: str, *content: h.Node, status: int = 200) -> Response:
        """The reply: the page, or what of it is live."""
        seen = await frame.seen(self)
        if self.is_refresh:
            parts = [frame.live_parts(self, seen), *self._live]
            return HTMLResponse(str(h.fragment[parts]), headers={"cache-control": "no-store"})
        return HTMLResponse(
            str(frame.document(self, seen, title, [self._refusal(), content])),
            status,
            headers={"cache-control": "no-store"},
        )

    async def form(self) -> FormData:
        """The fields of the form that was sent."""
        return await self.request.form(max_files=1, max_part_size=BODY_MAX)

    async def stay(self, said: h.Node, below: h.Node = None, is_alarm: bool = False) -> Response:
        """Show the page of the form again, which stays filled: what was done is said beside it."""
        again = page_again(self.request, await self.form(), said, below, is_alarm=is_alarm)
        if again is None:
            raise ApiError(_BAD_REQUEST, "The form does not say on which page it was.")
        return again

    def go(self, path: str, said: str = "", **query: Any) -> Response:
        """Send the browser on to another page, which says what was done."""
        self.sign_in.said = said
        return RedirectResponse(self.link(path, **query), 303)

    def _refusal(self) -> h.Node:
        """Why a form was refused, if it has no place of its own for that."""
        if self.answer is None or self._is_beside:
            return None
        return h.p(".alarm", role="alert")[self.answer.said]


async def _page(request: Request) -> Page:
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
    page = Page(request, found, api, request.app.state.prefix, is_refresh)
    if request.method == "GET":
        page.answer = answer_in(request.scope)
    else:
        page.back = page_of_form(await page.form(), page.prefix)
    return page


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
