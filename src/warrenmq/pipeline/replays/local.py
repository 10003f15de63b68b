"""Chooses a replay's messages without Spark: sources that fit in memory become one Arrow table.

The rows are in replay order; the rules are those of source.py. Sources that Spark could read
otherwise, such as files of one table with different columns, raise `NotLocalError` with the reason;
the job then runs on Spark.
"""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warrenmq.pipeline.backups.manifest import MANIFEST_NAME
from warrenmq.pipeline.places import LocalPlace, Place
from warrenmq.pipeline.replays.directory import ReplayDirectory
from warrenmq.pipeline.replays.source import (
    EXCHANGE_NAME,
    ORDER_COLUMNS,
    Source,
    check_columns,
    must_be_table,
)
from warrenmq.pipeline.replays.tables import (
    TableFile,
    is_delta,
    is_iceberg,
    partition_values,
    table_files,
)

# Largest sources for this engine, in uncompressed bytes. Sorting takes three times as much memory.
MEMORY_BYTES_MAX: Final = 256 << 20
_ROW_GROUP_BYTES: Final = 16 << 20
# Types of partition values whose directory names equal Python's text of the value.
_PLAIN_PARTITIONS: Final = (str, int, datetime.date)


class NotLocalError(Exception):
    """These sources need Spark; the text says why in a few words."""


def choose(sources: Sequence[Source], where: str | None, exchange: str | None) -> Any:
    """All messages of `sources` as one sorted table, with all columns and EXCHANGE_NAME.

    `exchange`: all messages go to this one. Raises NotLocalError, and JobError when the sources
    cannot be replayed.
    """
    if where is not None:
        raise NotLocalError("a filter is evaluated by Spark")
    try:
        tables = [_read(source) for source in sources]
        kinds: dict[str, Any] = {}
        for table in tables:
            for field in table.schema:
                if kinds.setdefault(field.name, field.type) != field.type:
                    raise NotLocalError(f"column '{field.name}' has several types")
        found = pa.concat_tables(tables, promote_options="default")
        _check(found, sources, exchange)
        if exchange is not None:
            name = pa.repeat(pa.scalar(exchange.encode()), found.num_rows)
        else:
            name = found["exchange"].cast(pa.binary())
            if "exchange_raw" in found.column_names:
                name = pc.coalesce(found["exchange_raw"], name)
        found = found.append_column(EXCHANGE_NAME, name)
        order: dict[str, Any] = {}
        for each in ORDER_COLUMNS:
            if each in found.column_names:
                # Sort nulls first, as Spark does.
                order |= {f"{each} is there": pc.is_valid(found[each]), each: found[each]}
        if order:
            keys = [(each, "ascending") for each in order]
            found = found.take(pc.sort_indices(pa.table(order), sort_keys=keys))
    except pa.ArrowException as error:
        raise NotLocalError(str(error).splitlines()[0]) from None
    return found


def write(messages: Any, directory: ReplayDirectory) -> None:
    """Write the columns that make up messages to the draft of a checkpoint."""
    directory.draft.mkdir(exist_ok=True)
    columns = _message_columns(messages)
    rows = max(_ROW_GROUP_BYTES * columns.num_rows // max(columns.nbytes, 1), 1)
    pq.write_table(
        columns, directory.draft / "part-00000.parquet", row_group_size=rows, compression="zstd"
    )


def routes(messages: Any, routing_key: str | None) -> list[tuple[bytes | None, str, int]]:
    """Count messages by exchange and routing key (`routing_key` if given), highest count first."""
    if routing_key is not None or "routing_key" not in messages.column_names:
        key = pa.repeat(pa.scalar(routing_key or ""), messages.num_rows)
    else:
        key = pc.fill_null(messages["routing_key"], "")
    table = pa.table({"exchange": messages[EXCHANGE_NAME], "key": key})
    counts = table.group_by(["exchange", "key"]).aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("exchange", "ascending"), ("key", "ascending")]
    return [
        (row["exchange"], row["key"], row["count_all"]) for row in counts.sort_by(order).to_pylist()
    ]


def _message_columns(messages: Any) -> Any:
    """The columns that make up a message; headers as JSON only in rows without raw headers."""
    from warrenmq.spark.sinks.columns import SINK_COLUMNS

    found = messages.select([name for name in messages.column_names if name in SINK_COLUMNS])
    if "headers" in found.column_names and "headers_raw" in found.column_names:
        places = pa.array(range(found.num_rows), pa.int64())
        kept = pc.if_else(pc.is_null(found["headers_raw"]), places, pa.scalar(None, pa.int64()))
        headers = found["headers"].take(kept)
        found = found.set_column(found.column_names.index("headers"), "headers", headers)
    return found


def _check(messages: Any, sources: Sequence[Source], exchange: str | None) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    from warrenmq.spark.sinks.columns import SINK_COLUMNS

    names = [name for name in messages.column_names if name in SINK_COLUMNS]
    try:
        schema = from_arrow_schema(messages.select(names).schema)
    except PySparkException as error:
        raise NotLocalError(str(error).splitlines()[0]) from None
    check_columns(schema, sources, exchange)


def _read(source: Source) -> Any:
    if source.exists(MANIFEST_NAME):
        return _read_backup(source)
    if not isinstance(source, LocalPlace) or is_delta(source) or is_iceberg(source):
        return _read_files(source, table_files(source))
    path = source.path
    must_be_table(path)
    if not path.is_dir():
        return _read_files(LocalPlace(path.parent), [TableFile(path.name, {})])
    files = []
    for directory, names, children in os.walk(path):
        names[:] = sorted([name for name in names if not name.startswith(("_", "."))])
        for child in sorted(children):
            if not child.startswith(("_", ".")):
                name = (Path(directory) / child).relative_to(path).as_posix()
                if any("=" not in part for part in name.split("/")[:-1]):
                    raise NotLocalError(f"{path / name} lies in a directory that is no partition")
                files.append(TableFile(name, partition_values(name)))
    return _read_files(source, files)


def _read_files(place: Place, files: Sequence[TableFile]) -> Any:
    """Read the files of one table."""
    _must_fit([(place, file.name) for file in files])
    tables: list[Any] = []
    for file in files:
        with place.input(file.name) as source, pq.ParquetFile(source) as parquet:
            table = parquet.read()
        for name, value in file.values.items():
            if value is not None and type(value) not in _PLAIN_PARTITIONS:
                raise NotLocalError(
                    f"the partitions of column '{name}' are of type {type(value).__name__}"
                )
            text = None if value is None else str(value)
            if name in table.column_names:
                table = table.drop_columns([name])
            table = table.append_column(
                name, pa.repeat(pa.scalar(text, pa.string()), table.num_rows)
            )
        table = table.replace_schema_metadata(None)
        if tables and table.schema.names != tables[0].schema.names:
            raise NotLocalError(f"{place}/{file.name} has other columns than the files before it")
        tables.append(table)
    return pa.concat_tables(tables)


def _read_backup(source: Source) -> Any:
    from warrenmq.pipeline.backups.chain import alive_runs, only_alive, open_chain
    from warrenmq.pipeline.result import JobError

    chain = open_chain(str(source))
    files = chain.files()
    runs = alive_runs(chain) if any(file.is_older for file in files) else {}
    _must_fit([(file.place, file.file.name) for file in files])
    batches: list[Any] = []
    for file in files:
        with file.opened() as parquet:
            for batch in parquet.iter_batches():
                batches.append(only_alive(batch, runs) if file.is_older else batch)
    if not batches:
        raise JobError(f"{source} is a backup without messages")
    return pa.Table.from_batches(batches).replace_schema_metadata(None)


def _must_fit(files: Sequence[tuple[Place, str]]) -> None:
    """NotLocalError when the messages are too large for the memory, by the footers of the files."""
    size = 0
    for place, name in files:
        with place.input(name) as source:
            footer = pq.read_metadata(source)
        size += sum(
            [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]
        )
    if size > MEMORY_BYTES_MAX:
        raise NotLocalError(
            f"the messages take more than {MEMORY_BYTES_MAX >> 20} MiB, which are sorted by Spark"
        )
