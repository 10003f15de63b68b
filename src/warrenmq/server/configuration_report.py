"""What a running node tells of its configuration: values, sources, and what waits."""

from dataclasses import replace
from typing import Any, Final

from warrenmq.admin.protocol.configuration import Configuration, ConfigurationKey, PendingValue
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.flow.alarms import Alarms, share_of
from warrenmq.server.config.effective import DEFAULT, RUNTIME, Row, effective, pending
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
    running = _with_runtime(config, sources, alarms)
    waiting = {} if latest.errors else pending(running, latest)
    rows = {row.key: row for row in effective(running)}
    for name in waiting:
        rows.setdefault(name, Row(name, "", DEFAULT, find_key(name).effect, False))
    keys = []
    for row in sorted(rows.values(), key=_place):
        later = waiting.get(row.key)
        keys.append(
            ConfigurationKey(
                key=row.key,
                value=row.value,
                source=row.source,
                effect=row.effect,
                section=_SECTION_OF.get(find_key(row.key).name, _WITHOUT_EFFECT),
                is_changed=row.is_changed,
                pending=None if later is None else PendingValue(later.value, later.source),
            )
        )
    files = [str(path) for path in config.config_files]
    return Configuration(config.node_name, files, keys, latest.errors)


def _place(row: Row) -> int:
    return _PLACES.get(find_key(row.key).name, len(_PLACES))


def _with_runtime(config: Config, sources: Sources, alarms: Alarms) -> Loaded:
    """What is in force, with the limits and log levels that commands have set."""
    settings = dict(sources.in_force)
    fields: dict[str, Any] = {}
    levels = dict(config.log.levels)
    for name, value in (_limits_set(config.broker, alarms) | levels_set(config.log)).items():
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


def _limits_set(wanted: Settings, alarms: Alarms) -> dict[str, int | float]:
    """The limits that commands have set, by key: bytes, or a share of all memory."""
    found: dict[str, int | float] = {}
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
