"""A configuration key by key: its values, and what differs between two of one node."""

from pathlib import Path
from typing import Any

from warrenmq.server.config.key import CONNECT, RELOAD, Key
from warrenmq.server.config.keys import ALL
from warrenmq.server.config.settings import Config


def field_value(config: Config, field: str) -> Any:
    """The value of a field of `config`; `field` may have a dot, as in `Key`."""
    value: Any = config
    for name in field.split("."):
        value = getattr(value, name)
    return value


def changed_keys(old: Config, new: Config) -> list[Key]:
    """The keys whose fields differ, one for each field."""
    changed: dict[str, Key] = {}
    for key in ALL:
        if key.field and field_value(old, key.field) != field_value(new, key.field):
            changed.setdefault(key.field, key)
    return list(changed.values())


def is_live(key: Key) -> bool:
    """Whether a running node takes a new value of the key."""
    return key.effect in (RELOAD, CONNECT)


def effective_values(config: Config) -> dict[str, object]:
    """The values in force by key, in types of JSON; secrets are left out."""
    values: dict[str, object] = {}
    for key in ALL:
        if key.field and not key.is_secret:
            value = field_value(config, key.field)
            if key.member:
                value = dict(value).get(key.member)
            values[key.name.removesuffix(".*")] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, Path) else value
