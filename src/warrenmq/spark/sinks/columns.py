"""Columns of a DataFrame that is written as messages: their types, and how rows become messages.

The sinks into warren and into other brokers take the same columns. A column has the name that
reading gives it, so that a DataFrame that was read can be written. Columns that only say where a
message was are accepted and ignored.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from warrenmq.spark.columns import COLUMNS
from warrenmq.spark.kafka_names import COLUMNS_INSTEAD
from warrenmq.spark.options import SHORT_BYTES_MAX, OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import validate_table
from warrenmq.wire.properties import DELIVERY_MODE_PERSISTENT, decode_properties, delivery_mode

if TYPE_CHECKING:
    from warrenmq.offline.part_writer import MessageColumns

_TEXT: Final = (StringType(),)
_BYTES: Final = (BinaryType(), StringType())
_WHOLE: Final = (ByteType(), ShortType(), IntegerType(), LongType())

# Types of each column that can be written; errors name the first one.
SINK_COLUMNS: Final[dict[str, tuple[DataType, ...]]] = {
    "body": _BYTES,
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "exchange_raw": (BinaryType(),),
    "routing_key_raw": (BinaryType(),),
    "persistent": (BooleanType(),),
    "priority": (IntegerType(), *_WHOLE),
    "expiration": _TEXT,
    "message_id": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "type": _TEXT,
    "user_id": _TEXT,
    "app_id": _TEXT,
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    "timestamp": (TimestampType(),),
    "headers": (MapType(StringType(), StringType()),),
    "headers_raw": (BinaryType(),),
    "properties_raw": (BinaryType(),),
}
# Columns whose values are AMQP short strings in a message.
_SHORT: Final = frozenset(name for name, kinds in SINK_COLUMNS.items() if kinds is _TEXT) | {
    "exchange_raw",
    "routing_key_raw",
}
_PRIORITY_MAX: Final = 255
# Columns of a read that are accepted and ignored: where the message was, and its state there.
NOT_WRITTEN: Final = tuple(name for name in COLUMNS if name not in SINK_COLUMNS)


def check_sink_columns(schema: StructType, has_exchange: bool) -> None:
    """Raise OptionError when `schema` cannot be written.

    `has_exchange` is true when the option `exchange` is given; it then replaces the column.
    """
    names: list[str] = []
    for column in schema.fields:
        if column.name in NOT_WRITTEN:
            continue
        if column.name in names:
            raise OptionError(f"column '{column.name}' is there twice")
        names.append(column.name)
        kinds = SINK_COLUMNS.get(column.name)
        if kinds is None:
            instead = COLUMNS_INSTEAD.get(column.name)
            hint = f" (did you mean {instead}?)" if instead else ""
            raise OptionError(
                f"unknown column '{column.name}'{hint}; a message is made of: {', '.join(SINK_COLUMNS)}"
            )
        kind = column.dataType
        if isinstance(kind, MapType):
            # A map type counts as equal whether or not its values may be null.
            kind = MapType(kind.keyType, kind.valueType)
        if kind not in kinds:
            raise OptionError(
                f"column '{column.name}' is {kinds[0].simpleString()}, not {column.dataType.simpleString()}"
            )
    if "body" not in names:
        raise OptionError("column 'body' is missing: the bytes of each message")
    if not has_exchange and "exchange" not in names:
        raise OptionError(
            "where to? Set option 'exchange' (empty for the default exchange), or give a column 'exchange'"
        )


class MessageMaker:
    """Makes messages of record batches; `exchange` and `routing_key` are None if columns decide."""

    def __init__(self, exchange: str | None, routing_key: str | None) -> None:
        self._exchange = exchange
        self._routing_key = routing_key

    def messages(
        self, batch: Any, id_prefix: str | None = None, first_row: int = 0
    ) -> "MessageColumns":
        """The rows of `batch` (a pyarrow RecordBatch) as messages, in order.

        With `id_prefix` a message without a message-id gets `<id_prefix>/<row number>`; rows are
        numbered from `first_row`. Raises SourceError when a row cannot become a message.
        """
        from warrenmq.tables.messages_to_write import columns_of

        with _told_as_rows():
            return columns_of(self._complete(batch, id_prefix, first_row))

    def heads(self, batch: Any) -> tuple[Any, Any]:
        """The addresses and property blocks of the messages of `batch`, as binary arrays.

        `batch` needs no column `body`. Raises SourceError when a row cannot become a message.
        """
        from warrenmq.tables.messages_to_write import heads_of

        with _told_as_rows():
            return heads_of(self._complete(batch, None, 0))

    def _complete(self, batch: Any, id_prefix: str | None, first_row: int) -> Any:
        """The batch with the columns that `columns_of` needs, all values checked."""
        import pyarrow as pa

        from warrenmq.tables.property_blocks import header_tables

        count = batch.num_rows
        columns = {name: batch.column(name) for name in batch.schema.names if name in SINK_COLUMNS}
        if self._exchange is not None:
            columns["exchange"] = pa.repeat(pa.scalar(self._exchange), count)
            columns.pop("exchange_raw", None)
        if self._routing_key is not None:
            columns["routing_key"] = pa.repeat(pa.scalar(self._routing_key), count)
            columns.pop("routing_key_raw", None)
        elif "routing_key" in columns:
            columns["routing_key"] = columns["routing_key"].fill_null("")
        else:
            columns["routing_key"] = pa.repeat(pa.scalar(""), count)
        headers = columns.pop("headers", None)
        raw = columns.get("headers_raw")
        if raw is not None:
            _check_tables(raw)
        if headers is not None and headers.null_count < count:
            made = header_tables(headers)
            columns["headers_raw"] = made if raw is None else _either(raw, made)
        properties = columns.get("properties_raw")
        if properties is not None:
            properties = columns["properties_raw"] = _checked_blocks(
                properties, id_prefix, first_row
            )
            # The delivery mode in a property block overrides the column `persistent`.
            modes = [
                None if block is None else delivery_mode(block) for block in properties.to_pylist()
            ]
            persistent = [
                None if mode is None else mode == DELIVERY_MODE_PERSISTENT for mode in modes
            ]
            said = pa.array(persistent, pa.bool_())
            columns["persistent"] = (
                _either(said, columns["persistent"]) if "persistent" in columns else said
            )
        if id_prefix is not None:
            ids = pa.array(
                [f"{id_prefix}/{row}" for row in range(first_row, first_row + count)], pa.string()
            )
            given = columns.get("message_id")
            columns["message_id"] = ids if given is None else _either(given, ids)
        _check_values(columns)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@contextlib.contextmanager
def _told_as_rows() -> Iterator[None]:
    """Turn errors of values into SourceError."""
    try:
        yield
    except (ValueError, AmqpError) as error:
        raise SourceError(f"a row cannot be written as a message: {error}") from None


def _either(first: Any, second: Any) -> Any:
    """The values of `first`, with those of `second` where `first` is null."""
    import pyarrow.compute as pc

    return pc.coalesce(first, second)


def _check_values(columns: dict[str, Any]) -> None:
    """Raise ValueError, which names the column, for a value that AMQP cannot encode."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in columns.keys() & _SHORT:
        most = pc.max(pc.binary_length(columns[name])).as_py() or 0
        if most > SHORT_BYTES_MAX:
            raise ValueError(
                f"column '{name}' has a value of {most} bytes, and {SHORT_BYTES_MAX} are the most"
            )
    if "priority" in columns:
        for value in pc.min_max(columns["priority"]).as_py().values():
            if value is not None and not 0 <= value <= _PRIORITY_MAX:
                raise ValueError(
                    f"column 'priority' has the value {value}, and it is 0 to {_PRIORITY_MAX}"
                )
    if "timestamp" in columns:
        first = pc.min(columns["timestamp"].cast(pa.int64())).as_py() or 0
        if first < 0:
            raise ValueError("column 'timestamp' has a time before 1970")


def _check_tables(raw: Any) -> None:
    """Raise ValueError for a header table that does not decode.

    A broker would close the connection over such a table.
    """
    for table in raw.unique().to_pylist():
        if table is not None:
            try:
                validate_table(table, 0, len(table))
            except AmqpError as error:
                raise ValueError(f"column 'headers_raw': {error.text}") from None


def _checked_blocks(raw: Any, id_prefix: str | None, first_row: int) -> Any:
    """The property blocks; with `id_prefix`, blocks without a message-id get one.

    Raises ValueError for a block that does not decode.
    """
    import pyarrow as pa

    if id_prefix is None:
        for block in raw.unique().to_pylist():
            _decoded(block)
        return raw
    blocks: list[bytes | None] = []
    for row, block in enumerate(raw.to_pylist(), first_row):
        properties = _decoded(block)
        if properties is not None and properties.message_id is None:
            properties.message_id = f"{id_prefix}/{row}".encode()
            blocks.append(properties.encode())
        else:
            blocks.append(block)
    return pa.array(blocks, pa.binary())


def _decoded(block: bytes | None) -> Any:
    if block is None:
        return None
    try:
        return decode_properties(block)
    except AmqpError:
        raise ValueError("column 'properties_raw' has a block that does not decode") from None
