"""Names with values, such as headers and arguments, as people write and read them."""

from collections.abc import Mapping
from typing import Any, Final

import htpy as h
import msgspec

from warrenmq.management.ui.api import ApiError

_BAD_REQUEST: Final = 400
# Digits of numbers that have 64 bits.
_DIGITS_MAX: Final = 18
HINT: Final = (
    "One name = value on a line. Numbers, true, false and JSON keep their types; "
    "quotes make a text of them."
)


def read_values(text: str) -> dict[str, Any]:
    """The values in `text`, a line for each. Raises ApiError that names a line without `=`."""
    found = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ApiError(_BAD_REQUEST, f"This line is no name = value: {line}")
        found[name.strip()] = _read(value.strip())
    return found


def read_number(title: str, text: str) -> int:
    """The whole number that a field with this title has. Raises ApiError for another text."""
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise ApiError(_BAD_REQUEST, f"{title} is no whole number: {text}")
    return int(text)


def shown_values(values: Mapping[str, Any]) -> h.Node:
    """The values, one below the other; those of a table below its name."""
    if not values:
        return None
    return h.ul(".values")[[h.li[h.b[name], _shown(value)] for name, value in values.items()]]


def shown_value(value: Any) -> str:
    """A text as it is, and all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shown(value: Any) -> h.Node:
    if isinstance(value, dict) and value:
        return shown_values(value)
    return f" = {shown_value(value)}"


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
