"""`warren pipeline metrics`: keeps windowed aggregates of what a broker knows of itself."""

import signal
import threading
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from warrenmq import pipeline as jobs
from warrenmq.cli.connection import Node, takes_node_and_waits
from warrenmq.cli.job_progress import ProgressKind
from warrenmq.cli.pipeline.app import (
    AsJson,
    Master,
    Shown,
    Traceback,
    pipeline,
    run_job,
)
from warrenmq.pipeline.metrics.job import INTERVAL_S, LATE_S, WINDOW_S


class WindowFormat(StrEnum):
    """The value of `--format`: the format of the windows."""

    PARQUET = "parquet"
    DELTA = "delta"


@pipeline.command("metrics")
@takes_node_and_waits
def metrics_command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="Directory of the windows: a new one, or one to continue."
        ),
    ],
    node: Node,
    window_s: Annotated[
        int, typer.Option("--window", metavar="SECONDS", help="Length of a window.")
    ] = WINDOW_S,
    late_s: Annotated[
        int,
        typer.Option(
            "--late",
            metavar="SECONDS",
            help="How long a window waits for the samples of nodes that are hard to reach.",
        ),
    ] = LATE_S,
    names: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="A metric; repeatable. (default: all)"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Directory of the job's progress. (default: TARGET.checkpoint)",
        ),
    ] = None,
    file_format: Annotated[
        WindowFormat,
        typer.Option("--format", help="Format of the windows; delta needs the extra delta."),
    ] = WindowFormat.PARQUET,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new samples until Ctrl-C or SIGTERM.")
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", help="Time between batches with --follow."),
    ] = INTERVAL_S,
    as_json: AsJson = False,
    master: Master = None,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Keep rates, depths, lag and syncs over windows of time, as Parquet or a Delta table."""
    stopping = threading.Event()
    if follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
    run_job(
        lambda progress: jobs.metrics(
            target,
            uri=node.uri,
            window_s=window_s,
            late_s=late_s,
            names=names or [],
            format=file_format.value,
            checkpoint=checkpoint,
            continuous=follow,
            interval_s=interval_s,
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
