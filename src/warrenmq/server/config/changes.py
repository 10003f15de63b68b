"""A configuration key by key: its values, and what differs between two of one node."""

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
