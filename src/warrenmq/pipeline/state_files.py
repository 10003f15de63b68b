"""State files of a job that can be resumed, and the lock that keeps other processes out of them."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from warrenmq.pipeline.result import JobError
from warrenmq.store.disk.files import sync_directory

State = TypeVar("State")


def read_state(path: Path, kind: type[State]) -> State | None:
    """The state in the file, None when there is no file. JobError when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise JobError(f"{path} cannot be read: {error}") from None


def write_state(path: Path, state: object) -> None:
    """Replace the file atomically and durably: after a crash it has the old or the new state."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    sync_directory(path.parent)


@contextlib.contextmanager
def locked(directory: Path, refusal: str) -> Iterator[None]:
    """Hold the exclusive lock of `directory`, which is created if missing.

    JobError with the text `refusal` when another process holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(refusal) from None
        yield


def fingerprint(directory: Path) -> str:
    """A hash of the names, sizes and modification times of everything below `directory`."""
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        found.update(
            f"{path.relative_to(directory)}\0{status.st_size}\0{status.st_mtime_ns}\0".encode()
        )
    return found.hexdigest()
