"""The records of runs: what ran, since when, how far it is and how it ended.

Each run has a directory with two files, its record in JSON and the end of its log. The runner of
the run replaces them in one step each, and holds a lock on the directory. A job inherits the lock,
so it is held until the last process of the run has ended, whoever is killed before.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

RECORD: Final = "run.json"
LOG: Final = "log.txt"
# Exists once a run is to end, with the state that it has then.
ENDING: Final = "ending"

RUNNING: Final = "running"
DONE: Final = "done"
# The job has found problems, or was done in part.
PROBLEMS: Final = "problems"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
# The run has ended with its node, or died.
INTERRUPTED: Final = "interrupted"


class Run(Struct, omit_defaults=True, kw_only=True):
    """A run of a job; times are in ms since 1970."""

    name: str
    job: str
    vhost: str
    user: str
    arguments: dict[str, Any]
    started: int
    ended: int = 0
    state: str = RUNNING
    exit_code: int | None = None
    # The job's process group.
    group: int = 0
    # The schedule of the vhost that has started it, and the time (Unix time in s) it was due.
    schedule: str = ""
    due: int = 0
    # What the job has told last of its progress, and its result.
    progress: dict[str, Any] = {}
    result: dict[str, Any] = {}
    # Why it has ended, in one line.
    reason: str = ""


def now_ms() -> int:
    """The time in ms since 1970."""
    return time.time_ns() // 1_000_000


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file; a reader sees the old or the new content. Raises OSError."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)


def read_run(directory: Path) -> Run | None:
    """The record of a run; None when there is none, or when it cannot be read."""
    try:
        return msgspec.json.decode((directory / RECORD).read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError):
        return None


def write_run(directory: Path, run: Run) -> None:
    """Replace the record of a run. Raises OSError."""
    write_atomically(directory / RECORD, msgspec.json.encode(run))


@contextlib.contextmanager
def held(directory: Path) -> Iterator[int | None]:
    """The descriptor of a lock on `directory`; None while another process has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)
