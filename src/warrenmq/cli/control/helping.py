"""Help, completion and the version."""

from collections.abc import Iterable
from typing import Final

import warrenmq
from warrenmq.cli.control.command import Command, Program, Run
from warrenmq.cli.control.exits import USAGE, CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.parsing import GENERAL, Option
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

GROUP: Final = "Help"
_GENERAL_USAGE: Final = (
    "[--node <node>] [--timeout <timeout>] [--longnames] [--quiet] <command> [<command options>]"
)
_SHELLS: Final = ("bash", "zsh", "fish")


def general_usage(program: Program) -> str:
    """The help without a command: all commands by group."""
    groups: dict[str, list[Command]] = {}
    for command in program.commands.values():
        groups.setdefault(command.group, []).append(command)
    width = max([len(name) for name in program.commands])
    lines = [
        "",
        "Usage",
        "",
        f"{program.name} {_GENERAL_USAGE}",
        "",
        "Available commands:",
        "",
    ]
    for group, members in groups.items():
        lines += [f"{group}:", ""]
        lines += [f"   {each.name:{width}}  {each.summary}" for each in members]
        lines.append("")
    lines.append(f"Use '{program.name} help <command>' to learn more about a specific command")
    return "\n".join(lines)


def command_help(command: Command, program: Program) -> str:
    """The help of one command of `program`."""
    lines = ["", "Usage", "", command.usage(program.name), "", f"{command.summary}.", ""]
    if command.columns:
        lines += ["Columns", "", f"\t{', '.join(sorted(command.columns))}", ""]
    if command.options:
        lines += ["Options", "", *_option_lines(command.options), ""]
    lines += ["General options", "", *_option_lines(GENERAL)]
    return "\n".join(lines)


def not_found(name: str, program: Program) -> CommandError:
    """The failure for a command that does not exist, with a similar name if there is one."""
    hint = _hint(name, program) or general_usage(program)
    return CommandError(f"\nCommand '{name}' not found. \n{hint}", USAGE)


def _hint(name: str, program: Program) -> str:
    """A line with a command of a similar name, "" without one."""
    import difflib

    similar = difflib.get_close_matches(name, program.commands, 1, 0.8)
    return f"Did you mean '{similar[0]}'? \n" if similar else ""


def _option_lines(options: Iterable[Option]) -> list[str]:
    shown = [(_flags(option), option.help) for option in options]
    width = max([len(flags) for flags, _ in shown])
    return [f"   {flags:{width}}  {text}" for flags, text in shown]


def _flags(option: Option) -> str:
    short = f"-{option.short}, " if option.short else ""
    value = "" if option.kind == "flag" else f" <{option.metavar or option.name}>"
    return f"{short}--{option.name}{value}"


def _help(run: Run) -> Output:
    if run.flag("list-commands"):
        return Text("\n".join(sorted(run.program.commands)))
    if not run.arguments:
        return Text(general_usage(run.program))
    command = run.program.commands.get(run[0])
    if command is None:
        hint = _hint(run[0], run.program)
        hint = f" \n{hint}" if hint else ""
        raise CommandError(f"Error:\n\nCommand '{run[0]}' not found.{hint}", USAGE)
    return Text(command_help(command, run.program))


def _autocomplete(run: Run) -> Output:
    prefix = run[0] if run.arguments else ""
    return Text(
        "\n".join([name for name in sorted(run.program.commands) if name.startswith(prefix)])
    )


def _completion(run: Run) -> Output:
    from warrenmq.cli.control import completion

    scripts = {"bash": completion.bash, "zsh": completion.zsh, "fish": completion.fish}
    script = scripts.get(run[0])
    if script is None:
        raise CommandError(f"Error:\nthe shells are {', '.join(_SHELLS)}", USAGE)
    return Text(script(run.program.commands.values()))


def _version(run: Run) -> Output:
    """RabbitMQ's version alone, since scripts take the whole text for it; JSON has both."""
    value = {
        "version": RABBITMQ_VERSION,
        "product_name": "warren",
        "product_version": warrenmq.__version__,
    }
    return Text(RABBITMQ_VERSION, {"node": run.link.expected_name, "result": "ok", "value": value})


COMMANDS: Final = (
    Command(
        "autocomplete", GROUP, "Lists commands that begin with a prefix", _autocomplete,
        "[prefix]", (0, 1), needs="nothing",
    ),
    Command(
        "completion", GROUP, "Prints a script that completes command lines in a shell",
        _completion, " | ".join(_SHELLS), (1, 1), needs="nothing",
    ),
    Command(
        "help", GROUP, "Shows all commands, or the help of one", _help, "[<command>]", (0, 1),
        options=(Option("list-commands", "flag", help="names of commands only"),), needs="nothing",
    ),
    Command("version", GROUP, "Shows the version of RabbitMQ whose commands these are", _version, needs="nothing"),
)  # fmt: skip
