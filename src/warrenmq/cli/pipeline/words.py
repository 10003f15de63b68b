"""The words of `warren pipeline JOB`, looked at by its parser and not run.

The HTTP API checks the arguments of jobs so, and `warren pipeline schedule add` finds them.
"""

from enum import Enum
from pathlib import Path
from typing import Any

from typer.exceptions import TyperException
from typer.main import get_command

# These modules add their commands to `pipeline` when they are imported.
from warrenmq.cli.pipeline import (  # noqa: F401  # they register commands
    metrics,
    mirrors,
    replay,
    store,
)
from warrenmq.cli.pipeline.app import pipeline
from warrenmq.management.jobs.kinds import BadArguments, Field, kind_of


def refusal_of(words: list[str]) -> str:
    """The parser's one line about the words behind `warren pipeline`; "" if it takes them."""
    try:
        context_of(words)
    except BadArguments as error:
        return str(error)
    return ""


def arguments_of(words: list[str]) -> dict[str, Any]:
    """The arguments of the job by its fields, as the words behind `warren pipeline` give them.

    Raises BadArguments for words that the parser refuses, and for options that are no field.
    """
    kind = kind_of(words[0])
    context = context_of(words)
    found: dict[str, Any] = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        named = {*parameter.opts, *parameter.secondary_opts}
        is_argument = parameter.param_type_name == "argument"
        fields = [
            field
            for field in kind.fields
            if (field.option in named if field.option else is_argument)
        ]
        if not fields:
            raise BadArguments(f"{parameter.opts[0]} is not for jobs that the node runs")
        found[fields[0].name] = _plain(fields[0], context.params[parameter.name or ""])
    return found


def context_of(words: list[str]) -> Any:
    """The parser's context of a command. Raises BadArguments."""
    command = getattr(get_command(pipeline), "commands", {}).get(words[0])
    if command is None:
        raise BadArguments(f"No such command '{words[0]}'.")
    try:
        return command.make_context(words[0], words[1:])
    except TyperException as error:
        raise BadArguments(error.format_message()) from None


def _plain(field: Field, value: Any) -> Any:
    """A value of the parser as JSON has it."""
    if field.kind in ("sources", "texts"):
        return [str(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
