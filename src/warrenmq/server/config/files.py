"""Reads configuration files: rabbitmq.conf's format, and RabbitMQ's classic one.

    KEY = VALUE
    include PATTERN        the settings of other files, in this place

A file whose name ends with `.config` has the classic format (`erlang/classic.py`).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.setting import Setting

_CLASSIC_SUFFIX: Final = ".config"
_QUOTED: Final = re.compile(r"\s*([^\s=#]+)\s*=\s*'([^']*)'\s*(?:#.*)?")
# A comment begins at the start of the line or after a blank, because a password may contain `#`.
_COMMENT: Final = re.compile(r"(^|\s)#.*")
_INCLUDE: Final = re.compile(r"include\s+([^=\s].*)")
# A value that is the content of a file.
_FILE_VALUE: Final = re.compile(r"\$\(<(.+)\)")


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


def is_classic(path: Path) -> bool:
    """Whether a file has RabbitMQ's classic format, by its name."""
    return path.suffix == _CLASSIC_SUFFIX


class FileReader:
    """Reads files; each line that is no setting adds one line to `errors`."""

    def __init__(self, errors: list[str], warnings: list[str]) -> None:
        self._errors = errors
        self._warnings = warnings
        # The files that were read, in order, with those that others include.
        self.files: list[Path] = []
        # The file that is being read, below those that include it.
        self._open: list[Path] = []

    def read(self, path: Path) -> list[Setting]:
        """The settings of a file, in order."""
        self.files.append(path)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            self._errors.append(f"{path}: cannot be read: {reason}")
            return []
        if is_classic(path):
            # Imported only here: few nodes have a file of this format.
            from warrenmq.server.config.erlang.classic import classic_settings

            return classic_settings(path, text, self._errors, self._warnings)
        self._open.append(path)
        settings = list(self._settings(path, text.splitlines()))
        self._open.pop()
        return settings

    def _settings(self, path: Path, lines: list[str]) -> Iterator[Setting]:
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            if quoted := _QUOTED.fullmatch(line):
                yield Setting(where, quoted[1], quoted[2], is_literal=True)
                continue
            text = _COMMENT.sub("", line).strip()
            key, equals, value = (part.strip() for part in text.partition("="))
            if included := _INCLUDE.fullmatch(text):
                yield from self._include(where, path.parent / included[1])
            elif equals and key:
                yield self._setting(path.parent, Setting(where, key, value))
            elif text:
                # The log has this line, and the text may be a password.
                self._errors.append(f"{where}: expected KEY = VALUE")

    def _include(self, where: str, pattern: Path) -> Iterator[Setting]:
        try:
            paths = files_of(pattern)
        except ConfigError as error:
            self._errors.append(f"{where}: include: {error}")
            return
        for path in paths:
            if path in self._open:
                self._errors.append(f"{where}: include: {path} includes itself")
            else:
                yield from self.read(path)

    def _setting(self, directory: Path, setting: Setting) -> Setting:
        """The setting; `$(<PATH)` as its value stands for the text in a file, without its end."""
        named = _FILE_VALUE.fullmatch(setting.value)
        if named is None:
            return setting
        path = directory / named[1]
        try:
            text = path.read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            self._errors.append(setting.blame(f"{path}: cannot be read: {reason}"))
            text = ""
        return Setting(setting.where, setting.key, text, is_literal=True)
