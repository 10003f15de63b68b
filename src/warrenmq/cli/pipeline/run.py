"""`warren pipeline run FILE`: several jobs, one after the other, in one Spark.

Starting Spark costs more than a small job, and the jobs of a process share it. The whole file is
checked before the first job. Exit status: the highest one of the jobs; 2 with one line on standard
error when the file cannot be read or names something that is no job.
"""

import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from warrenmq.cli.output import fail
from warrenmq.cli.pipeline.app import InterruptedExit, pipeline
from warrenmq.cli.pipeline.words import context_of
from warrenmq.management.jobs.kinds import BadArguments
from warrenmq.pipeline.result import OK_EXIT

# Commands of `warren pipeline` that are no jobs.
_NO_JOBS: Final = ("run", "schedule")


@pipeline.command("run")
def run_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A job in each line, as behind `warren pipeline`; a # begins a comment.",
        ),
    ],
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Do the jobs behind one that fails, too.")
    ] = False,
) -> None:
    """Run the jobs of a file, one after the other, in one Spark."""
    try:
        jobs = _jobs_in(file)
    except (OSError, ValueError, BadArguments) as error:
        fail(str(error))
    status = OK_EXIT
    for place, context in jobs:
        print(place, file=sys.stderr)
        # `archive --follow` replaces these handlers and does not restore them.
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with context:
                context.command.invoke(context)
        except InterruptedExit:
            raise
        except typer.Exit as ended:
            status = max(status, ended.exit_code)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if status != OK_EXIT and not keep_going:
            break
    raise typer.Exit(status)


def _jobs_in(file: Path) -> list[tuple[str, Any]]:
    """The jobs of a file, each with its place as text and the parser's context.

    Raises OSError, ValueError and BadArguments.
    """
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        place = f"{file}, line {number}"
        try:
            words = shlex.split(line, comments=True)
            if words and words[0] in _NO_JOBS:
                raise BadArguments(f"'{words[0]}' is no job")
            if words:
                found.append((f"{place}: {shlex.join(words)}", context_of(words)))
        except (ValueError, BadArguments) as error:
            raise BadArguments(f"{place}: {error}") from None
    if not found:
        raise BadArguments(f"{file} has no job")
    return found
