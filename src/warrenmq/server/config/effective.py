"""The configuration as a list of keys with their values and sources, for `warren config show`."""

from collections.abc import Mapping
from dataclasses import dataclass

from warrenmq.server.config.changes import field_value
from warrenmq.server.config.environment import environment_settings, find_variable
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import Key
from warrenmq.server.config.keys import ALL
from warrenmq.server.config.load import Loaded
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.settings import Config
from warrenmq.server.config.values import text_of

DEFAULT = "default"
HIDDEN = "(hidden)"
# The number that stands for no limit, or for a limit that the other form of the key gives.
NO_LIMIT = -1
_DEFAULTS = Config()


@dataclass(frozen=True)
class Row:
    """One key that is in force; `source` is `default` or the place of the setting."""

    key: str
    value: str
    source: str
    # When a change of the key takes effect.
    effect: str


def effective(loaded: Loaded) -> list[Row]:
    """All keys with their values, in the order of the table of keys; then those without effect."""
    rows: list[Row] = []
    shown: set[str] = set()
    # Fields with a row: a key of another name for one of them has none.
    fields = {find_key(name).field for name in loaded.in_force}
    for key in ALL:
        names = [name for name in loaded.in_force if find_key(name) is key]
        for name in sorted(names):
            setting = loaded.in_force[name]
            shown.add(name)
            if not _is_superseded_none(name, setting.value, loaded):
                rows.append(_row(key, name, _meaning(key, setting.value), setting.where))
        if "*" in key.name or key.field not in fields:
            rows += _defaults(key, names, loaded)
            fields.add(key.field)
    for name, setting in loaded.in_force.items():
        if name not in shown:
            rows.append(_row(find_key(name), name, setting.value, setting.where))
    return rows


def variables_in_force(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that set something, by name; values of secrets are hidden."""
    variables = {}
    for setting in environment_settings(environment, [], []):
        if setting.where in environment:
            value = environment[setting.where]
            variables[setting.where] = HIDDEN if _is_secret(setting.key) else value
    for name in ("CONFIG_FILE", "CONFIG_FILES", "ADVANCED_CONFIG_FILE", "CONF_ENV_FILE"):
        variable, value = find_variable(environment, name)
        if value:
            variables[variable] = value
    return dict(sorted(variables.items()))


def _is_secret(name: str) -> bool:
    try:
        return find_key(name).is_secret
    except ConfigError:
        return True


def _row(key: Key, name: str, value: str, source: str) -> Row:
    return Row(name, HIDDEN if key.is_secret and value else value, source, key.effect)


def _meaning(key: Key, value: str) -> str:
    """`value` as the parser understands it, so without units; a word such as `none` stays."""
    parsed = key.parse(value)
    is_plain = isinstance(parsed, str | float) or (isinstance(parsed, int) and parsed > 0)
    return text_of(parsed) if is_plain else value


def _is_superseded_none(name: str, value: str, loaded: Loaded) -> bool:
    """Whether a stronger source has added members to the list that is `none`."""
    return value == "none" and any(other.startswith(f"{name}.") for other in loaded.in_force)


def _defaults(key: Key, names: list[str], loaded: Loaded) -> list[Row]:
    """The rows of `key` that come from the defaults; `names` are those that a source has set."""
    if "*" in key.name:
        is_none = key.name.removesuffix(".*") in loaded.in_force
        if is_none or names:
            return []
        return [
            _row(key, key.name.replace("*", member), text_of(value), DEFAULT)
            for member, value in key.members.items()
        ]
    if names or not key.field or any(name in loaded.in_force for name in key.overrides):
        return []
    value = field_value(_DEFAULTS, key.field)
    if isinstance(value, tuple | frozenset):
        # A list has rows for its members.
        return []
    if value == NO_LIMIT:
        # A limit with two forms has a row only for the form that counts.
        return [] if key.overrides else [_row(key, key.name, "infinity", DEFAULT)]
    if any(field_value(_DEFAULTS, field) != other for field, other in key.implies.items()):
        return []
    return [_row(key, key.name, text_of(value), DEFAULT)]
