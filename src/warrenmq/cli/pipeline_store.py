"""Commands of `warren pipeline` that are about stores as wholes."""

from pathlib import Path
from typing import Annotated

import typer

from warrenmq.cli.connection import Node, takes_node_and_waits
from warrenmq.cli.job_progress import ProgressKind
from warrenmq.cli.pipeline import (
    AsJson,
    EngineChoice,
    EngineOption,
    Master,
    Shown,
    Snapshots,
    StoreDirectory,
    Traceback,
    data_dir_or_node,
    pipeline,
    run_job,
)
from warrenmq.pipeline.progress import Progress
from warrenmq.pipeline.result import JobResult

NewDirectory = Annotated[
    Path, typer.Argument(metavar="NEW_DIR", help="A new directory; must not exist, or be empty.")
]


@pipeline.command("backup")
@takes_node_and_waits
def backup_command(
    target: NewDirectory,
    node: Node,
    data_dir: StoreDirectory = None,
    snapshots: Snapshots = None,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="BACKUP",
            help="Write only what came after this earlier backup of the same vhost.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """A vhost as Parquet with a manifest: of a running node, a stopped one, or a backup of files."""
    from warrenmq.pipeline.backups.job import backup

    def work(progress: Progress) -> JobResult:
        named = data_dir_or_node(data_dir, node)
        return backup(
            str(data_dir) if named is None else named.uri,
            target,
            vhost=node.vhost_option,
            base=base,
            snapshot_directory=snapshots,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            engine=engine.value,
            progress=progress,
        )

    run_job(work, as_json, shown, traceback)


@pipeline.command("restore")
@takes_node_and_waits
def restore_command(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="What warren pipeline backup has made.")
    ],
    node: Node,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="NEW_DIR",
            help="A new data directory; must not exist, or be empty.",
        ),
    ] = None,
    base: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="BACKUP",
            help="One that BACKUP is based on, where it is not in its place any more; repeatable.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """A new data directory from a vhost's backup, or its messages in a running node; verified before and after."""
    from warrenmq.pipeline.backups.restore_job import restore
    from warrenmq.pipeline.backups.restore_live_job import restore_live

    def work(progress: Progress) -> JobResult:
        bases = base or ()
        named = data_dir_or_node(data_dir, node)
        if named is not None:
            return restore_live(
                backup,
                named.uri,
                bases=bases,
                retry_timeout_s=node.retry_timeout_s,
                master=master,
                engine=engine.value,
                progress=progress,
            )
        assert data_dir is not None
        return restore(
            backup, data_dir, bases=bases, master=master, engine=engine.value, progress=progress
        )

    run_job(work, as_json, shown, traceback)


@pipeline.command("import-rabbitmq")
def import_rabbitmq_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RABBITMQ_DIR",
            help="The data directory of a RabbitMQ 3.x node that is stopped.",
        ),
    ],
    target: NewDirectory,
    definitions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What rabbitmqctl export_definitions has written."),
    ] = None,
    parquet: Annotated[
        bool,
        typer.Option(
            "--parquet", help="Make a backup in Parquet of each vhost, not a data directory."
        ),
    ] = False,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """A warren data directory from that of a RabbitMQ node; classic queues, all vhosts."""
    from warrenmq.pipeline.rabbitmq.import_job import import_rabbitmq

    run_job(
        lambda progress: import_rabbitmq(
            source,
            target,
            definitions=definitions,
            to_parquet=parquet,
            master=master,
            engine=engine.value,
            progress=progress,
        ),
        as_json,
        shown,
        traceback,
    )


@pipeline.command("verify")
def verify_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Of a stopped node: its data directory, or a backup of files."
        ),
    ],
    damage_to: Annotated[
        Path | None,
        typer.Option("--damage", metavar="FILE", help="Write the table of damage, as Parquet."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep what was done, to go on after an interruption; removed at the end.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Read a store whole, compare every checksum and count. Exit status 1 when there are problems."""
    from warrenmq.pipeline.verify_job import verify

    run_job(
        lambda progress: verify(
            source,
            damage_to=damage_to,
            work=work,
            master=master,
            engine=engine.value,
            progress=progress,
        ),
        as_json,
        shown,
        traceback,
    )


@pipeline.command("rebuild-index")
def rebuild_index_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Of a stopped node: its data directory, which is only read."
        ),
    ],
    target: NewDirectory,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """A new data directory when segments of an index are lost: from the journal and the content files."""
    from warrenmq.pipeline.rebuild_index_job import rebuild_index

    run_job(
        lambda progress: rebuild_index(source, target, progress=progress), as_json, shown, traceback
    )
