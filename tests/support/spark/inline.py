"""Runs the tasks of jobs without a JVM: pass an `InlineSpark` in place of a session."""

from collections.abc import Callable, Iterator
from typing import Any


class InlineSpark:
    """Stands in for a SparkSession, for jobs that use Spark only to distribute tasks."""

    def __init__(self) -> None:
        self.conf = _Conf()
        # Called before each part.
        self.on_partition: Callable[[], object] = lambda: None
        self.sparkContext = _Context(self)

    def newSession(self) -> "InlineSpark":
        return self


class _Context:
    """The part of a SparkContext that `ContextSharing` uses."""

    defaultParallelism = 1  # noqa: N815 - Spark's name

    def __init__(self, spark: InlineSpark) -> None:
        self._spark = spark
        self._parts: list[Any] = []
        self._task: Callable[[Iterator[Any]], Iterator[str]] = lambda part: iter(())

    def parallelize(self, parts: list[Any], count: int) -> "_Context":
        assert count == len(parts)
        self._parts = parts
        return self

    def mapPartitions(self, task: Callable[[Iterator[Any]], Iterator[str]]) -> "_Context":
        self._task = task
        return self

    def collect(self) -> list[str]:
        found: list[str] = []
        for part in self._parts:
            self._spark.on_partition()
            found.extend(self._task(iter([part])))
        return found


class _Conf:
    def set(self, name: str, value: str) -> None:
        pass
