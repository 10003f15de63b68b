"""The records of runs: what ran, since when, how far it is and how it ended.

Each run has a directory with two files, its record in JSON and the end of its log. The runner of
the run replaces them in one step each, and holds a lock on the directory. A job inherits the lock,
so it is locked until the last process of the run has ended, whoever is killed before.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

# The directory with the records, in the data directory of the node.
RUNS_NAME: Final = "job-runs"
RECORD: Final = "run.json"
LOG: Final = "log.txt"
# Exists once a run is to end, with the state that it has then.
ENDING: Final = "ending"

_NAME: Final = re.compile("[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")

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
def locked(directory: Path) -> Iterator[int | None]:
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


def all_runs(directory: Path) -> list[Run]:
    """The runs with records in `directory`, the last one first. Raises OSError."""
    found = [find_run(directory, path.name) for path in directory.iterdir()]
    return sorted([run for run in found if run], key=lambda run: run.name, reverse=True)


def find_run(directory: Path, name: str) -> Run | None:
    """The run called `name`; one that has died is recorded as interrupted. Raises OSError."""
    own = directory / name
    if not _NAME.fullmatch(name) or (run := read_run(own)) is None:
        return None
    return run if run.state != RUNNING else _alive(own)


def _alive(directory: Path) -> Run | None:
    """The run whose record says that it runs, as it is now."""
    with locked(directory) as lock:
        run = read_run(directory)
        if lock is not None and run is not None and run.state == RUNNING:
            ending = directory / ENDING
            run.state = ending.read_text() if ending.exists() else INTERRUPTED
            run.ended = now_ms()
            write_run(directory, run)
        return run
