"""The form for a new queue, with the arguments that are used most."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import (
    area_field,
    box_field,
    choice_field,
    folded,
    folded_form,
    text_field,
)
from warrenmq.management.ui.elements.values import HINT, read_number, read_values
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

_BAD_REQUEST: Final = 400
_TEXTS: Final = (
    ("x-dead-letter-exchange", "Dead letter exchange", ""),
    ("x-dead-letter-routing-key", "Dead letter routing key", "Without one each keeps its own."),
)
_NUMBERS: Final = (
    ("x-message-ttl", "Message TTL", "In milliseconds."),
    ("x-expires", "Auto expire", "Milliseconds without use, after which the queue goes."),
    ("x-max-length", "Max length", "Messages."),
    ("x-max-length-bytes", "Max length in bytes", ""),
    ("x-max-priority", "Maximum priority", ""),
    ("x-delivery-limit", "Delivery limit", "Of quorum queues."),
)
_CHOICES: Final = (
    ("x-overflow", "When it is full", ("drop-head", "reject-publish", "reject-publish-dlx")),
    ("x-queue-mode", "Mode", ("default", "lazy")),
    ("x-queue-type", "Type", ("classic", "quorum")),
)
_SINGLE: Final = "x-single-active-consumer"


@router.post("/new-queue")
async def new_queue(page: PageOf) -> Response:
    """Declare a queue."""
    sent = {name: str(value) for name, value in (await page.form()).items()}
    arguments = _arguments(sent)
    vhost, queue = sent.get("vhost", ""), sent.get("queue", "")
    if not queue:
        raise ApiError(_BAD_REQUEST, "The queue needs a name.")
    body = {
        "durable": bool(sent.get("durable")),
        "auto_delete": bool(sent.get("auto_delete")),
        "arguments": arguments,
    }
    await page.api.put(f"queues/{path_to(vhost, queue)}", body)
    return page.go(f"/queues/{path_to(vhost, queue)}", f"Queue {queue} is there.")


def form_for_new_queue(page: Page) -> h.Node:
    """The form."""
    return folded_form(
        page,
        "Add a queue",
        "/new-queue",
        "Add it",
        text_field("vhost", "Virtual host", page.vhost or "/", is_needed=True),
        text_field("queue", "Name", is_needed=True),
        choice_field("durable", "Durability", [("true", "Durable"), ("", "Transient")], "true"),
        box_field("auto_delete", "Auto-delete: goes with its last consumer"),
        folded(
            "Usual arguments",
            [text_field(name, title, hint=hint, kind="number") for name, title, hint in _NUMBERS],
            [text_field(name, title, hint=hint) for name, title, hint in _TEXTS],
            [
                choice_field(
                    name, title, [("", "as it is without"), *[(each, each) for each in values]]
                )
                for name, title, values in _CHOICES
            ],
            box_field(_SINGLE, "Single active consumer"),
        ),
        area_field("arguments", "Other arguments", hint=HINT),
    )


def _arguments(sent: dict[str, str]) -> dict[str, Any]:
    """The arguments of the fields that are filled. Raises ApiError."""
    found: dict[str, Any] = read_values(sent.get("arguments", ""))
    for name, title, _ in _NUMBERS:
        if sent.get(name):
            found[name] = read_number(title, sent[name])
    found |= {name: sent[name] for name, _, _ in (*_TEXTS, *_CHOICES) if sent.get(name)}
    if sent.get(_SINGLE):
        found[_SINGLE] = True
    return found
