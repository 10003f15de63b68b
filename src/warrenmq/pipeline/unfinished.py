"""What a job that makes a new directory keeps beside it until that has its name: how far it is, and of what.

    .NAME.KIND/          this: a lock, `job.json`, results of tasks
    .NAME.incomplete/    what becomes NAME

A job that was killed at any moment is gone on with by a call with the same arguments, also when only the removal of this
directory was left to do.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from warrenmq.offline.backup_files import give_up, incomplete_path, must_be_new
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.result import JobResult
from warrenmq.pipeline.state_files import locked, read_state, write_state
from warrenmq.store.disk.files import make_directories

_JOB_NAME: Final = "job.json"


class _JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """`of` says of what it is, `facts` what the job must know when it is gone on with; `result` is there when only the
    finished directory's name was missing."""

    of: dict[str, str]
    facts: dict[str, str] = {}
    result: dict[str, Any] | None = None


@dataclass
class Unfinished:
    """The state of the job that makes `target`, in the directory `path`."""

    target: Path
    path: Path
    # Figures of an earlier call that has finished `target`.
    result: dict[str, Any] | None
    _file: _JobFile
    _is_kept: bool

    @property
    def incomplete(self) -> Path:
        """What becomes `target`."""
        return incomplete_path(self.target)

    def fact(self, name: str) -> str:
        """What `keep` has kept, or ""."""
        return self._file.facts.get(name, "")

    def keep(self, **facts: str) -> None:
        """From now on the job can be gone on with, knowing these facts."""
        self._write(msgspec.structs.replace(self._file, facts=self._file.facts | facts))

    def keep_result(self, result: JobResult) -> None:
        """All is done, but for the name."""
        self._write(msgspec.structs.replace(self._file, result=result.as_json()))

    def drop(self) -> None:
        """It is not to be gone on with."""
        self._is_kept = False

    def _write(self, file: _JobFile) -> None:
        write_state(self.path / _JOB_NAME, file)
        self._file = file
        self._is_kept = True


@contextlib.contextmanager
def unfinished(target: Path, kind: str, of: Mapping[str, str]) -> Iterator[Unfinished]:
    """For the job `kind` that makes `target` of what `of` says, begun by this call or by an earlier one.

    While it lasts no other process makes `target`. Afterwards nothing is left of it; or, when an error ends the job, what
    it has asked to keep. Raises ToolError and JobError when it cannot be begun or gone on with.
    """
    path = target.with_name(f".{target.name}.{kind}")
    if not path.exists():
        _must_not_be_in_the_way(target)
        make_directories(path)
    with locked(path, f"another process is making {target}"):
        file = read_state(path / _JOB_NAME, _JobFile)
        if file is not None and file.of != dict(of):
            raise ToolError(
                f"{path} is of an unfinished {kind} of something else, or with other options; "
                f"remove it and {incomplete_path(target)} to begin anew"
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
                give_up(path)
            raise
        _forget(path)
        if job.result is not None:
            give_up(job.incomplete)


def _forget(path: Path) -> None:
    """Remove what is known of a finished job, what it is known by last."""
    for child in path.iterdir():
        if child.is_dir():
            give_up(child)
    give_up(path)


def absolute(path: Path) -> Path:
    """Also of "." and "..", which have no name that others can be made of."""
    return Path(os.path.abspath(path))


def _must_not_be_in_the_way(target: Path) -> None:
    must_be_new(target)
    work = incomplete_path(target)
    if work.exists():
        raise ToolError(f"{work} is in the way: another job has begun to make {target}")
