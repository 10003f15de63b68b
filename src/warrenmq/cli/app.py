"""The `warren` command and its subcommands.

A command with many options lives in a module of its own (`perf.py`); this one knows only its name and its line of help,
and loads it when it is asked for.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from warrenmq import __version__
from warrenmq.build import build_name

app = typer.Typer(
    help="warren: a message broker for AMQP 0-9-1.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# The owner of the arguments parses them: everything behind the name goes through as it stands, `--help` included.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"warren {__version__} ({build_name()})")
        raise typer.Exit


@app.callback()
def _warren(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print version and build, and exit.",
        ),
    ] = False,
) -> None:
    pass


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def server(context: typer.Context) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    from warrenmq.cli import server as command

    raise typer.Exit(command.main(context.args))


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def perf(context: typer.Context) -> None:
    """Generate load and measure it, with PerfTest's flags."""
    from warrenmq.cli.perf import perf as command

    _hand_over(command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def store(context: typer.Context) -> None:
    """Check, salvage or report on a data directory without its node."""
    from warrenmq.cli.store import store as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def status(context: typer.Context) -> None:
    """How a running node is doing, and what its stores hold."""
    from warrenmq.cli.status import status_command

    _hand_over(status_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def queues(context: typer.Context) -> None:
    """The queues of a running node: where their messages are."""
    from warrenmq.cli.status import queues_command

    _hand_over(queues_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def group(context: typer.Context) -> None:
    """Reader groups of a running node: list, show, delete."""
    from warrenmq.cli.group import group as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def sink(context: typer.Context) -> None:
    """Who publishes batches exactly once: list, show or delete."""
    from warrenmq.cli.sink import sink as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def backup(context: typer.Context) -> None:
    """Back up a node, while it runs, or the data directory of a stopped one."""
    from warrenmq.cli.backup import backup_command

    _hand_over(backup_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def restore(context: typer.Context) -> None:
    """Make a data directory of a backup."""
    from warrenmq.cli.backup import restore_command

    _hand_over(restore_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def pipeline(context: typer.Context) -> None:
    """Jobs on queues, stores and archives, done by Spark."""
    from warrenmq.cli import pipeline_replay, pipeline_store  # noqa: F401  # they add their commands
    from warrenmq.cli.pipeline import pipeline as jobs

    jobs(args=context.args, prog_name=context.command_path)


def _hand_over(command: Callable[..., None], context: typer.Context) -> None:
    """Run `command`, whose signature holds its options, with everything that stood behind its name."""
    subcommand = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    subcommand.command()(command)
    subcommand(args=context.args, prog_name=context.command_path)
