"""The fields of a job in a form, as the API describes them, and what was typed into them."""

from collections.abc import Mapping
from typing import Any

import htpy as h
from starlette.datastructures import FormData

from warrenmq.management.ui.elements.forms import (
    area_field,
    box_field,
    choice_field,
    text_field,
)

Kind = dict[str, Any]


def fields(kind: Kind, values: Mapping[str, Any]) -> list[h.Node]:
    """The fields of a job, filled with `values`."""
    return [_field(each, values.get(each["name"])) for each in kind["fields"]]


def _field(field: dict[str, Any], value: Any) -> h.Node:
    name, title, hint = field["name"], field["title"], field["hint"]
    match field["kind"]:
        case "flag":
            return box_field(name, title, field["default"] if value is None else bool(value))
        case "choice":
            choices = [(each, each) for each in field["choices"]]
            return choice_field(name, title, choices, str(value or ""))
        case "texts" | "sources":
            return area_field(name, title, "\n".join(value or []), hint)
        case "output":
            hint = f"{hint}; {{run}} stands for the name of the run" if hint else hint
    shown = "" if value is None else str(value)
    return text_field(name, title, shown, hint, is_needed=field["is_needed"])


def typed(kind: Kind, form: FormData) -> dict[str, Any]:
    """The arguments that were typed; a number that is none stays a text, which the API refuses."""
    found: dict[str, Any] = {}
    for field in kind["fields"]:
        name = field["name"]
        text = str(form.get(name, "")).strip()
        if field["kind"] == "flag":
            if bool(text) != field["default"]:
                found[name] = bool(text)
        elif text:
            found[name] = _value(field["kind"], text)
    return found


def _value(kind: str, text: str) -> Any:
    if kind in ("texts", "sources"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        return {"number": int, "decimal": float}.get(kind, str)(text)
    except ValueError:
        return text
