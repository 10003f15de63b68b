"""A failing backup of a running node cleans up; tests/kill/test_backup.py tests the rest."""

import asyncio
from pathlib import Path

from tests.support.awaiting import eventually
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import (
    BACKUP_FAILED,
    BackupStatus,
    CancelBackup,
    GetBackup,
    StartBackup,
)
from warrenmq.server.online_backup import (
    Backup,
    BackupRunner,
    BackupServices,
    LocalBackupPlace,
    _BackupJob,
)
from warrenmq.store.disk.flusher import FlusherCall


class Begun(Backup):
    """A running backup that has only made its directory."""

    def __init__(self, place: LocalBackupPlace) -> None:
        self.place = place
        self.is_running = True


def test_what_is_there_of_a_failed_backup_is_removed_on_the_thread_that_copies(
    tmp_path: Path,
) -> None:
    """The copying thread removes the files of a failed backup before it notifies the loop.

    The files may be many and large.
    """
    place = LocalBackupPlace(tmp_path / "data", tmp_path / "backup")
    backup = Begun(place)

    def copy() -> None:
        (place.database.parent / "0.rdq").write_bytes(b"copied")
        raise OSError(28, "No space left on device")

    job = _BackupJob(backup, copy, lambda: None)
    BackupRunner().run(job)
    assert isinstance(job.error, OSError)
    assert list(tmp_path.iterdir()) == []


def test_definitions_that_are_copied_when_a_backup_is_cancelled_are_removed(tmp_path: Path) -> None:
    """A file that is copied into the directory while it is removed is removed as well."""
    loop = asyncio.new_event_loop()
    services = BackupServices(
        loop.call_soon_threadsafe, tmp_path / "data", lambda: (), lambda: None
    )
    backup = Backup(services, LocalBackupPlace(tmp_path / "data", tmp_path / "backup"))

    def copy_definitions(database: Path) -> None:
        backup.fail("it was cancelled")
        database.parent.mkdir()
        database.write_bytes(b"copied")

    services.copy_definitions = copy_definitions
    services.call_flusher = FlusherCall.run
    backup._fix_end()
    loop.close()
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_backup_ends_and_leaves_nothing(tmp_path: Path) -> None:
    """A cancelled backup has failed at once; its files go, and the next backup may begin."""
    node = NodeThread(tmp_path)
    (tmp_path / "copies").mkdir()
    with AdminClient(NodeAddress(node.uri)) as client:
        for name in ("one", "two"):
            client.request(StartBackup(str(tmp_path / "copies" / name)), BackupStatus)
            status = client.request(CancelBackup(), BackupStatus)
            assert (status.step, status.text) == (BACKUP_FAILED, "it was cancelled")
        assert client.request(CancelBackup(), BackupStatus) == client.request(
            GetBackup(), BackupStatus
        )
    eventually(lambda: list((tmp_path / "copies").glob("*")) == [], "an empty directory")
    node.stop()
