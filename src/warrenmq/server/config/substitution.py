"""Replaces `$(NAME)` in values: by the value of the key NAME, or of the environment variable NAME.

RabbitMQ 3.10 knows keys only, later versions variables too. A name that is neither is a fault:
otherwise `default_user = $(USER_NAME)` would make a user of that very name.
"""

import re
from collections.abc import Mapping
from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.setting import Setting

_REFERENCE: Final = re.compile(r"\$\(([^()]*)\)")
# More keys that refer to one another than any file has: such a chain has no end.
_DEPTH_MAX: Final = 16


def substitute(
    settings: list[Setting], environment: Mapping[str, str], errors: list[str]
) -> list[Setting]:
    """`settings` with all references replaced; each fault adds one line to `errors`."""
    by_key = {setting.key: setting for setting in settings}
    replaced = []
    for setting in settings:
        try:
            replaced.append(_resolved(setting, by_key, environment, _DEPTH_MAX))
        except ConfigError as error:
            errors.append(setting.blame(str(error)))
    return replaced


def _resolved(
    setting: Setting, by_key: Mapping[str, Setting], environment: Mapping[str, str], depth: int
) -> Setting:
    if setting.is_literal or "$(" not in setting.value:
        return setting

    def text_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if depth == 0:
            raise ConfigError(f"$({name}) refers to itself")
        if name in by_key:
            return _resolved(by_key[name], by_key, environment, depth - 1).value
        if name in environment:
            return environment[name]
        raise ConfigError(
            f"$({name}) is neither a key of the configuration nor an environment variable"
        )

    return setting.with_value(_REFERENCE.sub(text_of, setting.value))
