"""The configuration as a list of keys with their values and sources.

`warren config show` prints it, and a running node tells it with what waits for a reload or restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from warrenmq.server.config.changes import changed_keys, field_value
from warrenmq.server.config.environment import environment_settings, find_variable
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import Key
from warrenmq.server.config.keys import ALL
from warrenmq.server.config.load import Loaded
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.setting import Setting
from warrenmq.server.config.settings import Config
from warrenmq.server.config.values import text_of

DEFAULT = "default"
# The place of a value that a command has set while the node ran.
RUNTIME = "runtime"
HIDDEN = "(hidden)"
# The number that stands for no limit, or for a limit that the other form of the key gives.
NO_LIMIT = -1
_DEFAULTS = Config()


@dataclass(frozen=True)
class Row:
    """One key that is in force; `source` is DEFAULT, RUNTIME or the place of the setting."""

    key: str
    value: str
    source: str
    # When a change of the key takes effect.
    effect: str
    # Whether the key sets something else than the default.
    is_changed: bool


@dataclass(frozen=True)
class Pending:
    """What a key gets from the sources as they are now, once they are read again."""

    value: str
    source: str


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
                value = _meaning(key, setting.value)
                rows.append(_row(key, name, value, setting.where, _is_changed(key, loaded)))
        if "*" in key.name or key.field not in fields:
            rows += _defaults(key, names, loaded)
            fields.add(key.field)
    for name, setting in loaded.in_force.items():
        if name not in shown:
            rows.append(_row(find_key(name), name, setting.value, setting.where, True))
    return rows


def pending(running: Loaded, latest: Loaded) -> dict[str, Pending]:
    """What `latest` gives to keys that have other values in `running`, by key."""
    fields = {key.field for key in changed_keys(running.config, latest.config)}
    now = {row.key: row for row in effective(running)}
    then = {row.key: row for row in effective(latest)}
    found: dict[str, Pending] = {}
    for name in dict.fromkeys((*now, *then)):
        field, is_in_both = find_key(name).field, name in now and name in then
        # Of the keys of one list some may stay as they are.
        differs = field in fields and _given(running, name) != _given(latest, name)
        if differs or (field and not is_in_both):
            row = then.get(name)
            found[name] = Pending(row.value, row.source) if row else Pending("", DEFAULT)
    return found


def _given(loaded: Loaded, name: str) -> str | None:
    setting = loaded.in_force.get(name)
    return None if setting is None else setting.value


def variables_in_force(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that set something, by name; values of secrets are hidden."""
    variables: dict[str, str] = {}
    for setting in environment_settings(environment, [], []):
        # One variable may set several keys.
        if setting.where in environment and variables.get(setting.where) != HIDDEN:
            value = environment[setting.where]
            variables[setting.where] = HIDDEN if _is_secret(setting) else value
    for name in ("CONFIG_FILE", "CONFIG_FILES", "ADVANCED_CONFIG_FILE", "CONF_ENV_FILE"):
        variable, value = find_variable(environment, name)
        if value:
            variables[variable] = value
    return dict(sorted(variables.items()))


def _is_secret(setting: Setting) -> bool:
    try:
        return find_key(setting.key).hides(setting.value)
    except ConfigError:
        return True


def _is_changed(key: Key, loaded: Loaded) -> bool:
    return key.field != "" and (
        field_value(loaded.config, key.field) != field_value(_DEFAULTS, key.field)
    )


def _row(key: Key, name: str, value: str, source: str, is_changed: bool = False) -> Row:
    shown = HIDDEN if key.hides(value) else value
    return Row(name, shown, source, key.effect, is_changed)


def _meaning(key: Key, value: str) -> str:
    """`value` as the parser understands it, so without units; a word such as `none` stays."""
    try:
        parsed = key.parse(value)
    except ConfigError:
        # The file that the value names is gone since the start.
        return value
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
