"""As much of a Spark session as jobs need that only share out tasks: it does them here and now, without a JVM."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


class InlineSpark:
    """Stands in for a SparkSession."""

    def __init__(self) -> None:
        self.conf = _Conf()
        # Called before each partition.
        self.on_partition: Callable[[], object] = lambda: None

    def newSession(self) -> "InlineSpark":
        return self

    def range(self, start: int, end: int, step: int, partitions: int) -> "_Frame":
        assert (start, step) == (0, 1) and partitions == end
        return _Frame(self, end)


class _Conf:
    def set(self, name: str, value: str) -> None:
        pass


class _Frame:
    def __init__(self, spark: InlineSpark, count: int) -> None:
        self._spark = spark
        self._count = count

    def mapInArrow(self, work: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> "_Mapped":
        return _Mapped(self._spark, self._count, work)


class _Mapped:
    def __init__(
        self, spark: InlineSpark, count: int, work: Callable[[Iterator[Any]], Iterator[Any]]
    ) -> None:
        self._spark = spark
        self._count = count
        self._work = work

    def collect(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for number in range(self._count):
            self._spark.on_partition()
            batch = pa.RecordBatch.from_arrays([pa.array([number])], ["id"])
            for found in self._work(iter([batch])):
                rows += found.to_pylist()
        return rows
