"""A backup of a running node, asked for and waited for."""

import time
from collections.abc import Callable
from typing import Final

from warrenmq.admin.client import AdminClient
from warrenmq.admin.protocol import BACKUP_DONE, BACKUP_FAILED, BackupStatus, GetBackup, StartBackup

_POLL_S: Final = 0.1


class BackupFailedError(Exception):
    """The node could not make it; one line that says why. Nothing is left of it."""


def back_up_node(
    client: AdminClient,
    target: str,
    on_status: Callable[[BackupStatus], None] = lambda status: None,
) -> BackupStatus:
    """Have the node make a backup in `target`, a new directory on its machine; returns when it is complete.

    `on_status` is told how it goes. Raises BackupFailedError, and what `AdminClient.request` raises.
    """
    status = client.request(StartBackup(target), BackupStatus)
    while status.step not in (BACKUP_DONE, BACKUP_FAILED):
        time.sleep(_POLL_S)
        status = client.request(GetBackup(), BackupStatus)
        on_status(status)
    if status.step == BACKUP_FAILED:
        raise BackupFailedError(f"the backup failed: {status.text}")
    return status
