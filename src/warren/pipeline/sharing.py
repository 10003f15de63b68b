"""Spark shares tasks out: a function in Python is called with each of some parts, somewhere, again if it failed."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from warren.pipeline.tasks import on_partitions

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Gets an iterator over one part; what it gives back are texts.
Task = Callable[[Iterable[Any]], Iterator[str]]


class Sharing(Protocol):
    """Who does it."""

    def at_once(self) -> int:
        """How many tasks run at once."""
        ...

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        """All that the tasks gave back, in the order of `parts`."""
        ...


class ContextSharing:
    """A context of Spark's, in this process: what costs least."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context

    def at_once(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        return list(self._context.parallelize(parts, len(parts)).mapPartitions(task).collect())


class ServerSharing:
    """A Spark Connect server: it knows queries only, so a task is a function of a row."""

    def __init__(self, session: "SparkSession") -> None:
        from pyspark.sql.functions import spark_partition_id

        self._session = session
        # A range is cut into so many partitions when nobody says how many.
        self._at_once = session.range(1 << 16).select(spark_partition_id()).distinct().count()

    def at_once(self) -> int:
        return self._at_once

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        def work(number: int) -> str:
            return json.dumps(list(task(iter([parts[number]]))))

        return [
            text for texts in on_partitions(self._session, len(parts), work) for text in json.loads(texts)
        ]
