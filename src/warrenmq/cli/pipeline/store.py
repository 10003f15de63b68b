"""Commands of `warren pipeline` that work on whole stores."""

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
    target: Annotated[
        str,
        typer.Argument(
            metavar="NEW_DIR",
            help="A new directory; must not exist, or be empty; or a URI such as s3://BUCKET/PATH.",
        ),
    ],
    node: Node,
    data_dir: StoreDirectory = None,
    snapshots: Snapshots = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="BACKUP",
            help="Write only what is newer than this earlier backup of the same vhost.",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A new directory of this machine for the job's progress, removed at the end; for a URI only, and required there.",
        ),
    ] = None,
    definitions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With the directory of a node of a cluster: what warrenctl export_definitions has written.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Back up a vhost as Parquet with a manifest: of a running node, a stopped one, or a backup."""
    from warrenmq.pipeline.backups.job import backup

    def make(progress: Progress) -> JobResult:
        named = data_dir_or_node(data_dir, node)
        return backup(
            str(data_dir) if named is None else named.uri,
            target,
            vhost=node.vhost_option,
            base=base,
            work=work,
            snapshot_directory=snapshots,
            definitions=definitions,
            retry_timeout_s=node.retry_timeout_s,
            master=master,
            engine=engine.value,
            progress=progress,
        )

    run_job(make, as_json, shown, traceback)


@pipeline.command("restore")
@takes_node_and_waits
def restore_command(
    backup: Annotated[
        str,
        typer.Argument(
            metavar="BACKUP", help="A backup made by warren pipeline backup: a path or a URI."
        ),
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
        list[str] | None,
        typer.Option(
            metavar="BACKUP",
            help="A backup that BACKUP is based on, when it has moved; repeatable.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Restore a vhost's backup to a new data directory or a running node.

    Verifies the backup before, and the result after.
    """
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
            help="The data directory of a stopped RabbitMQ 3.x node.",
        ),
    ],
    target: NewDirectory,
    definitions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The output of rabbitmqctl export_definitions."),
    ] = None,
    parquet: Annotated[
        bool,
        typer.Option(
            "--parquet", help="Write a Parquet backup of each vhost instead of a data directory."
        ),
    ] = False,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Make a warren data directory from that of a stopped RabbitMQ node.

    Converts the classic queues of all vhosts.
    """
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
            metavar="DIR", help="The data directory of a stopped node, or a backup of files."
        ),
    ],
    damage_to: Annotated[
        Path | None,
        typer.Option(
            "--damage", metavar="FILE", help="Write the table of damage to FILE, as Parquet."
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the job's progress, to resume after an interruption; removed at the end.",
        ),
    ] = None,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Read a whole store and verify every checksum and count. Exit status 1 for problems."""
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
        typer.Argument(metavar="DIR", help="The data directory of a stopped node; only read."),
    ],
    target: NewDirectory,
    master: Master = None,
    engine: EngineOption = EngineChoice.AUTO,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
    traceback: Traceback = False,
) -> None:
    """Rebuild lost segments of an index into a new data directory.

    The journal and the content files supply the lost entries.
    """
    from warrenmq.pipeline.rebuild_index_job import rebuild_index

    run_job(
        lambda progress: rebuild_index(
            source, target, master=master, engine=engine.value, progress=progress
        ),
        as_json,
        shown,
        traceback,
    )
