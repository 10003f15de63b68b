"""Messages to another queue, and dead letters back to where they died: in slices, with progress.

A slice is one request. The page that follows tells what it did, and offers the next slice.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import choice_field, form, form_around, text_field
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@dataclass(frozen=True)
class _Way:
    """A way that messages go: `name` in paths, and the field that says where to.

    `done` and `kept` are fields of the API's reply: what went, and whether or how many stay.
    """

    name: str
    target: str
    done: str
    kept: str


_MOVE: Final = _Way("move", "destination", "moved", "refused")
_REPLAY: Final = _Way("replay", "to", "replayed", "kept")
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
    return await _slice(page, path_to(vhost, queue), _MOVE, destination, count, done)


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
    return await _slice(page, path_to(vhost, queue), _REPLAY, to, count, done)


async def _slice(page: Page, path: str, way: _Way, target: str, count: int, done: int) -> Response:
    """Let a slice of the queue at `path` go, and say in the URL what became of it."""
    body = {"count": count, way.target: target}
    found = await page.api.post(f"warren/queues/{path}/{way.name}", body)
    progress = {
        "count": count,
        "done": done + found[way.done],
        "kept": int(found[way.kept]),
        "left": found["messages_left"],
    }
    return page.go(f"/queues/{path}", tab="move", **{way.target: target}, **progress)


async def moving_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """What the last slice did, if the URL tells of one, and the forms for a first slice."""
    place = f"/queues/{path_to(found['vhost'], found['name'])}"

    def count_field(name: str) -> h.Node:
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
    way = _MOVE if _MOVE.target in page.query else _REPLAY
    target = page.query.get(way.target, "")
    goes_on = kept == 0 and left > 0 if way is _MOVE else kept < min(count, left)
    values = {way.target: target, "count": str(count), "done": str(done)}
    return h.section(".panel")[
        h.p(role="status")[
            f"{figures.count(done)} messages {way.done} so far, {figures.count(left)} were left."
        ],
        h.progress(
            aria_label=f"Messages {way.done}", value=str(done), max=str(max(1, done + left))
        ),
        kept > 0 and h.p[_why(way, kept, target)],
        goes_on
        and form_around(
            page,
            f"{place}/{way.name}",
            [h.input(type="hidden", name=name, value=value) for name, value in values.items()],
            h.button(".go", type="submit")[f"The next {figures.count(min(count, left - kept))}"],
            " Leave this page to stop here.",
        ),
    ]


def _why(way: _Way, kept: int, target: str) -> str:
    if way is _MOVE:
        return f"The queue {target} did not take the first message. It stays here."
    return (
        f"{figures.count(kept)} messages in front stay: they never died, or where they died is "
        "gone. Replays go on behind them; move them away to make replays faster."
    )


def _number(page: Page, name: str) -> int:
    text = page.query.get(name, "")
    return int(text) if text.isdigit() and len(text) < 16 else 0
