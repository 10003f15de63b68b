"""A stream that cannot be read, which says why as soon as Spark asks it for anything.

PySpark 4.3 loses what `streamReader` raises: its runner ends with "UnboundLocalError: reader" instead of the cause. What the
methods of a reader raise arrives.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from warrenmq.spark.offsets import OffsetJson


class UnusableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises `cause` from whatever Spark calls first."""

    def __init__(self, cause: Exception) -> None:
        self._cause = cause

    def _refuse(self) -> NoReturn:
        raise self._cause

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        self._refuse()

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        self._refuse()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark's name
        self._refuse()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> NoReturn:
        self._refuse()

    def read(self, partition: object) -> NoReturn:
        self._refuse()
