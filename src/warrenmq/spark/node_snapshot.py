"""Makes the store of a running node readable as tables: a backup that lasts as long as its use.

On one file system a backup consists of hard links and takes a moment. The program that reads the
backup must delete it, because Spark plans partitions in separate processes, which end before
anything is read.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from warrenmq.admin.client.backup import back_up_node
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.spark.waits import waiting


@contextlib.contextmanager
def node_snapshot(uri: str, directory: str | Path | None = None) -> Iterator[Path]:
    """Path of a temporary backup of the node at `uri`, for the option `path` of "warren_store".

    The backup is made below `directory` (default: the directory for temporary files) and deleted at
    the end. `directory` must be on the node's machine and outside of its data directory; on another
    file system everything is copied. Raises BackupFailedError, and the errors of `AdminClient`. The
    user of `uri` must be an administrator.
    """
    scratch = Path(tempfile.mkdtemp(prefix="warren-snapshot-", dir=directory))
    try:
        target = scratch / "backup"
        address = NodeAddress(uri)
        with (
            AdminClient(address, "Spark snapshot") as client,
            waiting(f"the snapshot of {address.where}"),
        ):
            back_up_node(client, str(target.absolute()))
        yield target
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
