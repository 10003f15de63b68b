"""Requests a backup from a running node and waits until it is complete."""

import contextlib
import time
from collections.abc import Callable
from typing import Final

from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeUnreachableError
from warrenmq.admin.protocol import requests

_POLL_S: Final = 0.1


class BackupFailedError(Exception):
    """The node could not make the backup; the text says why in one line. No file of it is left."""


def back_up_node(
    client: AdminClient,
    target: str,
    on_status: Callable[[requests.BackupStatus], None] = lambda status: None,
) -> requests.BackupStatus:
    """Make the node back itself up to `target`, a new directory on its machine; wait for the end.

    Calls `on_status` with the progress. An interrupt (Ctrl-C) cancels the backup. Raises
    BackupFailedError, and whatever `AdminClient.request` raises.
    """
    status = client.request(requests.StartBackup(target), requests.BackupStatus)
    try:
        while status.step not in (requests.BACKUP_DONE, requests.BACKUP_FAILED):
            time.sleep(_POLL_S)
            status = client.request(requests.GetBackup(), requests.BackupStatus)
            on_status(status)
    except KeyboardInterrupt:
        with contextlib.suppress(AdminRefusedError, NodeUnreachableError):
            client.request(requests.CancelBackup(), requests.BackupStatus)
        raise
    if status.step == requests.BACKUP_FAILED:
        raise BackupFailedError(f"the backup failed: {status.text}")
    return status
