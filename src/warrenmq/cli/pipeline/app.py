"""`warren pipeline JOB`: runs jobs on queues, stores and archives with Spark.

This module has the options and the printing; `warrenmq.pipeline` does the work. Each command passes
a function to `run_job`. Exit status: 0; 1 when the job found problems or was done in part only; 2
with one line on standard error when it failed.
"""

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from traceback import format_exception_only, print_exception
from typing import Annotated, Final

import typer

from warrenmq import pipeline as jobs
from warrenmq.admin.client.client import AdminRefusedError, NodeUnreachableError
from warrenmq.broker.definitions.metadata import MetadataError
from warrenmq.cli.connection import NamedBy, Node, takes_node_and_waits
from warrenmq.cli.job_progress import ProgressKind, progress_of
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.archives.job import INTERVAL_S, MERGE_BYTES
from warrenmq.pipeline.progress import Progress
from warrenmq.pipeline.result import FAILED_EXIT, JobError, JobResult
from warrenmq.pipeline.spark_run import program_ends_with_job
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.reason import one_line

_log = logging.getLogger("warren.pipeline")

pipeline = typer.Typer(
    help="Jobs on queues, stores and archives. They run on Spark, which needs the extra spark and Java 17 or "
    "newer; most can do without (--engine local).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class EngineChoice(StrEnum):
    """The value of `--engine`: where a job's tasks run."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


class FileFormat(StrEnum):
    """The value of `--format`: the format of an archive."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master, such as local[2,4] or spark://HOST:PORT. (default: this machine)",
    ),
]
EngineOption = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        help="Where the work runs. local: this machine, without Java; auto: spark where it can run, else local.",
    ),
]
Traceback = Annotated[
    bool,
    typer.Option("--traceback", help="Show the stack of an error too, and Spark's log of it."),
]
Shown = Annotated[
    ProgressKind,
    typer.Option(
        "--progress",
        help="Progress on standard error. auto: a bar on a terminal; json: a line for each step.",
    ),
]
# Options of jobs that read a store or, instead, a running node.
StoreDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data directory of a stopped node, or a backup of files.",
    ),
]
Snapshots = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory on the node's machine for the running node's snapshot, best on the file system of its data.",
    ),
]

# Errors whose text is one line with the reason. Any other error is a mistake in warren.
_FAILURES: Final = (
    JobError,
    SparkUnavailableError,
    ToolError,
    AdminRefusedError,
    NodeUnreachableError,
    MetadataError,
    OSError,
)


class InterruptedExit(typer.Exit):
    """The exit of a job that Ctrl-C has ended."""


@pipeline.callback()
def _pipeline() -> None:
    pass


def run_job(
    work: Callable[[Progress], JobResult],
    as_json: bool,
    shown: ProgressKind,
    traceback: bool = False,
    notice: str = "",
) -> None:
    """Run the job, print its result and exit with its status.

    `notice` is a line to show before the job; empty for none.
    """
    program_ends_with_job(shows_logs=traceback)
    try:
        with progress_of(shown) as progress:
            if notice:
                _log.warning(notice)
            result = work(progress)
    except KeyboardInterrupt:
        print("warren: interrupted", file=sys.stderr)
        raise InterruptedExit(FAILED_EXIT) from None
    except Exception as error:
        # Python exits with 1 after an uncaught error, but 1 means that the job found problems.
        _tell(error, traceback)
        raise typer.Exit(FAILED_EXIT) from None
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        for line in result.lines():
            print(line)
    raise typer.Exit(result.exit_code)


def _tell(error: Exception, traceback: bool) -> None:
    """Print the error in one line, and the stack with `traceback`."""
    if isinstance(error, _FAILURES):
        print(f"warren: {error}", file=sys.stderr)
    else:
        hint = "" if traceback else " (a mistake in warren: --traceback shows where)"
        print(f"warren: {one_line(''.join(format_exception_only(error)))}{hint}", file=sys.stderr)
    if traceback:
        print_exception(error)


def data_dir_or_node(data_dir: Path | None, node: Node, option: str = "--data-dir") -> Node | None:
    """The node that a job reads, or None when it reads the directory, which `option` names.

    Raises JobError unless exactly one of the two is named; beside a directory, a node from the
    environment does not count.
    """
    is_both = data_dir is not None and node.named_by is NamedBy.OPTION
    if is_both or (data_dir is None and node.named_by is NamedBy.DEFAULT):
        raise JobError(f"name a directory with {option}, or a node with --uri: one of them")
    return node if data_dir is None else None


@pipeline.command()
@takes_node_and_waits
def archive(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The archive: a new directory, or one to continue; or a URI such as s3://BUCKET/PATH.",
        ),
    ],
    node: Node,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="A durable queue; repeatable."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="All durable queues whose whole names match, instead of --queue.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="The reader group to read with. (default: one for TARGET)",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Directory of the job's progress, on this machine; required for a URI. (default: TARGET.checkpoint)",
        ),
    ] = None,
    file_format: Annotated[
        FileFormat,
        typer.Option(
            "--format", help="Format of the archive; delta and iceberg need the extra of that name."
        ),
    ] = FileFormat.PARQUET,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new messages until Ctrl-C or SIGTERM.")
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", help="Time between batches with --follow."),
    ] = INTERVAL_S,
    merge_mib: Annotated[
        int,
        typer.Option(
            "--merge", metavar="MIB", help="Merge small files up to this size in MiB; 0: never."
        ),
    ] = MERGE_BYTES >> 20,
    ignore_data_loss: Annotated[
        bool,
        typer.Option(
            "--ignore-data-loss",
            help="Continue when a queue or the group was deleted before all of it was read.",
        ),
    ] = False,
    as_json: AsJson = False,
    master: Master = None,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Move queues into Parquet files or a table of a lake, each message exactly once."""
    stopping = threading.Event()
    if follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
    run_job(
        lambda progress: jobs.archive(
            target,
            uri=node.uri,
            queues=queues or [],
            pattern=pattern,
            group=group,
            checkpoint=checkpoint,
            format=file_format.value,
            continuous=follow,
            interval_s=interval_s,
            merge_bytes=merge_mib << 20 if merge_mib else None,
            fail_on_data_loss=not ignore_data_loss,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            progress=progress,
            stopping=stopping,
        ),
        as_json,
        shown,
        traceback,
        node.default_notice,
    )


@pipeline.command()
@takes_node_and_waits
def report(
    html: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.html",
            help="The HTML page to write; the same figures as JSON are written beside it.",
        ),
    ],
    node: Node,
    data_dir: StoreDirectory = None,
    snapshots: Snapshots = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics",
            metavar="DIR",
            help="Windows of `warren pipeline metrics`, to be drawn over time.",
        ),
    ] = None,
    headers: Annotated[
        bool,
        typer.Option(
            "--headers/--no-headers", help="Read message headers, to report dead letters."
        ),
    ] = True,
    as_json: AsJson = False,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Report what is in a store: one HTML file with charts, and the same as JSON."""

    def work(progress: Progress) -> JobResult:
        named = data_dir_or_node(data_dir, node)
        return jobs.report(
            html,
            directory=data_dir,
            uri=None if named is None else named.uri,
            snapshots=snapshots,
            metrics=metrics,
            headers=headers,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            engine=engine.value,
            progress=progress,
        )

    run_job(work, as_json, shown, traceback)
