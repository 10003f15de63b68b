"""Reads configuration files in rabbitmq.conf's format."""

import re
from collections.abc import Iterator
from pathlib import Path

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.setting import Setting


def files_of(path: Path) -> list[Path]:
    """The files that `path` names: a file, the `*.conf` of a directory by name, or a pattern.

    Raises ConfigError when a directory cannot be read.
    """
    try:
        if path.is_dir():
            return sorted(path.glob("*.conf"))
        if "*" in path.name:
            return sorted(path.parent.glob(path.name))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return [path]


def read_file(path: Path, errors: list[str]) -> list[Setting]:
    """The settings of a file in order; adds one line to `errors` for each line that is none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        errors.append(f"{path}: cannot be read: {reason}")
        return []
    return list(_settings(str(path), lines, errors))


def _settings(path: str, lines: list[str], errors: list[str]) -> Iterator[Setting]:
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        quoted = re.fullmatch(r"\s*([^\s=#]+)\s*=\s*'([^']*)'\s*(?:#.*)?", line)
        if quoted is not None:
            yield Setting(where, quoted[1], quoted[2])
            continue
        # A comment begins at the start of the line or after a blank, because a password may contain
        # `#`.
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        key, equals, value = (part.strip() for part in text.partition("="))
        if equals and key:
            yield Setting(where, key, value)
        elif text:
            errors.append(f"{where}: expected KEY = VALUE, got {text!r}")
