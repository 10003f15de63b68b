"""`warren pipeline JOB`: jobs on queues, stores and archives, done by Spark.

The work is done by `warren.pipeline`; here are the options and what is printed. Each command hands a function to
`run_job`. Exit status: 0, 1 when something was found or done in part only, 2 with one line on standard error when the job
could not be done.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from warren.admin.client import AdminRefusedError, NodeUnreachableError
from warren.offline.data_directory import ToolError
from warren.pipeline.progress import JsonProgress, Progress, Silent, Step
from warren.pipeline.result import FAILED_EXIT, JobError, JobResult
from warren.spark import SparkUnavailableError

if TYPE_CHECKING:
    import rich.progress

pipeline = typer.Typer(
    help="Jobs on queues, stores and archives, done by Spark; they need the extra spark and Java 17 or newer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ProgressKind(StrEnum):
    """How a job shows how far it is."""

    AUTO = "auto"
    BAR = "bar"
    JSON = "json"
    NONE = "none"


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[N,FAILURES], spark://..., ...")
]
Shown = Annotated[
    ProgressKind,
    typer.Option(
        "--progress", help="On standard error; auto is a bar on a terminal, json a line for each step."
    ),
]
Uri = Annotated[
    str | None,
    typer.Option(
        "--uri", metavar="URI", envvar="WARREN_URI", help="The node: amqp://user:password@host:port/vhost"
    ),
]

# Failures that are told in one line. Everything else is a mistake of ours and keeps its traceback.
_FAILURES: Final = (
    JobError,
    SparkUnavailableError,
    ToolError,
    AdminRefusedError,
    NodeUnreachableError,
    OSError,
)


@pipeline.callback()
def _pipeline() -> None:
    pass


def run_job(work: Callable[[Progress], JobResult], as_json: bool, shown: ProgressKind) -> None:
    """Do it, print its result, and leave with its exit status."""
    try:
        with _progress(shown) as progress:
            result = work(progress)
    except _FAILURES as error:
        print(f"warren: {error}", file=sys.stderr)
        raise typer.Exit(FAILED_EXIT) from None
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        for line in result.lines():
            print(line)
    raise typer.Exit(result.exit_code)


@contextlib.contextmanager
def _progress(shown: ProgressKind) -> Iterator[Progress]:
    if shown is ProgressKind.JSON:
        yield JsonProgress(_write_event)
    elif shown is ProgressKind.BAR or (shown is ProgressKind.AUTO and sys.stderr.isatty()):
        with _rich_progress() as bar:
            yield _BarProgress(bar)
    else:
        yield Silent()


def _write_event(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _rich_progress() -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _BarProgress:
    """One bar; a step with another name begins it anew."""

    def __init__(self, bar: "rich.progress.Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None, figures="", note="")
        self._name = ""

    def show(self, step: Step) -> None:
        figures = f"{step.done:,} {step.unit}"
        if step.total is not None:
            figures = f"{step.done:,} of {step.total:,} {step.unit}"
        if step.name != self._name:
            self._name = step.name
            self._bar.reset(self._task)
        self._bar.update(
            self._task,
            description=step.name,
            completed=step.done,
            total=None if step.total is None else max(step.total, 1),
            figures=figures,
            note=step.note,
        )
