"""A running node's store, to be read as tables: a backup that is there for as long as it is used.

On one file system a backup is hard links, made in a moment. The program that reads it must be the one that deletes it:
Spark asks for partitions in processes of its own that end before anything is read.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from warrenmq.admin.backup_client import back_up_node
from warrenmq.admin.client import AdminClient, NodeAddress


@contextlib.contextmanager
def node_snapshot(uri: str, directory: str | Path | None = None) -> Iterator[Path]:
    """The path of a backup of the node at `uri`, for the option `path` of format "warren_store"; deleted at the end.

    It is made below `directory`, which is on the node's machine and outside of its data directory: on the same file
    system, or everything is copied. Without one it is the place for temporary files. Raises BackupFailedError, and what
    `AdminClient` raises; the user must be an administrator.
    """
    scratch = Path(tempfile.mkdtemp(prefix="warren-snapshot-", dir=directory))
    try:
        target = scratch / "backup"
        with AdminClient(NodeAddress(uri), "Spark snapshot") as client:
            back_up_node(client, str(target.absolute()))
        yield target
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
