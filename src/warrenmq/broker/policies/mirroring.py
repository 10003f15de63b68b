"""The keys that mirror a queue (M26-M30): their names, their checks, and their stored form.

The texts of errors are RabbitMQ's. `ha-min-sync` is a key of warren alone: how many copies, the
master's included, must be synchronised before the queue accepts publishes (1 by default).
"""

from __future__ import annotations

from typing import Final

from warrenmq.broker.policies.values import as_int, is_integer
from warrenmq.vocabulary.erlang_text import term_text

MODE: Final = "ha-mode"
PARAMS: Final = "ha-params"
SYNC_MODE: Final = "ha-sync-mode"
SYNC_BATCH_SIZE: Final = "ha-sync-batch-size"
PROMOTE_ON_SHUTDOWN: Final = "ha-promote-on-shutdown"
PROMOTE_ON_FAILURE: Final = "ha-promote-on-failure"
MIN_SYNC: Final = "ha-min-sync"
NAMES: Final = (
    MODE,
    PARAMS,
    SYNC_MODE,
    SYNC_BATCH_SIZE,
    PROMOTE_ON_SHUTDOWN,
    PROMOTE_ON_FAILURE,
    MIN_SYNC,
)

MANUAL: Final = "manual"
AUTOMATIC: Final = "automatic"
# Another spelling of MANUAL (M30), which is stored and shown as that.
_MANUALLY: Final = "manually"


def check_mirroring(settings: dict[str, object]) -> str:
    """An error text for these keys in a policy's definition, or "" if they are valid."""
    if MODE not in settings:
        for name in NAMES:
            if name in settings:
                return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
        return ""
    text = _check_nodes(settings[MODE], settings)
    if text:
        return text
    mode = settings.get(SYNC_MODE, MANUAL)
    if mode not in (MANUAL, AUTOMATIC, _MANUALLY):
        return f'ha-sync-mode must be "manual" or "automatic", got {term_text(mode)}'
    text = _check_count(SYNC_BATCH_SIZE, settings)
    if text:
        return text
    for name in (PROMOTE_ON_SHUTDOWN, PROMOTE_ON_FAILURE):
        promote = settings.get(name, "always")
        if promote not in ("always", "when-synced"):
            return f'{name} must be "always" or "when-synced", got {term_text(promote)}'
    return _check_count(MIN_SYNC, settings)


def _check_count(name: str, settings: dict[str, object]) -> str:
    count = settings.get(name, 1)
    if is_integer(count) and as_int(count) > 0:
        return ""
    return f"{name} takes an integer greater than 0, {term_text(count)} given"


def _check_nodes(mode: object, settings: dict[str, object]) -> str:
    is_given = PARAMS in settings
    value = settings.get(PARAMS)
    shown = term_text(value) if is_given else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if is_given else ""
    if mode == "exactly":
        if is_integer(value) and as_int(value) > 0:
            return ""
        return f'ha-mode="exactly" takes an integer, {shown} given'
    if mode == "nodes":
        if not isinstance(value, list):
            return f'ha-mode="nodes" takes a list, {shown} given'
        if len(value) == 0:
            return 'ha-mode="nodes" list must be non-empty'
        others = [item for item in value if not isinstance(item, str)]
        if len(others) > 0:
            return f'ha-mode="nodes" takes a list of strings, {term_text(others)} was not a string'
        return ""
    return f"{term_text(mode)} is not a valid ha-mode value"


def normal_definition(definition: dict[str, object]) -> dict[str, object]:
    """A policy's definition as it is stored and shown: the sync mode `manually` is `manual`."""
    if definition.get(SYNC_MODE) == _MANUALLY:
        return {**definition, SYNC_MODE: MANUAL}
    return definition


def mirroring_of(definition: dict[str, object]) -> dict[str, object]:
    """The settings of these keys that are in force for a queue; empty for one without mirrors."""
    return {name: definition[name] for name in NAMES if name in definition}
