"""The messages of a queue: a look at them where they are, without any effect on them."""

import base64
import binascii
from typing import Any, Final

import htpy as h
import msgspec

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page

# Messages of one look.
_LOOK: Final = 20
# Bytes of each body that are shown.
BODY_MAX: Final = 20_000
_HEX_BYTES: Final = 16


async def messages_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """The messages from the position in the URL on; `search` leaves out those without its text."""
    start = page.query.get("start", "0")
    body = {
        "count": _LOOK,
        "start": int(start) if start.isdigit() and len(start) < 19 else 0,
        "encoding": "base64",
        "truncate": BODY_MAX,
    }
    path = f"warren/queues/{path_to(found['vhost'], found['name'])}/peek"
    try:
        seen = await page.api.post(path, body)
    except ApiError as error:
        return h.p(".none")[f"These messages cannot be looked at: {error.reason}."]
    text = page.query.get("search", "")
    shown = [each for each in seen["messages"] if text.lower() in _text_of(each).lower()]
    return [
        h.p[
            f"{figures.count(seen['messages_ready'])} messages are ready. A look leaves them where "
            "they are."
        ],
        h.form(".filter", action=f"{page.prefix}{page.path}", role="search")[
            h.input(type="hidden", name="tab", value="messages"),
            h.input(type="hidden", name="start", value=str(body["start"])),
            h.label(for_="text")["Text in these messages"],
            h.input("#text", name="search", value=text),
            h.button(type="submit")["Filter"],
        ],
        h.p[
            f"{len(shown)} of {len(seen['messages'])} messages from position ",
            f"{figures.count(body['start'] or seen['first'])} on. ",
            seen["next"] < seen["end"] and h.a(href=page.url(start=seen["next"]))["The next ones"],
        ],
        [message_sheet(each) for each in shown],
    ]


def message_sheet(message: dict[str, Any]) -> h.Element:
    """A message of the API, whose payload is text or in Base64."""
    properties = dict(message.get("properties") or {})
    headers = properties.pop("headers", {})
    payload = _payload(message)
    where = message.get("exchange") or "(the default exchange)"
    return h.article(".sheet")[
        h.p[
            h.b[message.get("routing_key", "")],
            f" from {where}, {figures.size(message.get('payload_bytes'))}",
            message.get("redelivered") and h.span(".badge")["redelivered"],
        ],
        shown_values(properties),
        headers and [h.b["Headers"], shown_values(headers)],
        h.pre[_readable(payload)],
        h.details[h.summary["As bytes"], h.pre[_hex(payload)]],
    ]


def _payload(message: dict[str, Any]) -> bytes:
    text = str(message.get("payload", ""))
    if message.get("payload_encoding") != "base64":
        return text.encode()
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return text.encode()


def _text_of(message: dict[str, Any]) -> str:
    """All of a message that can be searched."""
    properties = msgspec.json.encode(message.get("properties") or {}).decode()
    payload = _payload(message).decode(errors="replace")
    return f"{message.get('routing_key', '')} {properties} {payload}"


def _readable(payload: bytes) -> str:
    """JSON with its structure, or the text."""
    try:
        return msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload.decode(errors="replace")


def _hex(payload: bytes) -> str:
    lines = []
    for at in range(0, min(len(payload), 4096), _HEX_BYTES):
        part = payload[at : at + _HEX_BYTES]
        text = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in part])
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)
