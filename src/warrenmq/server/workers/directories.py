"""The data directories of the workers, and the lock of their supervisor.

Worker 0 has the data directory itself. So a node that ran alone becomes worker 0 with all it has,
and commands find the broker where they find a lone node. What the others have is below it:

    DIR/                     worker 0
    DIR/workers/lock         held by the supervisor
    DIR/workers/keys.sqlite  the definitions that all workers share
    DIR/workers/1/ ...       the other workers
"""

from pathlib import Path
from typing import Final

from warrenmq.cluster.membership.identity import read_identity
from warrenmq.offline.data_directory import WORKERS_NAME
from warrenmq.server.startup.definitions_file import DataDirectoryError
from warrenmq.server.startup.directory_lock import lock_directory
from warrenmq.store.disk.files import make_directories

KEYS_NAME: Final = "keys.sqlite"


def directory_of(data_dir: Path, number: int) -> Path:
    """The data directory of the worker `number`."""
    return data_dir / WORKERS_NAME / str(number) if number else data_dir


def keys_path(data_dir: Path) -> Path:
    """The file with the definitions that workers share."""
    return data_dir / WORKERS_NAME / KEYS_NAME


def lock_workers(data_dir: Path) -> int:
    """Make the directory of the workers and lock it; returns the descriptor of the lock.

    Raises DataDirectoryError.
    """
    path = data_dir / WORKERS_NAME
    try:
        make_directories(path)
        return lock_directory(
            path, f"data directory {data_dir} is in use by the workers of another supervisor"
        )
    except OSError as error:
        raise DataDirectoryError(f"data directory {path}: {error.strerror}") from None


def check_count(data_dir: Path, count: int) -> None:
    """Check that `count` workers leave out none that has data; 0 is a node that runs alone.

    Raises DataDirectoryError, and IdentityError for a worker whose directory is damaged.
    """
    path = data_dir / WORKERS_NAME
    numbers = [int(each.name) for each in path.iterdir() if each.name.isdecimal()]
    members = [each for each in numbers if read_identity(directory_of(data_dir, each)) is not None]
    wanted = max([0, *members]) + 1
    if count == 0 and keys_path(data_dir).exists():
        raise DataDirectoryError(
            f"data directory {data_dir} belongs to workers, which share its definitions: start it "
            f"with --workers {wanted}"
        )
    if 0 < count < wanted:
        raise DataDirectoryError(
            f"worker {wanted - 1} has data in {directory_of(data_dir, wanted - 1)}: start with "
            f"--workers {wanted}, or take it away first (docs/scaling.md#fewer-workers)"
        )
