"""`warren pipeline compare-mirrors`: compares the copies of a mirrored queue."""

from pathlib import Path
from typing import Annotated

import typer

from warrenmq.cli.connection import Node, takes_node_and_waits
from warrenmq.cli.job_progress import ProgressKind
from warrenmq.cli.pipeline.app import (
    AsJson,
    EngineChoice,
    EngineOption,
    Master,
    Shown,
    Traceback,
    data_dir_or_node,
    pipeline,
    run_job,
)
from warrenmq.pipeline.progress import Progress
from warrenmq.pipeline.result import JobResult


@pipeline.command("compare-mirrors")
@takes_node_and_waits
def compare_mirrors_command(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The mirrored queue.")],
    node: Node,
    directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help="Compare the copies in directories instead: of stopped nodes, or backups of files; repeatable.",
        ),
    ] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for the nodes' snapshots and the job's files, which all nodes and Spark's workers see.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the table of differences to FILE, as Parquet."),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Compare the copies of a mirrored queue, message by message. Exit status 1 if they differ."""
    from warrenmq.pipeline.mirrors.job import compare_mirrors

    def work(progress: Progress) -> JobResult:
        first = directories[0] if directories else None
        named = data_dir_or_node(first, node, "--directory")
        return compare_mirrors(
            queue,
            uri=None if named is None else named.uri,
            directories=directories or () if named is None else (),
            vhost=node.vhost_option if named is None else None,
            snapshots=snapshots,
            output=output,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            engine=engine.value,
            progress=progress,
        )

    run_job(work, as_json, shown, traceback)
