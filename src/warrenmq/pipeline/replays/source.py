"""Reads the sources of a replay: Parquet files, tables of lakes and backups, as one DataFrame."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from warrenmq.pipeline.backups.manifest import MANIFEST_NAME
from warrenmq.pipeline.places import LocalPlace, RemotePlace
from warrenmq.pipeline.replays.tables import (
    ESCAPE,
    TableFile,
    delta_files,
    iceberg_files,
    is_delta,
    is_iceberg,
    read_elsewhere,
    table_files,
)
from warrenmq.pipeline.result import JobError
from warrenmq.spark.reason import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Sort columns of a replay; a source may lack some.
ORDER_COLUMNS: Final = ("queue", "seq")
# Column with the exchange of a message, its name in bytes.
EXCHANGE_NAME: Final = "exchange_name"
# Characters that Spark would read as a pattern in a path.
_PATTERN: Final = "\\*?[]{}"
# Where a source is.
Source: TypeAlias = LocalPlace | RemotePlace


def check_sources(sources: Sequence[Source]) -> None:
    """JobError when no source is named, or one is named twice."""
    if not sources:
        raise JobError(
            "name what to replay: Parquet files, a table of a lake, or a backup in Parquet"
        )
    for number, source in enumerate(sources):
        if source in sources[:number]:
            raise JobError(f"{source} is named twice")


def must_be_there(sources: Sequence[Source]) -> None:
    """JobError when a source does not exist."""
    for source in sources:
        if not (source.path.exists() if isinstance(source, LocalPlace) else source.files()):
            raise JobError(f"{source} is not there")


def read_sources(
    spark: "SparkSession", sources: Sequence[Source], where: str | None, exchange: str | None
) -> "DataFrame":
    """The chosen messages, unsorted, with all columns of the sources and EXCHANGE_NAME.

    `exchange`: all messages go to this one. JobError when the sources cannot be replayed.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    frame: DataFrame | None = None
    for source in sources:
        found = _read(spark, source)
        frame = found if frame is None else frame.unionByName(found, allowMissingColumns=True)
    if frame is None:
        raise JobError("name what to replay")
    if where is not None:
        try:
            frame = frame.where(where)
            # Force the analysis, which Spark Connect delays: it reports errors of the filter.
            frame.schema  # noqa: B018 - a property that runs the analysis
        except PySparkException as error:
            raise JobError(f"the filter cannot be used: {reason_of(error).rstrip(';')}") from None
    check_columns(frame.select(*message_columns(frame)).schema, sources, exchange)
    if exchange is not None:
        return frame.withColumn(EXCHANGE_NAME, f.lit(bytearray(exchange.encode())))
    name = f.col("exchange").cast("binary")
    if "exchange_raw" in frame.columns:
        name = f.coalesce(f.col("exchange_raw"), name)
    return frame.withColumn(EXCHANGE_NAME, name)


def message_columns(frame: "DataFrame") -> list[Any]:
    """The columns that make up a message; headers as JSON only in rows without raw headers."""
    from pyspark.sql import functions as f

    from warrenmq.spark.sinks.columns import SINK_COLUMNS

    columns = []
    for name in frame.columns:
        if name == "headers" and "headers_raw" in frame.columns:
            columns.append(f.when(f.col("headers_raw").isNull(), f.col(name)).alias(name))
        elif name in SINK_COLUMNS:
            columns.append(f.col(name))
    return columns


def _read(spark: "SparkSession", source: Source) -> "DataFrame":
    if source.exists(MANIFEST_NAME):
        return _read_backup(spark, source)
    if not isinstance(source, LocalPlace):
        return read_elsewhere(spark, source, table_files(source))
    path = source.path
    if is_delta(source):
        return _read_delta(spark, source)
    if is_iceberg(source):
        files = iceberg_files(source)
        return _read_files(spark, [path / file.name for file in files])
    must_be_table(path)
    # Make columns of the partition directories below `path`.
    return _read_files(spark, [path], path if path.is_dir() else None)


def must_be_table(source: Path) -> None:
    """JobError unless `source` is a Parquet file, or a directory that has some."""
    example = next(source.rglob("*.parquet"), None) if source.is_dir() else source
    if example is None:
        raise JobError(
            f"{source} is no table: it has no Parquet files, no Delta log and no backup's manifest"
        )
    _must_be_parquet(example)


def _must_be_parquet(path: Path) -> None:
    """JobError unless `path` is a Parquet file; shorter than Spark's error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{path} is no Parquet file: {error}") from None


def _read_files(
    spark: "SparkSession", paths: Sequence[Path], base: Path | None = None
) -> "DataFrame":
    reader = spark.read
    if base is not None:
        reader = reader.option("basePath", str(base))
    return reader.parquet(*[_literal(path) for path in paths])


def _read_delta(spark: "SparkSession", source: LocalPlace) -> "DataFrame":
    files = delta_files(source)
    paths = [file.name for file in files]
    frame = _read_files(spark, [source.path / path for path in paths], source.path)
    for name in files[0].values:
        if name in frame.columns:
            frame = _with_values(frame, name, paths, [file.values[name] for file in files])
    return frame


def _with_values(
    frame: "DataFrame", name: str, paths: Sequence[str], values: Sequence[object]
) -> "DataFrame":
    """Replace the values of a partition column of a Delta table by those in the table's log.

    Spark takes the values from directory names. Other writers escape each byte of a text there, and
    Spark takes each byte for a character.
    """
    from pyspark.sql import functions as f

    wrong = {}
    for path, value in zip(paths, values, strict=True):
        for part in path.split("/")[:-1]:
            column, _, text = part.partition("=")
            read = ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
            if column == name and isinstance(value, str) and read != value:
                wrong[read] = value
    if not wrong:
        return frame
    known = f.create_map(*[f.lit(text) for pair in wrong.items() for text in pair])
    return frame.withColumn(name, f.coalesce(known[f.col(name)], f.col(name)))


def _read_backup(spark: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as f

    from warrenmq.pipeline.backups.chain import open_chain

    chain = open_chain(str(source))
    files = chain.files()
    newer = [(file.place, file.file.name) for file in files if not file.is_older]
    older = [(file.place, file.file.name) for file in files if file.is_older]
    alive = [(chain.alive_place, file.name) for file in chain.last.alive]
    parts = [_read_placed(spark, newer)] if newer else []
    if older and alive:
        # Keep rows of older backups only if the last backup lists them as alive.
        rows = _read_placed(spark, older).alias("rows")
        runs = _read_placed(spark, alive).alias("runs")
        is_alive = (f.col("rows.queue_id") == f.col("runs.queue_id")) & f.col("rows.seq").between(
            f.col("runs.first"), f.col("runs.last")
        )
        parts.append(rows.join(runs, is_alive, "left_semi"))
    if not parts:
        raise JobError(f"{source} is a backup without messages")
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _read_placed(spark: "SparkSession", files: Sequence[tuple[Source, str]]) -> "DataFrame":
    """The rows of files with the same columns, at one or several places."""
    names: dict[Source, list[str]] = {}
    for place, name in files:
        names.setdefault(place, []).append(name)
    found = [
        _read_files(spark, [place.path / name for name in some])
        if isinstance(place, LocalPlace)
        else read_elsewhere(spark, place, [TableFile(name, {}) for name in some])
        for place, some in names.items()
    ]
    return functools.reduce(lambda one, other: one.unionByName(other), found)


def check_columns(schema: "StructType", sources: Sequence[Source], exchange: str | None) -> None:
    """JobError unless rows of `schema` are messages. `exchange`: all messages go to this one."""
    from warrenmq.spark.options import OptionError
    from warrenmq.spark.sinks.columns import check_sink_columns

    try:
        check_sink_columns(schema, exchange is not None)
    except OptionError as error:
        names = ", ".join([str(source) for source in sources])
        raise JobError(f"{names} cannot be replayed: {error}") from None


def _literal(path: Path) -> str:
    return "".join([f"\\{each}" if each in _PATTERN else each for each in str(path)])
