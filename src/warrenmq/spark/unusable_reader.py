"""A stream reader for options that are not usable: it hands their error to the user."""

from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

OffsetJson = dict[str, object]


class UnusableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises `cause` from each method, so that the first call of Spark reports it.

    PySpark 4.3 loses an exception of `streamReader`: its runner ends with "UnboundLocalError:
    reader" instead. Exceptions of the methods of a reader reach the user.
    """

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

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark
        self._refuse()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> NoReturn:
        self._refuse()

    def read(self, partition: object) -> NoReturn:
        self._refuse()
