"""Messages to another queue, and dead letters back to where they died: in slices, with progress.

A slice is one request. The page that follows tells what it did, and offers the next slice.
"""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import choice_field, form, text_field
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

# Messages of a slice, as the API allows.
_SLICE_MAX: Final = 1000
_OF_QUEUE: Final = "/queues/{vhost:segment}/{queue:segment}"
_PLACES: Final = (
    ("exchange", "the exchange, so that all queues bound to it get them"),
    ("queue", "the queue where they died first, and no other"),
)
_Count = Annotated[int, Form(ge=1, le=_SLICE_MAX)]
_Done = Annotated[int, Form(ge=0)]


@router.post(f"{_OF_QUEUE}/move")
async def move(
    page: PageOf,
    vhost: str,
    queue: str,
    destination: Annotated[str, Form()],
    count: _Count = _SLICE_MAX,
    done: _Done = 0,
) -> Response:
    """Move a slice of messages to another queue; `done`: those of the slices before."""
    body = {"count": count, "destination": destination}
    found = await page.api.post(f"warren/queues/{path_to(vhost, queue)}/move", body)
    return page.go(
        f"/queues/{path_to(vhost, queue)}",
        tab="move",
        destination=destination,
        count=count,
        done=done + found["moved"],
        kept=int(found["refused"]),
        left=found["messages_left"],
    )


@router.post(f"{_OF_QUEUE}/replay")
async def replay(
    page: PageOf,
    vhost: str,
    queue: str,
    to: Annotated[str, Form()],
    count: _Count = _SLICE_MAX,
    done: _Done = 0,
) -> Response:
    """Send a slice of dead letters back; `done`: those of the slices before."""
    body = {"count": count, "to": to}
    found = await page.api.post(f"warren/queues/{path_to(vhost, queue)}/replay", body)
    return page.go(
        f"/queues/{path_to(vhost, queue)}",
        tab="move",
        to=to,
        count=count,
        done=done + found["replayed"],
        kept=found["kept"],
        left=found["messages_left"],
    )


async def moving_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """What the last slice did, if the URL tells of one, and the forms for a first slice."""
    place = f"/queues/{path_to(found['vhost'], found['name'])}"

    def count_field(name: str) -> h.Element:
        hint = f"At most {_SLICE_MAX} at a time."
        return text_field("count", "Messages", str(_SLICE_MAX), hint, "number", place=name)

    return [
        _progress(page, place),
        h.h2["Move messages to another queue"],
        form(
            page,
            f"{place}/move",
            "Move them",
            text_field("destination", "Queue", page.query.get("destination", ""), is_needed=True),
            count_field("move"),
        ),
        h.h2["Replay dead letters"],
        h.p[
            "Their header x-death tells where they died first. Messages that never died, or whose "
            "exchange or queue is gone, stay here."
        ],
        form(
            page,
            f"{place}/replay",
            "Replay them",
            choice_field("to", "Back to", _PLACES, page.query.get("to", "")),
            count_field("replay"),
        ),
    ]


def _progress(page: Page, place: str) -> h.Node:
    """The slices so far, and a button for the next one while there is something to do."""
    if "done" not in page.query:
        return None
    done, kept, left, count = [_number(page, name) for name in ("done", "kept", "left", "count")]
    is_move = "destination" in page.query
    name = "destination" if is_move else "to"
    target = page.query.get(name, "")
    verb = "moved" if is_move else "replayed"
    goes_on = kept == 0 and left > 0 if is_move else kept < min(count, left)
    return h.section(".panel")[
        h.p(role="status")[
            f"{figures.count(done)} messages {verb} so far, {figures.count(left)} were left."
        ],
        h.progress(aria_label=f"Messages {verb}", value=str(done), max=str(max(1, done + left))),
        kept > 0 and h.p[_why(is_move, kept, target)],
        goes_on
        and h.form(action=page.link(f"{place}/{'move' if is_move else 'replay'}"), method="post")[
            h.input(type="hidden", name=name, value=target),
            h.input(type="hidden", name="count", value=str(count)),
            h.input(type="hidden", name="done", value=str(done)),
            h.button(".go", type="submit")[f"The next {figures.count(min(count, left - kept))}"],
            " Leave this page to stop here.",
        ],
    ]


def _why(is_move: bool, kept: int, target: str) -> str:
    if is_move:
        return f"The queue {target} did not take the first message. It stays here."
    return (
        f"{figures.count(kept)} messages in front stay: they never died, or where they died is "
        "gone. Replays go on behind them; move them away to make replays faster."
    )


def _number(page: Page, name: str) -> int:
    text = page.query.get(name, "")
    return int(text) if text.isdigit() and len(text) < 16 else 0
