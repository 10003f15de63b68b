"""Engines that run the tasks of a job: Spark's workers, or processes of this machine without a JVM.

A task is a Python function that runs on one part of the input, on any worker, and runs again if it
failed. Both engines call the same functions, so a job has the same result on either.
"""

import json
import os
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from warrenmq.pipeline.local_worker import LocalWorker

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A task gets an iterator over one part and yields texts. The task and its parts must be picklable.
Task = Callable[[Iterable[Any]], Iterator[str]]


class Sharing(Protocol):
    """An engine: runs the tasks of a job and collects their texts."""

    def at_once(self) -> int:
        """The number of tasks that run at the same time."""
        ...

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        """Run the task on each part; returns all texts in the order of `parts`."""
        ...


class LocalSharing:
    """Runs tasks in processes of this machine, one a core; a single part runs in this process.

    The creator must call `close`.
    """

    def __init__(self, cores: int | None = None) -> None:
        self._cores = cores if cores is not None else len(os.sched_getaffinity(0))
        self._workers: list[LocalWorker] = []

    def at_once(self) -> int:
        return self._cores

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        """See Sharing. JobError when a worker process was killed."""
        if len(parts) <= 1 or self._cores == 1:
            return [text for part in parts for text in task(iter([part]))]
        count = min(len(parts), self._cores)
        while len(self._workers) < count:
            self._workers.append(LocalWorker())
        idle: queue.SimpleQueue[LocalWorker] = queue.SimpleQueue()
        for worker in self._workers[:count]:
            idle.put(worker)

        def do(part: Any) -> list[str]:
            worker = idle.get()
            try:
                return worker.call(task, part)
            finally:
                idle.put(worker)

        threads = ThreadPoolExecutor(count, "warren-local")
        try:
            return [text for texts in threads.map(do, parts) for text in texts]
        except BaseException:
            # After an interrupt do not wait for running tasks: the next run does the unfinished
            # ones.
            threads.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            threads.shutdown()

    def close(self) -> None:
        """Kill the worker processes without waiting for their tasks."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()


class ContextSharing:
    """Runs tasks in a Spark context of this process, the cheapest way to reach Spark."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context

    def at_once(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        return list(self._context.parallelize(parts, len(parts)).mapPartitions(task).collect())


class ServerSharing:
    """Runs tasks on a Spark Connect server. It knows only queries, so a task is a UDF of a row."""

    def __init__(self, session: "SparkSession") -> None:
        from pyspark.sql.functions import spark_partition_id

        self._session = session
        # A range without a given number of partitions gets the server's default number.
        self._at_once = session.range(1 << 16).select(spark_partition_id()).distinct().count()

    def at_once(self) -> int:
        return self._at_once

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        from pyspark.sql.functions import udf

        def work(number: int) -> str:
            return json.dumps(list(task(iter([parts[number]]))))

        # A plain UDF of one value: a UDF over Arrow batches would need pandas.
        called = udf(work, "string", useArrow=False).asNondeterministic()
        count = len(parts)
        rows = self._session.range(0, count, 1, count).select(called("id").alias("texts")).collect()
        return [text for row in rows for text in json.loads(row["texts"])]
