"""Parsers of values: each takes the text of a value and returns its meaning.

All of them raise ConfigError for a text that has none.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled

Parser = Callable[[str], object]

# Users, vhosts and passwords travel as AMQP shortstr.
_TEXT_BYTES_MAX: Final = 255
_UNITS: Final = {
    "": 1,
    **dict.fromkeys(("k", "kib"), 1024),
    **dict.fromkeys(("m", "mib"), 1024**2),
    **dict.fromkeys(("g", "gib"), 1024**3),
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    **dict.fromkeys(("t", "tib"), 1024**4),
    "tb": 1000**4,
}


def integer(low: int, high: int) -> Parser:
    """Parser of an integer between `low` and `high`, both included."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value):
            raise ConfigError(f"expected an integer, got {value!r}")
        return _within(int(value), low, high)

    return parse


def size(low: int, high: int) -> Parser:
    """Parser of a number of bytes, with a unit or without."""

    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d{1,15})([a-z]*)", value.lower())
        if match is None or match[2] not in _UNITS:
            raise ConfigError(f"expected a size such as 1048576, 16MiB or 100MB, got {value!r}")
        return _within(int(match[1]) * _UNITS[match[2]], low, high)

    return parse


def number(low: float, high: float) -> Parser:
    """Parser of a decimal number between `low` and `high`, both included."""

    def parse(value: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            raise ConfigError(f"expected a number such as 0.4, got {value!r}")
        if not low <= float(value) <= high:
            raise ConfigError(f"{value} is not between {low:g} and {high:g}")
        return float(value)

    return parse


def one_of(*words: str) -> Parser:
    """Parser of one of `words`."""

    def parse(value: str) -> str:
        if value not in words:
            raise ConfigError(f"expected one of {', '.join(words)}, got {value!r}")
        return value

    return parse


def word_or(word: str, meaning: object, parser: Parser) -> Parser:
    """Parser that returns `meaning` for `word` and leaves all other values to `parser`."""

    def parse(value: str) -> object:
        return meaning if value == word else parser(value)

    return parse


def only(word: str, meaning: object, reason: str) -> Parser:
    """Parser of a single accepted word; `reason` explains why there is no other."""

    def parse(value: str) -> object:
        if value != word:
            raise ConfigError(f"{reason}, got {value!r}")
        return meaning

    return parse


def flag(value: str) -> bool:
    """`true` or `false`."""
    if value not in ("true", "false"):
        raise ConfigError(f"expected true or false, got {value!r}")
    return value == "true"


def text(value: str) -> str:
    """A value that is not empty and fits in an AMQP shortstr."""
    if value == "":
        raise ConfigError("expected a value")
    if len(value.encode()) > _TEXT_BYTES_MAX:
        raise ConfigError(f"longer than {_TEXT_BYTES_MAX} bytes")
    return value


def anything(value: str) -> str:
    """Any text, also none."""
    return value


def regular_expression(value: str) -> str:
    """A regular expression, as text."""
    try:
        compiled(value)
    except PatternError as error:
        raise ConfigError(f"not a regular expression: {error}") from None
    return value


def path(value: str) -> Path:
    """A path that need not exist."""
    if value == "":
        raise ConfigError("expected a path")
    return Path(value)


def readable(value: str) -> Path:
    """A file or directory that exists and that this process may read."""
    if not os.access(path(value), os.R_OK):
        raise ConfigError(f"{value} does not exist or cannot be read")
    return Path(value)


def address(value: str) -> tuple[str, int]:
    """(host, port) of `5672`, `127.0.0.1:5672`, `::1:5672`, `[::1]:5672`, `host:5672` or `:5672`.

    The port follows the last colon, as in RabbitMQ. Host "" means every address.
    """
    host, _, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if ":" in host:
        try:
            ip_address(host)
        except ConfigError:
            raise ConfigError(f"expected PORT or HOST:PORT, got {value!r}") from None
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise ConfigError(f"expected PORT or HOST:PORT, got {value!r}")
    return host, int(port)


def ip_address(value: str) -> str:
    """A literal IPv4 or IPv6 address."""
    # Imported only here: few configurations name an address alone.
    import ipaddress

    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ConfigError(f"expected an IP address, got {value!r}") from None
    return value


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ConfigError(f"{value} is not between {low} and {high}")
    return value


def text_of(value: object) -> str:
    """The spelling of a parsed value in a file; "" for a value that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        host, port = value
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}" if host else str(port)
    return str(value)
