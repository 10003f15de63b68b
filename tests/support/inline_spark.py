"""Tasks of jobs without a JVM: whoever passes an `InlineSpark` for a session has them done here and now."""

from collections.abc import Callable
from typing import Any

OnPartitions = Callable[[Any, int, Callable[[int], str]], list[str]]


class InlineSpark:
    """Stands in for a SparkSession, as far as jobs need one that only share out tasks."""

    def __init__(self) -> None:
        self.conf = _Conf()
        # Called before each partition.
        self.on_partition: Callable[[], object] = lambda: None

    def newSession(self) -> "InlineSpark":
        return self


class _Conf:
    def set(self, name: str, value: str) -> None:
        pass


def inline_or(on_partitions: OnPartitions) -> OnPartitions:
    """What does it here for an `InlineSpark`, and by `on_partitions` for a session."""

    def run(spark: Any, count: int, work: Callable[[int], str]) -> list[str]:
        if not isinstance(spark, InlineSpark):
            return on_partitions(spark, count, work)
        found = []
        for number in range(count):
            spark.on_partition()
            found.append(work(number))
        return found

    return run
