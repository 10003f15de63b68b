"""A command as data: its name, arguments and options, and the function that carries it out.

Help, shell completion and the list of commands in the documentation come from the same data.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct

from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.requests import Reply, Request
from warrenmq.cli.control.formats.output import Output
from warrenmq.cli.control.link import Link
from warrenmq.cli.control.parsing import CommandLine, Option

DEFAULT_TIMEOUT_S: Final = 60
ReplyType = TypeVar("ReplyType", bound=Reply)


class Run:
    """One run of a command: its arguments and options, the node, and the program called."""

    def __init__(self, line: CommandLine, link: Link, program: "Program") -> None:
        self.arguments = line.arguments
        self.link = link
        self.program = program
        self._options = line.options

    def __getitem__(self, index: int) -> str:
        return self.arguments[index]

    @property
    def vhost(self) -> str:
        """The vhost of --vhost, or the default one."""
        return self.text("vhost", "/")

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.link.node_name

    @property
    def timeout_s(self) -> int | None:
        """The time of --timeout, None without one."""
        value = self._options.get("timeout")
        return None if value is None or int(value) < 0 else int(value)

    def text(self, name: str, default: str = "") -> str:
        """The value of an option, or `default`."""
        return str(self._options.get(name, default))

    def number(self, name: str, default: int = 0) -> int:
        """The value of an option, or `default`."""
        return int(self._options.get(name, default))

    def flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return bool(self._options.get(name, False))

    def has(self, name: str) -> bool:
        """Whether an option is given."""
        return name in self._options

    @property
    def is_quiet(self) -> bool:
        """Whether messages besides the result are suppressed."""
        return self.flag("quiet") or self.flag("silent")

    def ask(self, request: Request, expected: type[ReplyType]) -> ReplyType:
        """Ask the node. Raises CommandError."""
        return self.link.ask(request, expected)

    def do(self, request: Request) -> None:
        """Ask the node for something that it answers with Done. Raises CommandError."""
        self.link.ask(request, Done)


class Program(Struct, frozen=True):
    """A name under which the tool is called, and the commands that it has under that name."""

    name: str
    commands: Mapping[str, "Command"]


class Command(Struct, frozen=True):
    """A command of `warrenctl`.

    `arguments` are its positional arguments as a usage shows them, `count` how many there may be
    (None: any number). `columns` are those that its arguments may name. `check` raises UsageError
    or CommandError for arguments that are wrong. `banner` is printed before the command runs.
    """

    name: str
    group: str
    summary: str
    run: Callable[[Run], Output]
    arguments: str = ""
    count: tuple[int, int | None] = (0, 0)
    options: tuple[Option, ...] = ()
    takes_vhost: bool = False
    columns: tuple[str, ...] = ()
    # The format without --formatter.
    formatter: str = "table"
    is_table: bool = False
    banner: Callable[[Run], str] | None = None
    check: Callable[[Run], None] | None = None
    # The state that the broker in the node must have.
    needs: Literal["running", "stopped", "node", "nothing"] = "running"
    takes_timeout: bool = False
    # The command only tells why there is no such command: its options do not matter.
    is_absent: bool = False
    # --timeout is how long the command waits, rather than how long it may take.
    waits_itself: bool = False
    # --dry-run is the command's own: it runs and changes nothing.
    has_dry_run: bool = False

    def usage(self, program: str) -> str:
        """One line: how the command is written."""
        parts = [program, "[--node <node>] [--longnames] [--quiet]", self.name]
        if self.takes_vhost:
            parts.append("[--vhost <vhost>]")
        parts += [f"[{option.usage}]" for option in self.options]
        if self.is_table:
            parts.append("[--no-table-headers]")
        if self.arguments:
            parts.append(self.arguments)
        if self.takes_timeout:
            parts.append("[--timeout <timeout>]")
        return " ".join(parts)
