"""SQL on views of format "warren", and what Spark's own interfaces for sources in Python can do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pika
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

from tests.support.brokers.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the queue `q`."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        connection.channel().queue_declare("q", durable=True)
    yield broker
    assert broker.stop() == 0


def test_a_view_is_for_writing_or_for_reading(spark: "SparkSession", broker: BrokerProcess) -> None:
    """Rows go into a view with columns of its own; each other use of a view is refused."""
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW outgoing (body BINARY, routing_key STRING, priority INT) "
        f"USING warren OPTIONS (uri '{broker.uri}', exchange '')"
    )
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW waiting USING warren OPTIONS (uri '{broker.uri}', queues 'q')"
    )
    spark.sql("INSERT INTO outgoing VALUES (X'01', 'q', 1)")
    spark.sql("INSERT INTO outgoing (routing_key, body) VALUES ('q', X'02')")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW once (body BINARY, routing_key STRING) "
        f"USING warren OPTIONS (uri '{broker.uri}', exchange '', sinkId 'once')"
    )
    for _ in range(2):
        spark.sql("INSERT INTO once BY NAME SELECT 'q' AS routing_key, X'03' AS body")
    found = spark.sql("SELECT body, priority FROM waiting ORDER BY seq").collect()
    assert [(bytes(row["body"]), row["priority"]) for row in found] == [
        (b"\x01", 1),
        (b"\x02", None),
        (b"\x03", None),
    ]
    for statement, reason in (
        ("INSERT INTO waiting (body) VALUES (X'04')", "unknown option 'queues'; writing"),
        ("SELECT * FROM outgoing", "unknown option 'exchange'; format \"warren\""),
        ("INSERT INTO outgoing VALUES ('text', 'q', 1)", 'Cannot safely cast `body` "STRING"'),
        ("INSERT OVERWRITE outgoing VALUES (X'04', 'q', 1)", "mode overwrite"),
    ):
        with pytest.raises(AnalysisException, match=reason):
            spark.sql(statement).collect()


def test_a_permanent_table_does_not_give_its_options_to_a_source(
    spark: "SparkSession", broker: BrokerProcess
) -> None:
    """Neither to write nor to read; when Spark passes them, tables can be offered."""
    spark.sql(
        "CREATE TABLE permanent (body BINARY, routing_key STRING) "
        f"USING warren OPTIONS (uri '{broker.uri}', exchange '', queues 'q')"
    )
    try:
        with pytest.raises(AnalysisException, match="option 'uri' is missing"):
            spark.sql("INSERT INTO permanent VALUES (X'01', 'q')")
        with pytest.raises(AnalysisException, match="option 'queues' is missing"):
            spark.sql("SELECT * FROM permanent").collect()
        # A statement's own options do come.
        spark.sql(
            f"INSERT INTO permanent WITH (uri = '{broker.uri}', exchange = '') VALUES (X'01', 'q')"
        )
    finally:
        spark.sql("DROP TABLE permanent")


class NumbersReader(DataSourceReader):
    """Reads the numbers 0 to 19, or the one that a filter names."""

    def __init__(self) -> None:
        self.wanted: list[int] = list(range(20))

    def pushFilters(self, filters: list[Filter]) -> "Iterable[Filter]":
        for each in filters:
            if isinstance(each, EqualTo):
                self.wanted = [each.value]
            yield each

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in self.wanted]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class Numbers(DataSource):
    """A source that takes filters."""

    @classmethod
    def name(cls) -> str:
        return "numbers_with_filters"

    def schema(self) -> Any:
        return "number int"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()


def test_filters_that_spark_passes_on_give_wrong_rows(spark: "SparkSession") -> None:
    """Why format "warren" has no `pushFilters`; when this fails, Spark is repaired, and it can."""
    spark.dataSource.register(Numbers)
    with pytest.raises(AnalysisException, match="filterPushdown"):
        spark.read.format("numbers_with_filters").load().count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        numbers = spark.read.format("numbers_with_filters").load()
        assert numbers.where("number = 3").count() == 1
        assert numbers.count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
