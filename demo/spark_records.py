"""The results that the Spark driver writes for the demo, as a file of JSON."""

from msgspec import Struct


class Row(Struct, frozen=True):
    """One message as Spark read it.

    Spark computes `sha256` from the body; `sha256_header` was published with the message.
    """

    seq: int
    message_id: str
    size: int
    sha256: str
    sha256_header: str


class Kind(Struct, frozen=True):
    """Figures of the messages of one routing key; `small` counts bodies below 4096 bytes."""

    routing_key: str
    count: int
    bytes: int
    small: int
    large: int
    largest: int


class SparkResults(Struct, frozen=True):
    """All results of the driver.

    `drained` holds the rows of Parquet after the second run; `again` counts the rows that a third
    run added to them.
    """

    spark_version: str
    drained: list[Row]
    again: int
    reported: list[Row]
    kinds: list[Kind]
