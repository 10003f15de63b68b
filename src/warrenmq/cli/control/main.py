"""Runs one command line of `warrenctl`.

Messages and results go to standard output, errors to standard error. The command's banner is
printed when its arguments are valid and the node answers, before the command does anything.
"""

import signal
import sys
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from warrenmq.cli.control.command import Command, Program, Run
from warrenmq.cli.control.exits import OK, TEMPORARY, USAGE, CommandError, UsageError
from warrenmq.cli.control.formats.output import FORMATS, WITHOUT_BANNER, Style, Table
from warrenmq.cli.control.helping import command_help, general_usage, not_found
from warrenmq.cli.control.link import Link
from warrenmq.cli.control.nodes.status import node_status
from warrenmq.cli.control.parsing import CommandLine, parse
from warrenmq.cli.control.programs import PROGRAMS, WARRENCTL

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERRUPTED: Final = 130
_NO_FORMAT: Final = "formatter '{name}' is not supported. Please use one of: {known}"
_NEEDS_APP: Final = (
    "this command requires the 'rabbit' app to be {state} on the target node. "
    "{verb} it with '{program} {command}'."
)


class _TimedOutError(Exception):
    """The time of --timeout is over."""


def script() -> None:
    """The executable `warrenctl`, or a link to it with the name of one of RabbitMQ's tools."""
    from warrenmq.cli import finish_output

    status = OK
    try:
        # A reader that stops early (`warrenctl ... | head`) is no error.
        with suppress(BrokenPipeError):
            status = main(sys.argv[1:], PROGRAMS.get(Path(sys.argv[0]).name, WARRENCTL))
    finally:
        finish_output()
    sys.exit(status)


def main(words: Sequence[str], program: Program = WARRENCTL) -> int:
    """Run the command line `words` of `program` and return the exit code."""
    if list(words) == ["--version"]:
        words = ["version"]
    commands = program.commands
    line = parse(words, lambda name: commands[name].options if name in commands else ())
    if line.command is None:
        has_help = bool(line.options.get("help"))
        print(general_usage(program), file=sys.stdout if has_help else sys.stderr)
        return OK if has_help else USAGE
    command = commands.get(line.command)
    link = Link(*[str(line.options.get(name, "")) for name in ("node", "data-dir", "uri")])
    try:
        if command is None:
            raise not_found(line.command, program)
        if line.options.get("help"):
            print(command_help(command, program))
            return OK
        _run(command, Run(line, link, program), line)
    except CommandError as error:
        return _failed(error.text, error.code)
    except UsageError as error:
        assert command is not None
        given = f"Arguments given:\n\t{' '.join(words)}\n\nUsage\n\n{command.usage(program.name)}"
        return _failed(f"{error.text}\n{given}", error.code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        link.close()
    return OK


def _failed(text: str, code: int) -> int:
    sys.stdout.flush()
    # The command line in it may have bytes that are no text.
    print(text.encode(errors="backslashreplace").decode(), file=sys.stderr)
    return code


def _run(command: Command, run: Run, line: CommandLine) -> None:
    """Check the command line, print the banner, run the command and print its output."""
    formatter = run.text("formatter", command.formatter)
    if not command.is_absent:
        _check(command, line, formatter)
    if command.check is not None:
        command.check(run)
    with _time_limit(command, run):
        _check_state(command, run)
        if command.banner is not None and not run.is_quiet and formatter not in WITHOUT_BANNER:
            banner = command.banner(run)
            if banner:
                print(banner, flush=True)
        if run.flag("dry-run") and not command.has_dry_run:
            return
        output = command.run(run)
    style = Style(
        has_headers=not run.flag("silent") and not run.flag("no-table-headers"),
        is_quiet=run.flag("quiet"),
        is_silent=run.flag("silent"),
        is_terminal=sys.stdout.isatty(),
        node=lambda: run.link.expected_name,
    )
    sys.stdout.write(FORMATS[formatter](output, style))
    if isinstance(output, Table) and output.failures:
        raise CommandError("\n".join(["Error:", *output.failures]), TEMPORARY)


def _check(command: Command, line: CommandLine, formatter: str) -> None:
    if not _are_texts([*line.arguments, *map(str, line.options.values())]):
        raise UsageError("arguments must be UTF-8.")
    invalid = list(line.invalid)
    if "no-table-headers" in line.options and not (command.is_table and formatter == "table"):
        invalid.append(("--no-table-headers", ""))
    if invalid:
        shown = "\n".join([f"{option} : {value}" for option, value in invalid])
        raise UsageError(f"Invalid options for this command:\n{shown}")
    if formatter not in FORMATS:
        raise UsageError(_NO_FORMAT.format(name=formatter, known=", ".join(FORMATS)))
    least, most = command.count
    if len(line.arguments) < least:
        raise UsageError("not enough arguments.")
    if most is not None and len(line.arguments) > most:
        raise UsageError("too many arguments.")


def _are_texts(words: Sequence[str]) -> bool:
    """Whether all `words` can be encoded: bytes that are no text stand for themselves in them."""
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_state(command: Command, run: Run) -> None:
    """Raise when the node does not answer, or its broker is not in the state that `needs` names."""
    if command.needs == "nothing":
        return
    # Only a local administrator reaches a node whose broker is stopped.
    if command.needs == "node" or not run.link.is_local:
        _ = run.node
        return
    is_running = node_status(run).is_running
    if command.needs == "running" and not is_running:
        text = _NEEDS_APP.format(
            program=run.program.name, state="running", verb="Start", command="start_app"
        )
        raise UsageError(text, title="Error")
    if command.needs == "stopped" and is_running:
        text = _NEEDS_APP.format(
            program=run.program.name, state="stopped", verb="Stop", command="stop_app"
        )
        raise UsageError(text, title="Error")


@contextmanager
def _time_limit(command: Command, run: Run) -> "Iterator[None]":
    """Raise CommandError in the body when it takes longer than --timeout."""
    seconds = run.timeout_s
    if seconds is None or command.waits_itself:
        yield
        return

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        raise _TimedOutError

    previous = signal.signal(signal.SIGALRM, on_alarm)
    try:
        if seconds == 0:
            raise _TimedOutError
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except _TimedOutError:
        text = (
            f"Error: operation {command.name} on node {run.link.expected_name} timed out. "
            f"Timeout value used: {1000 * seconds}"
        )
        raise CommandError(text, TEMPORARY) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
