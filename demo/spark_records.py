"""What the Spark driver tells the demo: phases on its standard output, results in a file. JSON of these structs."""

from msgspec import Struct


class Row(Struct, frozen=True):
    """One message as Spark saw it; `sha256` is computed by Spark from the body, `sha256_header` was published with it."""

    seq: int
    message_id: str
    size: int
    sha256: str
    sha256_header: str


class Kind(Struct, frozen=True):
    """Messages of one routing key, in numbers; `small` ones are below 4096 bytes."""

    routing_key: str
    count: int
    bytes: int
    small: int
    large: int
    largest: int


class SparkResults(Struct, frozen=True):
    """`drained` is read from Parquet after the second run; `again` counts the rows that a third run added to it."""

    spark_version: str
    drained: list[Row]
    again: int
    reported: list[Row]
    kinds: list[Kind]
