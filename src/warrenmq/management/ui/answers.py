"""Answers to forms: the page on which a form was filled in, with what became of it beside the form.

Each form names its page in the field `back`. When the API refuses what was typed, that page is
made again as if the browser had asked for it, and the form shows the reason and what was typed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import htpy as h
from fastapi import Request
from starlette.datastructures import FormData
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from warrenmq.management.ui.visit import is_own_path

# The field with the address of the form's page.
BACK: Final = "back"
_ANSWER: Final = "warren.answer"
_OK: Final = 200


@dataclass(frozen=True)
class Answer:
    """What became of the form that was sent to the path `form`; `below` is shown under it."""

    form: str
    typed: Mapping[str, list[str]]
    said: h.Node
    is_alarm: bool
    below: h.Node = None


class PageAgain(Response):
    """The page `back` of the pages, with an answer to one of its forms."""

    def __init__(self, request: Request, back: str, answer: Answer, status: int) -> None:
        super().__init__(status_code=status)
        self._request = request
        self._back = back
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out a GET of the page in the place of the request that sent the form."""
        path, _, query = self._back.partition("?")
        get = {**scope, "method": "GET", "path": path, "query_string": query.encode()}

        async def send_with_status(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _OK:
                message = {**message, "status": self.status_code}
            await send(message)

        await self._request.app({**get, _ANSWER: self._answer}, receive, send_with_status)


def answer_in(scope: Scope) -> Answer | None:
    """The answer that the page of a request shows."""
    found: Answer | None = scope.get(_ANSWER)
    return found


def page_of_form(sent: FormData, prefix: str) -> str:
    """The URL of the page of a form; empty: the form names none of this site."""
    url = str(sent.get(BACK, ""))
    return url if url.startswith(f"{prefix}/") and is_own_path(url) else ""


def page_again(
    request: Request,
    sent: FormData,
    said: h.Node,
    below: h.Node = None,
    status: int = _OK,
    is_alarm: bool = False,
) -> Response | None:
    """The page of the form that was `sent`; None if the form does not name it."""
    prefix: str = request.app.state.prefix
    back = page_of_form(sent, prefix)
    if not back:
        return None
    typed = {
        name: [str(value) for value in sent.getlist(name) if isinstance(value, str)]
        for name in sent
    }
    answer = Answer(request.scope["path"], typed, said, is_alarm, below)
    return PageAgain(request, back.removeprefix(prefix), answer, status)
