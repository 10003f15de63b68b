"""Checks the words of `warren pipeline` without running them, for schedules and the HTTP API."""

from typer.exceptions import TyperException
from typer.main import get_command

# These modules add their commands to `pipeline` when they are imported.
from warrenmq.cli import pipeline_replay, pipeline_store  # noqa: F401  # they register commands
from warrenmq.cli.pipeline import pipeline


def refusal_of(words: list[str]) -> str:
    """The parser's one line about the words behind `warren pipeline`; "" if it takes them."""
    group = get_command(pipeline)
    command = getattr(group, "commands", {}).get(words[0])
    if command is None:
        return f"No such command '{words[0]}'."
    try:
        command.make_context(words[0], words[1:])
    except TyperException as error:
        return error.format_message()
    return ""
