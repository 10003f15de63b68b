"""The `warren` command and its subcommands.

A command with many options lives in a module of its own (`perf.py`). This module has only the
command's name and its line of help, and loads the command's module when it runs.
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

# The command's own module parses the arguments: everything after its name passes through unchanged,
# `--help` included.
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
def management(context: typer.Context) -> None:
    """Serve the HTTP API of a running node until SIGTERM or Ctrl-C."""
    from warrenmq.cli.management import management_command

    _hand_over(management_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def config(context: typer.Context) -> None:
    """Check a configuration, or show what is in force and where it comes from."""
    from warrenmq.cli import config as command

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
    """Show the state of a running node and the figures of its stores."""
    from warrenmq.cli.status import status_command

    _hand_over(status_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def queues(context: typer.Context) -> None:
    """Show the queues of a running node, their rates, and where their messages are."""
    from warrenmq.cli.status import queues_command

    _hand_over(queues_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def top(context: typer.Context) -> None:
    """Show the busiest queues of a running node, live."""
    from warrenmq.cli.top import top_command

    _hand_over(top_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def trace(context: typer.Context) -> None:
    """Print the messages of a vhost as clients publish and get them, for a while."""
    from warrenmq.cli.trace.command import trace_command

    _hand_over(trace_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def group(context: typer.Context) -> None:
    """List, show or delete reader groups of a running node."""
    from warrenmq.cli.group import group as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def sink(context: typer.Context) -> None:
    """List, show or delete sinks, through which Spark publishes exactly once."""
    from warrenmq.cli.sink import sink as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def topology(context: typer.Context) -> None:
    """Declare the exchanges, queues and bindings of a YAML file, or show what would change."""
    from warrenmq.cli.topology import topology as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def backup(context: typer.Context) -> None:
    """Back up a running node, or the data directory of a stopped one."""
    from warrenmq.cli.backup import backup_command

    _hand_over(backup_command, context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def restore(context: typer.Context) -> None:
    """Make a new data directory from a backup."""
    from warrenmq.cli.backup import restore_command

    _hand_over(restore_command, context)


@app.command("service", context_settings=_PASS_THROUGH, add_help_option=False)
def systemd_service(context: typer.Context) -> None:
    """Install the node as a service of systemd, or show what is installed."""
    from warrenmq.cli.systemd.app import service as commands

    commands(args=context.args, prog_name=context.command_path)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def pipeline(context: typer.Context) -> None:
    """Run jobs on queues, stores and archives with Spark."""
    # These modules add their commands to the application when they are imported.
    from warrenmq.cli.pipeline import (  # noqa: F401  # they register commands
        metrics,
        mirrors,
        replay,
        run,
        schedule,
        store,
    )
    from warrenmq.cli.pipeline.app import pipeline as jobs

    jobs(args=context.args, prog_name=context.command_path)


def _hand_over(command: Callable[..., None], context: typer.Context) -> None:
    """Run `command`, whose signature declares its options, with all arguments after its name."""
    subcommand = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    subcommand.command()(command)
    subcommand(args=context.args, prog_name=context.command_path)
