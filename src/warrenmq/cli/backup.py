"""`warren backup` and `warren restore`.

Exit status: 0, or 2 with one line on standard error after a failure.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from warrenmq.admin.client.backup import BackupFailedError, back_up_node
from warrenmq.admin.protocol.requests import BackupStatus
from warrenmq.cli.connection import NamedBy, Node, node_client, takes_node
from warrenmq.cli.output import fail
from warrenmq.cli.progress import progress_bar
from warrenmq.offline.backup import back_up, restore
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.sizes import tree_bytes


@takes_node
def backup_command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="A new directory; for a running node, on the node's machine."
        ),
    ],
    node: Node,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="The data directory of a stopped node, instead of a running node.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Back up all vhosts of a running node, or the data directory of a stopped one."""
    try:
        if data_dir is not None:
            if node.named_by is NamedBy.OPTION:
                fail("name a directory with --data-dir, or a running node: one of them")
            with progress_bar("backing up", tree_bytes(data_dir)) as bar:
                size = back_up(data_dir, target, bar.advance).total_bytes
        else:
            size = _back_up_online(node, target)
    except (ToolError, BackupFailedError, OSError) as error:
        fail(error)
    if as_json:
        print(json.dumps({"backup": str(target), "bytes": size}))
    else:
        print(f"{target} is complete: {size} bytes")


def restore_command(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A backup made by warren backup.")
    ],
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", help="The new data directory; must not exist, or be empty."
        ),
    ],
    accept_problems: Annotated[
        bool,
        typer.Option(
            "--accept-problems",
            help="Restore even a store that had problems when it was backed up.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a new data directory from a backup, after a check of the whole backup."""
    try:
        # The three passes over all bytes: checksums, check, copy.
        with progress_bar("restoring", 3 * tree_bytes(backup)) as bar:
            manifest, result = restore(backup, data_dir, accept_problems, bar.advance)
    except (ToolError, OSError) as error:
        fail(error)
    if as_json:
        found = {
            "data_dir": str(data_dir),
            "bytes": manifest.total_bytes,
            "created": manifest.created,
        }
        print(json.dumps({**found, "check": result.as_json()}))
    else:
        print(
            f"{data_dir} is restored from the backup of {manifest.created}: "
            f"{result.queues} queues, {result.messages} messages, {manifest.total_bytes} bytes"
        )


def _back_up_online(node: Node, target: Path) -> int:
    with node_client(node, "warren backup") as client, progress_bar("backing up", 1) as bar:

        def show(status: BackupStatus) -> None:
            bar.show(f"backing up: {status.step}", status.done_bytes, status.total_bytes)

        return back_up_node(client, str(target.absolute()), show).total_bytes
