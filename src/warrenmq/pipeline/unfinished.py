"""State of a job that makes a new directory, stored beside it until it has its final name.

    .NAME.KIND/          the state: a lock, `job.json`, results of tasks
    .NAME.incomplete/    the directory that becomes NAME

A call with the same arguments resumes a job that was killed at any moment, even when only the
removal of the state was left to do.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from warrenmq.offline.backup_files import incomplete_path, must_be_new, remove_unfinished
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.places import disk_path
from warrenmq.pipeline.result import JobResult
from warrenmq.pipeline.state_files import locked, read_state, write_state
from warrenmq.store.disk.files import make_directories

_JOB_NAME: Final = "job.json"


class _JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file `job.json`: `of` identifies the inputs, `facts` are what a resumed job must know.

    `result` is set once only the final name of the directory is missing.
    """

    of: dict[str, str]
    facts: dict[str, str] = {}
    result: dict[str, Any] | None = None


@dataclass
class Unfinished:
    """State of the job that makes `target`; its files are in the directory `path`."""

    target: Path
    path: Path
    # Result of an earlier call that finished `target`; None when the job must run.
    result: dict[str, Any] | None
    _file: _JobFile
    _is_kept: bool

    @property
    def incomplete(self) -> Path:
        """The directory that is renamed to `target` at the end."""
        return incomplete_path(self.target)

    def fact(self, name: str) -> str:
        """The value that `keep` stored under `name`, or ""."""
        return self._file.facts.get(name, "")

    def store_facts(self, **facts: str) -> None:
        """Store these facts durably; from then on the job can be resumed with them."""
        self._write(msgspec.structs.replace(self._file, facts=self._file.facts | facts))

    def keep_result(self, result: JobResult) -> None:
        """Store the result durably, when only the final name of the directory is missing."""
        self._write(msgspec.structs.replace(self._file, result=result.as_json()))

    def drop(self) -> None:
        """Remove the state when the job fails, so that it cannot be resumed."""
        self._is_kept = False

    def _write(self, file: _JobFile) -> None:
        write_state(self.path / _JOB_NAME, file)
        self._file = file
        self._is_kept = True


@contextlib.contextmanager
def unfinished(target: Path, kind: str, of: Mapping[str, str]) -> Iterator[Unfinished]:
    """Begin the job `kind` that makes `target` from the inputs `of`, or resume it.

    No other process can make `target` inside the block. A normal end removes the state; an error
    keeps it only if the job has called `keep`. Raises ToolError and JobError when the job cannot
    start or resume.
    """
    path = target.with_name(f".{target.name}.{kind}")
    if not path.exists():
        _must_not_be_in_the_way(target)
        make_directories(path)
    with locked(path, f"another process is making {target}"):
        file = read_state(path / _JOB_NAME, _JobFile)
        if file is not None and file.of != dict(of):
            raise ToolError(
                f"{path} belongs to an unfinished {kind} of another source or with other options; "
                f"remove it and {incomplete_path(target)} to start over"
            )
        is_there = target.is_dir() and any(target.iterdir())
        job = Unfinished(
            target,
            path,
            file.result if file is not None and is_there else None,
            file or _JobFile(of=dict(of)),
            file is not None,
        )
        try:
            if job.result is None:
                if file is None:
                    _must_not_be_in_the_way(target)
                must_be_new(target)
            yield job
        except BaseException:
            if not job._is_kept:
                remove_unfinished(path)
            raise
        _forget(path)
        if job.result is not None:
            remove_unfinished(job.incomplete)


def _forget(path: Path) -> None:
    """Remove the state of a finished job; its directories first, so that `job.json` goes last."""
    for child in path.iterdir():
        if child.is_dir():
            remove_unfinished(child)
    remove_unfinished(path)


def absolute(path: str | Path) -> Path:
    """The absolute path. Also gives "." and ".." a name, from which names beside it can be made.

    JobError for a URI of another file system.
    """
    return Path(os.path.abspath(disk_path(path)))


def _must_not_be_in_the_way(target: Path) -> None:
    must_be_new(target)
    work = incomplete_path(target)
    if work.exists():
        raise ToolError(f"{work} exists: another job has begun to make {target}")
