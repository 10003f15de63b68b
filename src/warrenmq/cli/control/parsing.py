"""Reads a command line as rabbitmqctl does: options may stand anywhere, before the command too.

`--name value`, `--name=value`, `--flag`, `--no-flag` and short forms. A value that begins with `-`
is taken only if it is a number or `-` alone. What is no valid option is gathered, not raised: an
unknown command is reported before a bad option.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

OptionValue = str | int | bool
_NEGATIVE_NUMBER: Final = re.compile(r"-\d+(\.\d+)?$")


class Option(Struct, frozen=True):
    """An option of a command line; `metavar` names its value in usages."""

    name: str
    kind: Literal["flag", "text", "integer"] = "text"
    short: str = ""
    help: str = ""
    metavar: str = ""

    @property
    def usage(self) -> str:
        """The option as a usage shows it."""
        flag = f"--{self.name}" + (f"|-{self.short}" if self.short else "")
        return flag if self.kind == "flag" else f"{flag} <{self.metavar or self.name}>"


GENERAL: Final = (
    Option("help", "flag", "?", "show the help of the command"),
    Option("node", "text", "n", "the name of the node, as its control file has it"),
    Option("longnames", "flag", "l", "accepted, has no effect"),
    Option("timeout", "integer", "t", "how long the command may take, in seconds", "timeout"),
    Option("quiet", "flag", "q", "print no messages besides the result"),
    Option("silent", "flag", "s", "print neither messages nor headers of tables"),
    Option("dry-run", "flag", "", "print what would be done"),
    Option("formatter", "text", "", "table, csv, json, pretty_table or erlang"),
    Option("no-table-headers", "flag", "", "print no headers of tables"),
    Option("vhost", "text", "p", "the vhost, for commands that concern one (default: /)"),
    Option("data-dir", "text", "", "the data directory of a node on this machine", "directory"),
    Option("uri", "text", "", "the node as amqp://user:password@host:port"),
    Option("script-name", "text", "", "accepted, has no effect"),
    Option("erlang-cookie", "text", "", "accepted, has no effect"),
)


class CommandLine(Struct):
    """A parsed command line. `command` is None without one; `given`: all after the command name."""

    command: str | None = None
    arguments: list[str] = []
    options: dict[str, OptionValue] = {}
    # Options that are unknown or whose value is missing or wrong, with that value.
    invalid: list[tuple[str, str]] = []


def parse(words: Sequence[str], options_of: Callable[[str], Sequence[Option]]) -> CommandLine:
    """Parse `words`; `options_of(command)` are the options that only this command has."""
    command = _Parser(words, GENERAL).parse().arguments[:1]
    own = tuple(options_of(command[0])) if command else ()
    line = _Parser(words, GENERAL + own).parse()
    if line.arguments:
        line.command = line.arguments.pop(0)
    return line


class _Parser:
    def __init__(self, words: Sequence[str], options: Sequence[Option]) -> None:
        self._words = list(words)
        self._long = {option.name: option for option in options}
        self._short = {option.short: option for option in options if option.short}
        self._line = CommandLine()

    def parse(self) -> CommandLine:
        words = self._words
        while words:
            word = words.pop(0)
            if word == "--":
                self._line.arguments += words
                break
            if word == "-" or not word.startswith("-") or _NEGATIVE_NUMBER.match(word):
                self._line.arguments.append(word)
            else:
                self._option(word)
        return self._line

    def _option(self, word: str) -> None:
        shown, has_value, value = word.partition("=")
        name = shown.lstrip("-").replace("_", "-")
        known = self._long if shown.startswith("--") else self._short
        option = known.get(name)
        if option is None and name.startswith("no-") and not has_value:
            option = known.get(name.removeprefix("no-"))
            if option is not None and option.kind == "flag":
                self._line.options[option.name] = False
                return
            option = None
        if option is None:
            self._line.invalid.append((shown, ""))
        elif option.kind == "flag":
            self._flag(option, shown, value)
        elif not has_value and not self._next_is_value():
            self._line.invalid.append((shown, ""))
        else:
            self._value(option, shown, value if has_value else self._words.pop(0))

    def _flag(self, option: Option, shown: str, value: str) -> None:
        if value not in ("", "true", "false"):
            self._line.invalid.append((shown, value))
            return
        self._line.options[option.name] = value != "false"

    def _value(self, option: Option, shown: str, value: str) -> None:
        if option.kind == "integer":
            try:
                self._line.options[option.name] = int(value)
            except ValueError:
                self._line.invalid.append((shown, value))
            return
        self._line.options[option.name] = value

    def _next_is_value(self) -> bool:
        if not self._words:
            return False
        word = self._words[0]
        return word == "-" or not word.startswith("-") or bool(_NEGATIVE_NUMBER.match(word))
