"""The fields of a user's password and tags, and what they say as the API takes it."""

from collections.abc import Sequence
from typing import Any, Final

import htpy as h
from starlette.datastructures import FormData

from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.forms import box_field, choice_field, text_field

_TAGS: Final = (
    ("administrator", "everything, in all vhosts"),
    ("monitoring", "sees all connections, channels, nodes and vhosts"),
    ("policymaker", "sets policies and parameters in the user's vhosts"),
    ("management", "these pages and the HTTP API, for the user's vhosts"),
    ("impersonator", "may publish in the name of another user"),
)
_KEEP: Final = ("keep", "Keep the password")
_SET: Final = ("set", "Set a password")
_NONE: Final = ("none", "No password: nobody signs in with one")


def user_fields(is_new: bool, tags: Sequence[str] = ()) -> h.Node:
    """The fields for a new user, or for one with these tags."""
    known = [name for name, _ in _TAGS]
    others = [tag for tag in tags if tag not in known]
    choices = [_SET, _NONE] if is_new else [_KEEP, _SET, _NONE]
    return [
        choice_field("login", "Password", choices),
        text_field("password", "New password", kind="password", completion="new-password"),
        text_field("again", "New password again", kind="password", completion="new-password"),
        h.fieldset[
            h.legend["Tags"],
            [box_field(f"tag-{name}", f"{name}: {says}", name in tags) for name, says in _TAGS],
            text_field("tags", "Other tags", ", ".join(others), "With commas between them."),
        ],
    ]


def user_body(fields: FormData) -> dict[str, Any]:
    """The user as the API takes it. Raises ApiError for passwords that are not alike."""
    tags = [name for name, _ in _TAGS if f"tag-{name}" in fields]
    others = [each.strip() for each in str(fields.get("tags", "")).split(",")]
    body: dict[str, Any] = {"tags": [*tags, *filter(None, others)]}
    if fields.get("login") == _SET[0]:
        if fields.get("password") != fields.get("again"):
            raise ApiError(400, "The two passwords are not alike.")
        body["password"] = str(fields.get("password", ""))
    elif fields.get("login") == _NONE[0]:
        body["password_hash"] = ""
    return body
