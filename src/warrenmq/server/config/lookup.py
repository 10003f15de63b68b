"""Finds the key that a setting names."""

from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import Key, is_match, parts_of
from warrenmq.server.config.keys import ALL, BY_NAME, PATTERNS

# How like a key an unknown name must be, for a hint.
_LIKENESS_MIN: Final = 0.8
_PART_LIKENESS_MIN: Final = 0.65


def find_key(name: str) -> Key:
    """The row of the table for the key `name`. Raises ConfigError with the closest known key."""
    key = BY_NAME.get(name)
    if key is not None and "*" not in name:
        return key
    parts = parts_of(name)
    for pattern in PATTERNS:
        if is_match(pattern.name, parts):
            return pattern
    # Imported only here: few configurations have keys that are only checked.
    from warrenmq.server.config.waiting_keys import WAITING, find_waiting

    waiting = find_waiting(name, parts)
    if waiting is not None:
        return waiting
    raise ConfigError(_unknown(name, [key.name for key in (*ALL, *WAITING)]))


def member_of(key: Key, name: str) -> str:
    """The member that the key called `name` sets: the part in place of the `*` of its pattern."""
    if key.member:
        return key.member
    return parts_of(name)[key.name.split(".").index("*")]


def _unknown(name: str, known: list[str]) -> str:
    closest = max(known, key=lambda key: _likeness(key, name))
    is_like = _likeness(closest, name) >= _LIKENESS_MIN
    return f"unknown key {name!r}" + (f"; did you mean {_filled_in(closest, name)}?" * is_like)


def _likeness(pattern: str, name: str) -> float:
    """How much `name` looks like a key of `pattern`: 0 to 1.

    A part of the name in place of `*` says nothing, so the other parts must be like enough.
    """
    # Imported only for an error: a normal start does not wait for the library.
    from difflib import SequenceMatcher

    if "*" in pattern:
        wanted, given = pattern.split("."), parts_of(name)
        if len(wanted) != len(given):
            return 0.0
        for want, part in zip(wanted, given, strict=True):
            if want != "*" and SequenceMatcher(None, want, part).ratio() < _PART_LIKENESS_MIN:
                return 0.0
    return SequenceMatcher(None, _filled_in(pattern, name), name).ratio()


def _filled_in(pattern: str, name: str) -> str:
    """`pattern` with the parts of an unknown key in place of `*`: only the fault differs then."""
    if "*" not in pattern:
        return pattern
    pairs = zip(pattern.split("."), parts_of(name), strict=True)
    return ".".join(part or "NAME" if want == "*" else want for want, part in pairs)
