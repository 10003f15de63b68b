"""`warren pipeline JOB`: jobs on queues, stores and archives, done by Spark.

The work is done by `warren.pipeline`; here are the options and what is printed. Each command hands a function to
`run_job`. Exit status: 0, 1 when something was found or done in part only, 2 with one line on standard error when the job
could not be done.
"""

import contextlib
import json
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from warren import pipeline as jobs
from warren.admin.client import AdminRefusedError, NodeUnreachableError
from warren.broker.metadata import MetadataError
from warren.offline.data_directory import ToolError
from warren.pipeline.archive_job import INTERVAL_S, MERGE_BYTES
from warren.pipeline.progress import JsonProgress, Progress, Silent, Step
from warren.pipeline.result import FAILED_EXIT, JobError, JobResult
from warren.pipeline.spark_run import program_ends_with_job
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


class EngineChoice(StrEnum):
    """Who does a job's tasks."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


class FileFormat(StrEnum):
    """What an archive is."""

    PARQUET = "parquet"
    DELTA = "delta"


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's address, as local[2,4] or spark://HOST:PORT. (default: this machine)",
    ),
]
EngineOption = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        help="Who does the work; local: this machine without Java; auto: local for small input, else spark.",
    ),
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

# Of jobs that read a store, or a running node instead.
StoreDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Of a stopped node: its data directory, or a backup of files."
    ),
]
NodeUri = Annotated[
    str | None,
    typer.Option(
        "--uri",
        metavar="URI",
        envvar="WARREN_URI",
        help="Instead: a running node, for one of its administrators: amqp://user:password@host:port/vhost",
    ),
]
Snapshots = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where a running node makes its snapshot: on its machine, best on the file system of its data.",
    ),
]

# The node of this machine, and the user that every new node has.
DEFAULT_URI: Final = "amqp://guest:guest@localhost:5672/"

# Failures that are told in one line. Everything else is a mistake of ours and keeps its traceback.
_FAILURES: Final = (
    JobError,
    SparkUnavailableError,
    ToolError,
    AdminRefusedError,
    NodeUnreachableError,
    MetadataError,
    OSError,
)


@pipeline.callback()
def _pipeline() -> None:
    pass


def run_job(work: Callable[[Progress], JobResult], as_json: bool, shown: ProgressKind) -> None:
    """Do it, print its result, and leave with its exit status."""
    program_ends_with_job()
    try:
        with _progress(shown) as progress:
            result = work(progress)
    except _FAILURES as error:
        print(f"warren: {error}", file=sys.stderr)
        raise typer.Exit(FAILED_EXIT) from None
    except KeyboardInterrupt:
        print("warren: interrupted", file=sys.stderr)
        raise typer.Exit(FAILED_EXIT) from None
    except Exception:  # A mistake of ours: python's own exit status for it, 1, says that something was found.
        traceback.print_exc()
        raise typer.Exit(FAILED_EXIT) from None
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        for line in result.lines():
            print(line)
    raise typer.Exit(result.exit_code)


def node_uri(context: typer.Context, data_dir: Path | None, uri: str | None) -> str | None:
    """Of a job that is about a directory or a node: the URI, or None for the directory. JobError when both were named, or
    neither; what only the environment says is not named beside a directory."""
    source = context.get_parameter_source("uri")
    is_named = uri is not None and source is not None and source.name == "COMMANDLINE"
    if (data_dir is not None and is_named) or (data_dir is None and uri is None):
        raise JobError("name a directory with --data-dir, or a node with --uri: one of them")
    return uri if data_dir is None else None


@pipeline.command()
def archive(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The archive: a new directory, or one to go on with.")
    ],
    queues: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="A durable queue; repeatable.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="Instead: all durable queues whose whole names match."
        ),
    ] = None,
    uri: Uri = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="Reader group. (default: one for TARGET)")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="How far it is. (default: TARGET.checkpoint)"),
    ] = None,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="delta needs the extra delta.")
    ] = FileFormat.PARQUET,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what arrives, until Ctrl-C or SIGTERM.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="With --follow: between batches.")
    ] = INTERVAL_S,
    merge_mib: Annotated[
        int, typer.Option("--merge", metavar="MIB", help="Merge small files up to this size; 0: never.")
    ] = MERGE_BYTES >> 20,
    ignore_data_loss: Annotated[
        bool,
        typer.Option(
            "--ignore-data-loss",
            help="Go on although a queue or the group was deleted before everything was read.",
        ),
    ] = False,
    as_json: AsJson = False,
    master: Master = None,
    shown: Shown = ProgressKind.AUTO,
) -> None:
    """Move queues into Parquet files or a Delta table, each message exactly once."""
    stopping = threading.Event()
    if follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
    run_job(
        lambda progress: jobs.archive(
            target,
            uri=uri or DEFAULT_URI,
            queues=queues or [],
            pattern=pattern,
            group=group,
            checkpoint=checkpoint,
            format=file_format.value,
            continuous=follow,
            interval_s=interval_s,
            merge_bytes=merge_mib << 20 if merge_mib else None,
            fail_on_data_loss=not ignore_data_loss,
            master=master,
            progress=progress,
            stopping=stopping,
        ),
        as_json,
        shown,
    )


@pipeline.command()
def report(
    context: typer.Context,
    html: Annotated[
        Path, typer.Argument(metavar="FILE.html", help="The page; the same as JSON comes beside it.")
    ],
    data_dir: StoreDirectory = None,
    uri: NodeUri = None,
    snapshots: Snapshots = None,
    headers: Annotated[
        bool, typer.Option("--headers/--no-headers", help="Look into headers, for dead letters.")
    ] = True,
    as_json: AsJson = False,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    shown: Shown = ProgressKind.AUTO,
) -> None:
    """What is in a store: one HTML file with charts, and JSON."""
    run_job(
        lambda progress: jobs.report(
            html,
            directory=data_dir,
            uri=node_uri(context, data_dir, uri),
            snapshots=snapshots,
            headers=headers,
            master=master,
            engine=engine.value,
            progress=progress,
        ),
        as_json,
        shown,
    )


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
