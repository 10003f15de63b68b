"""Runs a job as tasks, each done once, in Spark's workers or on this machine (sharing.py).

A finished task leaves its result as a file, durably and after its output. So an interrupted job
resumes with the tasks that have no result, a task may run twice, and the driver counts result files
to see the progress. Results are small; the output of a task goes to the disk, which all workers
share with the driver.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.progress import Progress, Step
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import Sharing
from warrenmq.store.disk.files import make_directories, sync_directory

# Most parts of one run; more tasks share a part, since a part costs Spark about 90 ms of CPU.
_PARTS_MAX: Final = 400
_INTERVAL_S: Final = 0.3

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class TaskRunner:
    """Runs tasks in the engine `sharing` and shows `progress` with each of its steps."""

    sharing: Sharing
    progress: Progress

    def run(
        self, results: Path, tasks: Mapping[str, T], do: Callable[[T], R], kind: type[R], step: str
    ) -> dict[str, R]:
        """Run each of `tasks` without a result below `results`; returns all results by task name.

        `do`, a function at module level, runs in workers; `kind` is its return type, for msgspec.
        An OSError, ToolError, JobError, ReadError or ValueError of a task becomes a JobError,
        raised after all other tasks are done and have their results.
        """
        make_directories(results)
        done = _results(results, tasks, kind)
        left = {name: task for name, task in tasks.items() if name not in done}
        self.progress.show(Step(step, len(done), len(tasks), "parts"))
        if left:
            with _watching(results, len(tasks), self.progress, step):
                errors = _run(self.sharing, results, left, do)
            if errors:
                more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
                raise JobError(errors[0] + more)
            done = _results(results, tasks, kind)
        return {name: done[name] for name in tasks}


def numbered(tasks: Iterable[T]) -> dict[str, T]:
    """`tasks` by their names: numbers that sort as the tasks do."""
    return {f"{number:06d}": task for number, task in enumerate(tasks)}


def _run(
    sharing: Sharing, results: Path, tasks: Mapping[str, T], do: Callable[[T], Any]
) -> list[str]:
    named = list(tasks.items())
    count = min(len(named), _PARTS_MAX)
    parts = [named[number::count] for number in range(count)]
    return [error for error in sharing.run(partial(_do_part, results, do), parts) if error]


def _do_part(
    results: Path, do: Callable[[Any], Any], part: Iterable[list[tuple[str, Any]]]
) -> Iterator[str]:
    """Run the tasks of one part; yields the text of the first error, or ""."""
    for tasks in part:
        errors = [_do(results / name, do, payload) for name, payload in tasks]
        yield next((error for error in errors if error), "")


def _do(path: Path, do: Callable[[Any], Any], payload: Any) -> str:
    """Run one task unless its result exists; returns the text of its error, or ""."""
    from warrenmq.tables.reading import ReadError

    if path.exists():
        return ""
    try:
        result = msgspec.json.encode(do(payload))
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with new.open("xb") as file:
            file.write(result)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        sync_directory(path.parent)
    except (OSError, ToolError, JobError, ReadError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _results(results: Path, tasks: Mapping[str, Any], kind: type[R]) -> dict[str, R]:
    return {
        name: msgspec.json.decode((results / name).read_bytes(), type=kind)
        for name in os.listdir(results)
        if name in tasks
    }


@contextlib.contextmanager
def _watching(results: Path, total: int, progress: Progress, step: str) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_INTERVAL_S):
            done = sum(not name.startswith(".") for name in os.listdir(results))
            progress.show(Step(step, min(done, total), total, "parts"))

    watcher = threading.Thread(target=watch, name="watch tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.show(Step(step, total, total, "parts"))
