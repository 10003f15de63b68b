"""State of a job that makes something new, stored until it is finished.

    .NAME.KIND/          the state: a lock, `job.json`, results of tasks
    .NAME.incomplete/    the directory that becomes NAME

On a disk both are beside NAME, and a rename finishes the job. Elsewhere (places.py) there is no
rename: the job writes to its final place, the last file that it writes, MANIFEST_NAME, makes the
result count, and the state is in a directory of this machine that the caller names. The state's
lock cannot keep out a job with another such directory, so a file of the place, CLAIM_NAME, says
which job writes there.

A call with the same arguments resumes a job that was killed at any moment, even when only the
removal of the state was left to do.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from warrenmq.offline.backup_files import (
    MANIFEST_NAME,
    incomplete_path,
    must_be_new,
    put_in_place,
    remove_unfinished,
)
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.places import LocalPlace, RemotePlace, disk_path
from warrenmq.pipeline.result import JobError, JobResult, must_have_parent
from warrenmq.pipeline.state_files import locked, read_state, write_state
from warrenmq.store.disk.files import make_directories

# The file of an unfinished result elsewhere than on a disk; contains the number of its job.
CLAIM_NAME: Final = ".incomplete"
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
    """State of the job that makes `place`; its files are in the directory `path`."""

    place: LocalPlace | RemotePlace
    path: Path
    # Result of an earlier call that finished `place`; None when the job must run.
    result: dict[str, Any] | None
    _file: _JobFile
    _is_kept: bool

    @property
    def target(self) -> Path:
        """The new directory. Only for a place on a disk."""
        assert isinstance(self.place, LocalPlace)
        return self.place.path

    @property
    def incomplete(self) -> Path:
        """The directory that is renamed to `target` at the end. Only for a place on a disk."""
        return incomplete_path(self.target)

    @property
    def work(self) -> LocalPlace | RemotePlace:
        """Where the job writes its result."""
        return LocalPlace(self.incomplete) if self._is_on_disk else self.place

    def fact(self, name: str) -> str:
        """The value that `keep` stored under `name`, or ""."""
        return self._file.facts.get(name, "")

    def store_facts(self, **facts: str) -> None:
        """Store these facts durably; from then on the job can be resumed with them."""
        self._write(msgspec.structs.replace(self._file, facts=self._file.facts | facts))

    def begin_work(self) -> None:
        """Make `work` this job's own, before it writes there. ToolError when another job has it."""
        if not self._is_on_disk and not self.place.exists(CLAIM_NAME):
            self._must_be_free()
        if not self.fact("claim"):
            # Store the claim first, so that a resumed call knows it as its own.
            self.store_facts(claim=secrets.token_hex(16))
        if self._is_on_disk:
            make_directories(self.incomplete)
        else:
            self.place.create(CLAIM_NAME, self.fact("claim").encode())
            self._must_be_ours()

    def keep_result(self, result: JobResult) -> None:
        """Store the result durably, when the job has only to `finish`, and to write MANIFEST_NAME.

        ToolError when another job has begun to write to the place.
        """
        self._must_be_ours()
        self._write(msgspec.structs.replace(self._file, result=result.as_json()))

    def finish(self) -> None:
        """Make the result in `work` the finished one, durably."""
        if isinstance(self.place, LocalPlace):
            put_in_place(self.incomplete, self.target)
        else:
            self.place.remove([CLAIM_NAME])

    def drop(self) -> None:
        """Remove the state when the job fails, so that it cannot be resumed."""
        self._is_kept = False

    @property
    def _is_on_disk(self) -> bool:
        return isinstance(self.place, LocalPlace)

    def _must_be_ours(self) -> None:
        """ToolError when the claim of the place is another job's: both may have made theirs."""
        if self._is_on_disk:
            return
        found = b""
        with contextlib.suppress(FileNotFoundError), self.place.input(CLAIM_NAME) as file:
            found = file.read()
        if found != self.fact("claim").encode():
            self.drop()
            raise ToolError(f"another job has begun to make {self.place}")

    def _must_be_free(self) -> None:
        """ToolError when something is in the way of a new job."""
        if isinstance(self.place, LocalPlace):
            must_be_new(self.target)
            if self.incomplete.exists():
                raise ToolError(
                    f"{self.incomplete} exists: another job has begun to make {self.target}"
                )
        elif self.place.exists(CLAIM_NAME):
            raise ToolError(
                f"{self.place} has an unfinished result of another job: resume it with its directory, or delete it"
            )
        elif self.place.files():
            raise ToolError(f"{self.place} is not empty")

    def _is_there(self) -> bool:
        """Whether the place has a finished result, of this job or another."""
        if isinstance(self.place, LocalPlace):
            return self.target.is_dir() and any(self.target.iterdir())
        return self.place.exists(MANIFEST_NAME)

    def _forget(self) -> None:
        """Remove the state of the finished job."""
        _remove_state(self.path)
        if self.result is not None:
            # The call that made the result was killed before it could do this.
            if self._is_on_disk:
                remove_unfinished(self.incomplete)
            else:
                self.place.remove([CLAIM_NAME])

    def _write(self, file: _JobFile) -> None:
        write_state(self.path / _JOB_NAME, file)
        self._file = file
        self._is_kept = True


@contextlib.contextmanager
def unfinished(
    target: Path | LocalPlace | RemotePlace,
    kind: str,
    of: Mapping[str, str],
    work: Path | None = None,
) -> Iterator[Unfinished]:
    """Begin the job `kind` that makes `target` from the inputs `of`, or resume it.

    `work` is the directory of the state when `target` is not on a disk: a new or empty one, or that
    of an interrupted call. No other process can make `target` inside the block. A normal end
    removes the state; an error keeps it only if the job has stored facts or its result. Raises
    ToolError and JobError when the job cannot start or resume.
    """
    place = LocalPlace(target) if isinstance(target, Path) else target
    path = _state_path(place, kind, work)
    job = Unfinished(place, path, None, _JobFile(of=dict(of)), False)
    if not path.exists():
        job._must_be_free()
        make_directories(path)
    with locked(path, f"another process is making {place}"):
        file = read_state(path / _JOB_NAME, _JobFile)
        if file is not None and file.of != dict(of):
            raise ToolError(
                f"{path} belongs to an unfinished {kind} of another source or with other options; "
                f"remove it and {job.work} to start over"
            )
        if file is not None:
            job._file = file
            job._is_kept = True
            if file.result is not None and job._is_there():
                job.result = file.result
        try:
            if file is None:
                job._must_be_free()
            elif job.result is None and isinstance(place, LocalPlace):
                must_be_new(place.path)
            yield job
        except BaseException:
            if not job._is_kept:
                remove_unfinished(path)
            raise
        job._forget()


def _state_path(place: LocalPlace | RemotePlace, kind: str, work: Path | None) -> Path:
    if isinstance(place, LocalPlace):
        if work is not None:
            raise JobError(
                f"a directory for the progress is named for a URI only: on a disk it is beside {place}"
            )
        return place.path.with_name(f".{place.path.name}.{kind}")
    if work is None:
        raise JobError(
            f"{place} is not on a disk of this machine: name a directory of this machine for the job's progress (work)"
        )
    path = absolute(work)
    must_have_parent(path)
    known = {_JOB_NAME, f".{_JOB_NAME}.new", "lock"}
    if path.exists() and not path.is_dir():
        raise JobError(f"{path} is no directory")
    if path.is_dir() and not (path / _JOB_NAME).exists() and {*os.listdir(path)} - known:
        # The directory is removed at the end.
        raise JobError(f"{path} is not empty: name a new directory for the job's progress")
    return path


def _remove_state(path: Path) -> None:
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
