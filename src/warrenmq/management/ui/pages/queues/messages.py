"""The messages of a queue: a look at them where they are, without any effect on them."""

import base64
import binascii
from typing import Any, Final

import htpy as h
import msgspec

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.values import shown_value, shown_values
from warrenmq.management.ui.page import Page

# Messages that the page shows at once: the default of the URL, and the most it may ask for.
_LOOK: Final = 20
_LOOK_MAX: Final = 200
_POSITION_MAX: Final = 1 << 62
# Bytes of each body that are shown.
BODY_MAX: Final = 20_000
_HEX_BYTES: Final = 16


async def messages_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """The messages from the position in the URL on; `search` and `header` leave others out."""
    start = page.query.get("start", "")
    body: dict[str, Any] = {
        "count": _number(page.query.get("count", ""), _LOOK, _LOOK_MAX),
        "start": _number(start, 0, _POSITION_MAX),
        "encoding": "base64",
        "truncate": BODY_MAX,
    }
    path = f"warren/queues/{path_to(found['vhost'], found['name'])}/peek"
    try:
        seen = await page.api.post(path, body)
    except ApiError as error:
        return h.p(".none")[f"These messages cannot be looked at: {error.reason}."]
    text, header = page.query.get("search", "").lower(), page.query.get("header", "")
    messages = seen["messages"]
    shown = [
        each for each in messages if text in _text_of(each).lower() and _has_header(each, header)
    ]
    return [
        h.p[
            f"{figures.count(seen['messages_ready'])} messages are ready. A look leaves them where "
            "they are."
        ],
        _look_form(page, body),
        h.p(role="status")[
            f"{len(shown)} of {len(messages)} messages from position ",
            f"{figures.count(max(body['start'], seen['first']))} on. ",
            seen["next"] < seen["end"] and h.a(href=page.url(start=seen["next"]))["The next ones"],
        ],
        [message_sheet(each) for each in shown],
    ]


def _look_form(page: Page, body: dict[str, Any]) -> h.Element:
    """What to look at, as the URL says it."""
    fields = (
        ("start", "From position", page.query.get("start", ""), "10"),
        ("count", "Messages", str(body["count"]), "4"),
        ("search", "Text in them", page.query.get("search", ""), "14"),
        ("header", "Header", page.query.get("header", ""), "14"),
    )
    kept = {name: page.query[name] for name in ("vhost", "range", "pause") if name in page.query}
    return h.form(".filter", action=f"{page.prefix}{page.path}", role="search")[
        [
            h.input(type="hidden", name=name, value=value)
            for name, value in {**kept, "tab": "messages"}.items()
        ],
        [
            h.label[f"{title} ", h.input(name=name, value=value, size=size)]
            for name, title, value, size in fields
        ],
        h.button(type="submit")["Look"],
        h.small["A header is a name, or name = value."],
    ]


def _number(text: str, default: int, highest: int) -> int:
    return min(int(text), highest) if text.isdigit() and len(text) < 19 else default


def _has_header(message: dict[str, Any], wanted: str) -> bool:
    """Whether a message has the header `name`, or `name = value`; every one has none."""
    name, equals, value = [each.strip() for each in wanted.partition("=")]
    headers = message["properties"].get("headers", {})
    return not name or (name in headers and (not equals or shown_value(headers[name]) == value))


async def oldest_since_ms(page: Page, found: dict[str, Any]) -> int | None:
    """When the oldest ready message came (Unix ms); None if there is none, or nobody may look."""
    path = f"warren/queues/{path_to(found['vhost'], found['name'])}/peek"
    try:
        seen = await page.api.post(path, {"count": 1, "truncate": 0})
    except ApiError:
        return None
    return seen["messages"][0]["enqueued_at"] if seen["messages"] else None


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
            "position" in message
            and [
                h.br,
                f"Position {figures.count(message['position'])}, in the queue since ",
                f"{figures.moment(message['enqueued_at'])} UTC",
            ],
        ],
        shown_values(properties),
        headers and [h.b["Headers"], shown_values(headers)],
        len(payload) < message.get("payload_bytes", 0)
        and h.p[f"The first {figures.size(len(payload))} of it:"],
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
