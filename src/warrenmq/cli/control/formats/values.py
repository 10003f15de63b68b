"""Values of listings as text: in tables as Erlang terms, as rabbitmqctl prints them."""

import json
from typing import Any

from msgspec import Struct


class Json(Struct, frozen=True):
    """A value that tables show as JSON, with sorted keys: a policy's definition, a parameter."""

    value: Any


def json_text(value: Any) -> str:
    """`value` as compact JSON, which keeps the order of keys and all characters."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_json_default)


def _json_default(value: Any) -> Any:
    if isinstance(value, Json):
        return value.value
    raise TypeError(f"{type(value)} is no JSON")


def cell_text(value: Any) -> str:
    """`value` as a cell: text bare, nothing for None, `[{"x-max-length",5}]` for a table.

    A tuple is one in Erlang; JSON has a list instead.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, Json):
        return json.dumps(value.value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join([cell_text(each) for each in value]) + "]"
    if isinstance(value, tuple):
        return "{" + ", ".join([cell_text(each) for each in value]) + "}"
    return term_text(value)


def term_text(value: Any) -> str:
    """`value` as a part of a term: texts in quotes, lists and tables without blanks."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        pairs = [f"{{{term_text(name)},{term_text(each)}}}" for name, each in value.items()]
        return "[" + ",".join(pairs) + "]"
    if isinstance(value, list):
        return "[" + ",".join([term_text(each) for each in value]) + "]"
    return "undefined" if value is None else str(value)
