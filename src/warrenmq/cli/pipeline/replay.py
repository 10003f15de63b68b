"""`warren pipeline replay`: publishes messages from files, each exactly once."""

from enum import StrEnum
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
    pipeline,
    run_job,
)


class Unroutable(StrEnum):
    """The value of `--mandatory`: what happens to a message that no queue would get."""

    FAIL = "fail"
    IGNORE = "ignore"


@pipeline.command("replay")
@takes_node_and_waits
def replay_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Archives, Delta and Iceberg tables, backups in Parquet, or other Parquet files with messages; a URI such as s3://BUCKET/PATH names an archive, a table or a backup.",
        ),
    ],
    node: Node,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Only messages that match, for example \"routing_key like 'a.%' and size < 1000\".",
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Publish all messages to this exchange; empty: the default exchange. (default: each message's own)",
        ),
    ] = None,
    routing_key: Annotated[
        str | None,
        typer.Option(
            "--routing-key",
            metavar="KEY",
            help="Publish all messages with this key. (default: each message's own)",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Publish at most this many messages per second."),
    ] = None,
    mandatory: Annotated[
        Unroutable,
        typer.Option(
            help="On a message that no queue would get: fail ends the run, ignore skips it (exit status 1)."
        ),
    ] = Unroutable.FAIL,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Count messages by exchange and routing key, and publish nothing."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the job's progress. (default: one beside the first SOURCE)",
        ),
    ] = None,
    as_json: AsJson = False,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Publish messages from Parquet files, Delta tables or backups, each exactly once."""
    from warrenmq.pipeline.replays.job import replay

    run_job(
        lambda progress: replay(
            sources,
            uri=node.uri,
            where=where,
            exchange=exchange,
            routing_key=routing_key,
            rate=rate,
            mandatory=mandatory.value,
            dry_run=dry_run,
            checkpoint=checkpoint,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            engine=engine.value,
            progress=progress,
        ),
        as_json,
        shown,
        traceback,
        node.default_notice,
    )
