"""A failing backup of a running node cleans up; tests/kill/test_backup.py tests the rest."""

from pathlib import Path

from warrenmq.server.online_backup import Backup, BackupRunner, LocalBackupPlace, _BackupJob


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
