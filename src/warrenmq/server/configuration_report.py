"""What a running node tells of its configuration: values, sources, and what waits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from warrenmq.admin.protocol.configuration import Configuration, ConfigurationKey, PendingValue
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.flow.alarms import Alarms, share_of
from warrenmq.server.config.effective import DEFAULT, RUNTIME, Row, effective, pending
from warrenmq.server.config.key import CONNECT, FIRST_START, RELOAD
from warrenmq.server.config.keys import ALL, SECTIONS
from warrenmq.server.config.load import Loaded
from warrenmq.server.config.lookup import find_key
from warrenmq.server.config.setting import Setting
from warrenmq.server.config.settings import Config
from warrenmq.server.config.sources import Sources
from warrenmq.server.config.values import text_of
from warrenmq.server.log.output import levels_set

# The section of keys that set nothing.
_WITHOUT_EFFECT: Final = "The file"
_SECTION_OF: Final = {key.name: name for name, keys in SECTIONS.items() for key in keys}
_PLACES: Final = {key.name: place for place, key in enumerate(ALL)}


def configuration(
    config: Config, sources: Sources, alarms: Alarms, latest: Loaded
) -> Configuration:
    """The configuration of a node that runs with `config`; `latest` has the sources as now."""
    limits = _limits_set(config.broker, alarms)
    running = _with_runtime(config, sources, limits | levels_set(config.log))
    # A reload leaves a limit that a command has set as it is.
    staying = {other for name in limits for other in (name, *find_key(name).overrides)}
    waiting = {} if latest.errors else pending(running, latest)
    rows = {row.key: row for row in effective(running)}
    for name in waiting:
        rows.setdefault(name, Row(name, "", DEFAULT, find_key(name).effect, False))
    keys = []
    for row in sorted(rows.values(), key=_place):
        later = waiting.get(row.key)
        by = _takes(find_key(row.key).effect) if row.key not in staying else "restart"
        keys.append(
            ConfigurationKey(
                key=row.key,
                value=row.value,
                source=row.source,
                effect=row.effect,
                section=_SECTION_OF.get(find_key(row.key).name, _WITHOUT_EFFECT),
                is_changed=row.is_changed,
                pending=None if later is None else PendingValue(later.value, later.source, by),
            )
        )
    files = [str(path) for path in config.config_files]
    return Configuration(config.node_name, files, keys, latest.errors)


def _place(row: Row) -> int:
    return _PLACES.get(find_key(row.key).name, len(_PLACES))


def _takes(effect: str) -> Literal["reload", "restart", "first start"]:
    """What brings a new value of a key with this `effect` in force."""
    if effect == FIRST_START:
        return "first start"
    return "reload" if effect in (RELOAD, CONNECT) else "restart"


def _with_runtime(
    config: Config, sources: Sources, changes: Mapping[str, str | int | float]
) -> Loaded:
    """What is in force, with the `changes` of commands, by key."""
    settings = dict(sources.in_force)
    fields: dict[str, Any] = {}
    levels = dict(config.log.levels)
    for name, value in changes.items():
        key = find_key(name)
        for rival in key.overrides:
            settings.pop(rival, None)
        settings[name] = Setting(RUNTIME, name, text_of(value))
        if key.member:
            levels[key.member] = str(value)
        else:
            fields |= {key.field: value, **key.implies}
    running = replace(
        config,
        broker=replace(config.broker, **_of_group("broker", fields)),
        log=config.log._replace(levels=tuple(sorted(levels.items())), **_of_group("log", fields)),
    )
    return Loaded(running, settings, [], [])


def _of_group(group: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(f"{group}."): value
        for name, value in fields.items()
        if name.startswith(f"{group}.")
    }


def _limits_set(wanted: Settings, alarms: Alarms) -> dict[str, str | int | float]:
    """The limits that commands have set, by key: bytes, or a share of all memory."""
    found: dict[str, str | int | float] = {}
    total, share = alarms.total_memory_bytes, alarms.memory_limit_share
    absolute = wanted.vm_memory_high_watermark_absolute
    if share >= 0:
        if absolute >= 0 or share != wanted.vm_memory_high_watermark_relative:
            found["vm_memory_high_watermark.relative"] = share
    elif alarms.memory_limit_bytes != min(absolute, total):
        found["vm_memory_high_watermark.absolute"] = alarms.memory_limit_bytes
    limit = wanted.disk_free_limit_absolute
    if limit < 0:
        limit = share_of(total, wanted.disk_free_limit_relative)
    if alarms.disk_limit_bytes != limit:
        found["disk_free_limit.absolute"] = alarms.disk_limit_bytes
    return found
