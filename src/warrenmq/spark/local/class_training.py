"""Makes the archive of Spark's classes: `python -m warrenmq.spark.local.class_training`.

Starts Spark, lets it do a little of all that warren's users do with it, and ends it. The JVM
then writes the classes that it has loaded into the archive. Ends at once when the archive is there
or another process makes it. class_archive.py says when this program runs by itself.
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from warrenmq.spark.local.class_archive import (
    OFF,
    QUIETLY,
    SWITCH,
    ClassArchive,
    class_archive,
    options_with,
)
from warrenmq.spark.local.java import SparkUnavailableError, java_path, require_spark
from warrenmq.spark.local.session import java_options, session

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

_SCHEMA: Final = "k bigint, t timestamp, h map<string,string>, b binary"
_ROWS: Final = 100
_TIMEOUT_S: Final = 600
# Nobody watches this process, so it ends by itself whatever happens (s).
_LIFE_S: Final = 3600


def main() -> str | None:
    """Make the archive unless it is there; returns the text of an error."""
    try:
        require_spark()
    except SparkUnavailableError as error:
        return f"warren: {error}"
    archive = class_archive()
    if archive is None:
        return "warren: Spark has a configuration directory, and Java makes no archive then"
    archive.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with archive.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if archive.find() is None:
            _make(archive)
    return None


def _make(archive: ClassArchive) -> None:
    os.utime(archive.lock)
    prefix = f"{archive.key}-making-"
    # A maker that was killed leaves its directory.
    for left in archive.directory.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=archive.directory) as scratch:
        signal.alarm(_LIFE_S)
        move_to(Path(scratch))
        made = Path(scratch, "classes")
        os.environ[SWITCH] = OFF
        options = (
            f'{java_options(is_light=True)} "-Djava.io.tmpdir={scratch}" '
            f'"-XX:ArchiveClassesAtExit={made}" {QUIETLY}'
        )
        spark = session(
            "warren classes",
            settings={
                "spark.driver.extraJavaOptions": options,
                "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            },
            is_light=True,
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        try:
            train(spark, Path(scratch))
        finally:
            spark.stop()
            # The JVM ends when its input does, and writes the archive then.
            gateway.proc.stdin.close()
            gateway.proc.wait(_TIMEOUT_S)
        _check(made)
        archive.keep(made)


def move_to(scratch: Path) -> None:
    """Make `scratch` the working directory and the one for temporary files.

    Those of the job that started this process may be deleted when the job ends. PySpark would then
    wait for ever for a file that the JVM cannot write.
    """
    os.chdir(scratch)
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        os.environ[name] = str(scratch)
    tempfile.tempdir = None


def _check(made: Path) -> None:
    """Raise CalledProcessError unless this Java starts with the archive and prints nothing."""
    command = [java_path(), *shlex.split(options_with(made)), "-version"]
    if subprocess.run(command, check=True, capture_output=True).stdout:
        raise subprocess.CalledProcessError(0, command)


def train(spark: "SparkSession", scratch: Path) -> None:
    """Load the classes of Spark that jobs, streams, tables and sinks use.

    A part that fails is left out. On a busy machine that happens: a Python process of this
    priority may take longer to start than Spark waits for it.
    """
    spark.dataSource.register(_Numbers)
    for part in (_tasks, _tables, _sql, _streams):
        with contextlib.suppress(PySparkException, Py4JError):
            part(spark, scratch)


def _tasks(spark: "SparkSession", scratch: Path) -> None:
    spark.sparkContext.parallelize([0, 1], 2).mapPartitions(list).collect()


def _tables(spark: "SparkSession", scratch: Path) -> None:
    rows = spark.read.format("numbers").load()
    rows.selectExpr("*", "CAST(k % 2 AS STRING) AS p").write.partitionBy("p").parquet(
        str(scratch / "table")
    )
    rows.write.format("numbers").mode("append").save()


def _sql(spark: "SparkSession", scratch: Path) -> None:
    stored = spark.read.parquet(str(scratch / "table"))
    stored.createOrReplaceTempView("stored")
    found = stored.where("k > 3 AND b IS NOT NULL").orderBy("k").select("k", "h", "b")
    found.repartitionByRange(2, "k").sortWithinPartitions("k").toArrow()
    spark.sql(
        "SELECT p, count(*), min(t), sum(length(b)) FROM stored WHERE h['a'] = 'b' GROUP BY p"
    ).collect()
    stored.join(stored.selectExpr("k AS n"), stored["k"] == 2).count()


def _streams(spark: "SparkSession", scratch: Path) -> None:
    # This source needs no Python, so that only one of the queries starts some.
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    counts = ticks.withWatermark("timestamp", "1 minute").groupBy("value").count()
    writers = (
        ticks.writeStream.format("numbers"),
        counts.writeStream.format("noop").outputMode("update"),
        spark.readStream.format("numbers")
        .load()
        .writeStream.format("parquet")
        .option("path", str(scratch / "streamed")),
    )
    for number, writer in enumerate(writers):
        writer = writer.option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(_TIMEOUT_S)
        query.stop()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        yield _batch()


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - of Spark
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        yield _batch()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        for _batch in iterator:
            pass
        return WriterCommitMessage()


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        for _batch in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        pass


class _Numbers(DataSource):
    """A source and a sink of rows like those of messages."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _StreamReader()

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - of Spark
        return _StreamWriter()


def _batch() -> "RecordBatch":
    import pyarrow as pa

    numbers = pa.array(range(_ROWS), pa.int64())
    times = pa.array(range(_ROWS), pa.timestamp("us", "UTC"))
    maps = pa.array([[("a", "b")]] * _ROWS, pa.map_(pa.string(), pa.string()))
    bodies = pa.array([b"body"] * _ROWS, pa.binary())
    return pa.RecordBatch.from_arrays([numbers, times, maps, bodies], names=["k", "t", "h", "b"])


if __name__ == "__main__":
    sys.exit(main())
