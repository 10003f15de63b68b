"""Commands of `warren pipeline` that are about stores as wholes: backup, restore."""

from pathlib import Path
from typing import Annotated

import typer

from warren.cli.pipeline import AsJson, Master, ProgressKind, Shown, Uri, pipeline, run_job
from warren.pipeline.result import JobError
from warren.pipeline.spark_run import MASTER

NewDirectory = Annotated[
    Path, typer.Argument(metavar="NEW_DIR", help="A new directory; must not exist, or be empty.")
]
DataDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Of a stopped node: its data directory, or a backup of files."
    ),
]


@pipeline.command("backup")
def backup_command(
    target: NewDirectory,
    data_dir: DataDirectory = None,
    uri: Uri = None,
    vhost: Annotated[str, typer.Option(metavar="NAME", help="The vhost that is backed up.")] = "/",
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="BACKUP", help="Write only what came after this earlier backup of the same vhost."
        ),
    ] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Of a running node: where its snapshot is made, on its machine and best on the disk of its data. "
            "(default: beside NEW_DIR)",
        ),
    ] = None,
    master: Master = MASTER,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
) -> None:
    """A vhost as Parquet with a manifest: of a running node, a stopped one, or a backup of files."""
    from warren.pipeline.backup_job import backup

    source = str(data_dir) if data_dir is not None else uri
    run_job(
        lambda progress: backup(
            _given(source, "--data-dir or --uri"),
            target,
            vhost=vhost,
            base=base,
            snapshot_directory=snapshots,
            master=master,
            progress=progress,
        ),
        as_json,
        shown,
    )


@pipeline.command("restore")
def restore_command(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What warren pipeline backup has made.")],
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="NEW_DIR", help="The new data directory; must not exist, or be empty."
        ),
    ],
    base: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="BACKUP",
            help="One that BACKUP is based on, where it is not in its place any more; repeatable.",
        ),
    ] = None,
    master: Master = MASTER,
    as_json: AsJson = False,
    shown: Shown = ProgressKind.AUTO,
) -> None:
    """A new data directory from a vhost's backup; verified before and after it is written."""
    from warren.pipeline.restore_job import restore

    run_job(
        lambda progress: restore(backup, data_dir, bases=base or (), master=master, progress=progress),
        as_json,
        shown,
    )


def _given(value: str | None, options: str) -> str:
    if value is None:
        raise JobError(f"nothing says what to read: give {options}")
    return value
