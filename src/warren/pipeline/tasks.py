"""Work that is cut into tasks, done by Spark's workers, each task once.

A task that is done leaves its result as a file, durably and after what it made; so a job that was interrupted goes on with
the tasks that are left, Spark may do a task twice, and the driver sees how far the work is by looking at the files. Results
are small; what a task makes goes to the disk, which all workers share with the driver.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from warren.offline.data_directory import ToolError
from warren.pipeline.progress import Progress, Step
from warren.pipeline.result import JobError
from warren.store.disk.files import make_directories, sync_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tasks beyond share partitions of Spark's, which cost about 90 ms of CPU each.
_PARTITIONS_MAX: Final = 400
_LOOK_S: Final = 0.3

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(
    spark: "SparkSession",
    results: Path,
    tasks: Mapping[str, T],
    do: Callable[[T], R],
    kind: type[R],
    progress: Progress,
    step: str,
) -> dict[str, R]:
    """Do each of `tasks` that has no result below `results` yet; returns all results by the names of tasks.

    `do` runs in workers; `kind` is what it returns, as msgspec knows it. What it raises as OSError, ToolError, ReadError or ValueError
    comes out as JobError, when all others are done; they have their results then.
    """
    make_directories(results)
    done = _results(results, tasks, kind)
    left = {name: task for name, task in tasks.items() if name not in done}
    progress.show(Step(step, len(done), len(tasks), "parts"))
    if left:
        with _watching(results, len(tasks), progress, step):
            errors = _run(spark, results, left, do)
        if errors:
            more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
            raise JobError(errors[0] + more)
        done = _results(results, tasks, kind)
    return {name: done[name] for name in tasks}


def _run(spark: "SparkSession", results: Path, tasks: Mapping[str, T], do: Callable[[T], Any]) -> list[str]:
    names = list(tasks)
    payloads = list(tasks.values())
    count = min(len(names), _PARTITIONS_MAX)

    def work(number: int) -> str:
        errors = [
            _do(results / names[place], do, payloads[place]) for place in range(number, len(names), count)
        ]
        return next((error for error in errors if error), "")

    return [error for error in on_partitions(spark, count, work) if error]


def on_partitions(spark: "SparkSession", count: int, work: Callable[[int], str]) -> list[str]:
    """Call `work` with each number below `count`, in a partition of Spark's; returns what it returned."""
    from pyspark.sql.functions import udf

    # A plain function of one value: one over Arrow batches would need pandas, and RDDs do not exist over Connect.
    called = udf(work, "string", useArrow=False).asNondeterministic()
    rows = spark.range(0, count, 1, count).select(called("id").alias("text")).collect()
    return [row["text"] for row in rows]


def _do(path: Path, do: Callable[[Any], Any], payload: Any) -> str:
    """Do one task, unless somebody has; returns what went wrong."""
    from warren.tables.reading import ReadError

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
    except (OSError, ToolError, ReadError, ValueError) as error:
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

    def look() -> None:
        while not over.wait(_LOOK_S):
            done = sum(not name.startswith(".") for name in os.listdir(results))
            progress.show(Step(step, min(done, total), total, "parts"))

    watcher = threading.Thread(target=look, name="watch tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.show(Step(step, total, total, "parts"))
