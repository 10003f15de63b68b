"""Finds the key that a setting names."""

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import Key, is_match, parts_of
from warrenmq.server.config.keys import ALL, BY_NAME, PATTERNS


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
    # Imported only for an error: a normal start does not wait for the library.
    import difflib

    parts = parts_of(name)
    candidates = [_filled_in(key, parts) for key in known]
    similar = difflib.get_close_matches(name, candidates, n=1)
    return f"unknown key {name!r}" + (f"; did you mean {similar[0]}?" if similar else "")


def _filled_in(pattern: str, parts: list[str]) -> str:
    """`pattern` with parts of an unknown key in place of `*`, so that only the fault differs."""
    if "*" not in pattern:
        return pattern
    wanted = pattern.split(".")
    given = parts + ["NAME"] * len(wanted)
    return ".".join(
        part or "NAME" if want == "*" else want for want, part in zip(wanted, given, strict=False)
    )
