"""Compares replies by their shape: the keys of objects and the types of values."""

from collections.abc import Iterator
from typing import Any


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Lines that say where the shape of a value differs from RabbitMQ's.

    A list has the shape of its items together. A value that is null or empty on one side says
    nothing about its type.
    """
    if ours in (None, "", [], {}) or theirs in (None, "", [], {}):
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*ours, *theirs}):
            if key not in ours:
                yield f"{path}.{key} is missing"
            elif key not in theirs:
                yield f"{path}.{key} is warren's own"
            else:
                yield from differences(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from differences(_joined(ours), _joined(theirs), f"{path}[]")
    elif _kind(ours) != _kind(theirs):
        yield f"{path} is a {_kind(ours)}, not a {_kind(theirs)}"


def _joined(items: list[Any]) -> Any:
    """One item with the keys of all."""
    if not all(isinstance(item, dict) for item in items):
        return items[0]
    joined: dict[str, Any] = {}
    for item in items:
        joined |= {key: value for key, value in item.items() if value not in (None, "", [], {})}
    return joined


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
