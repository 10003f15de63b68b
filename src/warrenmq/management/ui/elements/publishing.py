"""The form of a message to publish, and what it says as the API takes it."""

from collections.abc import Mapping
from typing import Any, Final

import htpy as h

from warrenmq.management.ui.elements.forms import area_field, choice_field, folded, text_field
from warrenmq.management.ui.elements.values import HINT, read_values

# Properties with a line of their own: name, label and hint.
_TEXTS: Final = (
    ("content_type", "Content type", ""),
    ("content_encoding", "Content encoding", ""),
    ("correlation_id", "Correlation id", ""),
    ("reply_to", "Reply to", ""),
    ("expiration", "Expiration", "In milliseconds."),
    ("message_id", "Message id", ""),
    ("type", "Type", ""),
    ("user_id", "User id", "The user who publishes, or nothing."),
    ("app_id", "App id", ""),
    ("cluster_id", "Cluster id", ""),
)
_NUMBERS: Final = (
    ("priority", "Priority", ""),
    ("timestamp", "Timestamp", "In seconds since 1970."),
)
_MODES: Final = (("1", "1: lost at a restart"), ("2", "2: persistent"))
_ENCODINGS: Final = (("string", "text"), ("base64", "Base64"))


def message_fields() -> h.Node:
    """The fields of a message."""
    return [
        area_field("payload", "Payload"),
        choice_field("payload_encoding", "Encoding", _ENCODINGS),
        choice_field("delivery_mode", "Delivery mode", _MODES),
        area_field("headers", "Headers", hint=HINT),
        folded(
            "More properties",
            [text_field(name, label, hint=hint) for name, label, hint in (*_TEXTS, *_NUMBERS)],
        ),
    ]


def message_of(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The body of `publish` for the fields of the form. Raises ApiError for bad headers."""
    properties: dict[str, Any] = {
        name: str(sent[name]) for name, _, _ in (*_TEXTS, *_NUMBERS) if sent.get(name)
    }
    properties["delivery_mode"] = str(sent.get("delivery_mode", "1"))
    headers = read_values(str(sent.get("headers", "")))
    if headers:
        properties["headers"] = headers
    return {
        "properties": properties,
        "routing_key": str(sent.get("routing_key", "")),
        # Browsers send the ends of lines of a form as CR LF.
        "payload": str(sent.get("payload", "")).replace("\r\n", "\n"),
        "payload_encoding": str(sent.get("payload_encoding", "string")),
    }
