"""`python -m bench store-tables`: Spark and a plain program read the same backlog on disk.

The writer of data directories makes the store without a node: one queue of persistent messages.
Both programs read all of it and compare every checksum, of headers and of bodies: Spark (warm)
through the data source `warren_store`, the plain program in a process of its own, with numpy,
pyarrow and a loop over the records. Both count the messages, and both write the same three columns
as Parquet: zstd of the same level, checksums of pages, no dictionary of bodies. Spark also counts
without bodies, as a user would who needs only the number, and reads all columns and half of the
store: half the bytes should take half the time. CPU seconds include all processes: Spark's JVM with
its compiler and collector, and its Python workers.
"""

import argparse
import functools
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from bench.machine import machine
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.build import build_name
from warrenmq.offline.part_writer import MessageColumns, PartWriter, address_of
from warrenmq.offline.store_plan import Part, PartManifest, QueueExtent
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.spark import session
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES
from warrenmq.wire.properties import Properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_HEADER_BYTES = 40
RECORD_HEADER_BYTES = 16
CHUNK = 2048
MIB = 1 << 20
WARM_UP_MESSAGES = 500_000
WARM_UPS = 3
NUMBERS_ONLY = "seq BIGINT"
# The columns that the plain program writes.
SAME_COLUMNS = "seq BIGINT, enqueued_at TIMESTAMP, body BINARY"
ALL_COLUMNS = ""
SPARK_SETTINGS = {
    # The plain program writes timestamps as microseconds; Spark's default is INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench store-tables", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=10_000_000, metavar="N", help="(default: 10,000,000)"
    )
    parser.add_argument(
        "--size", type=int, default=1024, metavar="BYTES", help="of a body (default: 1024)"
    )
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="of Spark (default: 2)")
    parser.add_argument(
        "--zstd-level",
        type=int,
        default=3,
        metavar="N",
        help="of both programs (default: 3, Spark's own)",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where to work (default: a temporary one)"
    )
    options = parser.parse_args(arguments)
    needed = int(options.messages * (options.size + 100) * 2.2)
    directory = Path(tempfile.mkdtemp(prefix="warren-bench-", dir=options.directory))
    if shutil.disk_usage(directory).free < needed:
        print(f"bench: {directory} has less than {needed // MIB} MiB free", file=sys.stderr)
        directory.rmdir()
        return 1
    print(machine())
    if build_name() != "compiled":
        print(f"warren is {build_name()} here: figures of format warren_store will be poor")
    try:
        _measure(options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _measure(options: argparse.Namespace, directory: Path) -> None:
    started = time.monotonic()
    data = make_backlog(directory / "data", options.messages, options.size)
    size = sum(path.stat().st_size for path in data.rglob("*.idx"))
    took = time.monotonic() - started
    print(f"{options.messages:,} messages, {size // MIB:,} MiB, written in {took:.0f} s")
    print("both compare all checksums; Parquet of both: columns seq, enqueued_at and body,")
    print(f"zstd of level {options.zstd_level}, checksums of pages", flush=True)
    target = directory / "plain.parquet"
    plain = [
        _plainly(
            Row("plain program: count", options.messages, size),
            functools.partial(plain_count, data),
        ),
        _plainly(
            Row("plain program: Parquet", options.messages, size),
            functools.partial(plain_parquet, data, target, options.zstd_level),
        ),
    ]
    target.unlink()
    rows, worker_bytes = _measure_spark(options, data, size, directory / "spark.parquet")
    rows = plain + rows
    for row in rows:
        if row.messages != row.expected:
            raise SystemExit(f"{row.name}: {row.messages:,} messages instead of {row.expected:,}")
    print("\n| what | seconds | CPU seconds | per 1,000,000 messages | MiB/s | messages/s |")
    print("|---|" + "---|" * 5)
    for row in rows:
        print(row.line())
    print("\n| warren_store beside the plain program | rate | CPU seconds |\n|---|---|---|")
    for index, row in zip((0, 0, 1), rows[2:5], strict=True):
        speed, cost = plain[index].seconds / row.seconds, row.cpu_seconds / plain[index].cpu_seconds
        print(f"| {row.name.partition(': ')[2]} | {speed:.2f} times | {cost:.2f} times |")
    largest = max(row.memory_bytes for row in plain)
    print(
        f"\nlargest worker of Spark's: {worker_bytes // MIB} MiB; plain program: {largest // MIB} MiB"
    )


def _measure_spark(
    options: argparse.Namespace, data: Path, size: int, target: Path
) -> tuple[list["Row"], int]:
    """Return a row for each of Spark's runs, and the size of its largest Python worker in bytes."""
    spark = session("bench", f"local[{options.cores},4]", SPARK_SETTINGS)

    def table(columns: str, messages: int) -> "DataFrame":
        reader = (
            spark.read.format("warren_store")
            .option("path", str(data))
            .option("seqTo", messages + 1)
        )
        return (reader.schema(columns) if columns else reader).load()

    def write(columns: str, messages: int) -> None:
        writer = table(columns, messages).write.option("parquet.enable.dictionary#body", "false")
        writer = writer.option("parquet.compression.codec.zstd.level", options.zstd_level)
        writer.mode("overwrite").parquet(str(target), compression="zstd")

    def count(name: str, columns: str, messages: int) -> Row:
        row = Row(f"warren_store: count, {name}", messages, size * messages // options.messages)
        return row.timed(lambda: table(columns, messages).count())

    def parquet(name: str, columns: str, messages: int) -> Row:
        row = Row(f"warren_store: Parquet, {name}", messages, size * messages // options.messages)
        row.timed(lambda: write(columns, messages))
        row.messages = spark.read.parquet(str(target)).count()
        return row

    for _ in range(WARM_UPS):
        for columns in (NUMBERS_ONLY, SAME_COLUMNS, ALL_COLUMNS):
            table(columns, min(options.messages, WARM_UP_MESSAGES)).count()
            if columns != NUMBERS_ONLY:
                write(columns, min(options.messages, WARM_UP_MESSAGES))
    watch = Workers()
    rows = [
        count("no bodies", NUMBERS_ONLY, options.messages),
        count("the same columns", SAME_COLUMNS, options.messages),
        parquet("the same columns", SAME_COLUMNS, options.messages),
        count("the same columns of half of it", SAME_COLUMNS, options.messages // 2),
        parquet("the same columns of half of it", SAME_COLUMNS, options.messages // 2),
        count("all columns", ALL_COLUMNS, options.messages),
        parquet("all columns", ALL_COLUMNS, options.messages),
    ]
    worker_bytes = watch.stop()
    spark.stop()
    return rows, worker_bytes


@dataclass
class Row:
    """One measurement: messages and bytes of the store that it reads, and its cost."""

    name: str
    # Messages that the run must find.
    expected: int
    # Bytes of the store that the run reads.
    bytes: int
    # Messages that the run found.
    messages: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    # Highest resident memory of the plain program; 0 for Spark.
    memory_bytes: int = 0

    def timed(self, work: Callable[[], int | None]) -> "Row":
        """Run `work`, which returns a number of messages; record it, time and CPU time."""
        cpu = _cpu_seconds()
        started = time.monotonic()
        self.messages = work() or 0
        self.seconds, self.cpu_seconds = time.monotonic() - started, _cpu_seconds() - cpu
        print(self.line(), flush=True)
        return self

    def line(self) -> str:
        rate, speed = self.bytes / MIB / self.seconds, self.expected / self.seconds
        each = self.cpu_seconds / self.expected * 1e6
        return f"| {self.name} | {self.seconds:.1f} | {self.cpu_seconds:.1f} | {each:.2f} | {rate:,.0f} | {speed:,.0f} |"


def _plainly(row: Row, work: Callable[[], int]) -> Row:
    """Run `work` in a new process, without counting its start; return the row with its cost."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_work_plainly, row, work).result()


def _work_plainly(row: Row, work: Callable[[], int]) -> Row:
    row.timed(work)
    row.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def _cpu_seconds() -> float:
    """CPU seconds of this process and all processes it started, including ended ones."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Workers:
    """Samples the memory of Spark's Python workers until `stop`."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "python" in process.name() and process.children() == []:
                        self._peak = max(self._peak, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    def stop(self) -> int:
        """Stop sampling; return the largest resident size of a worker in bytes."""
        self._over.set()
        self._thread.join()
        return self._peak


# -- the backlog -----------------------------------------------------------------------------------


def make_backlog(directory: Path, messages: int, size: int) -> Path:
    """Write a data directory with a queue of `messages` bodies of `size` bytes; return its path."""
    definitions = Definitions()
    definitions.vhosts.append(PutVhost(b"/", 1))
    definitions.queues.append(PutQueue(b"/", 1, b"backlog", True, False, b""))
    extent = QueueExtent(vhost_id=1, queue_id=1, end_seq=messages + 1)
    writer = StoreWriter.create(
        directory, definitions, [extent], part_messages=16 * SEGMENT_ENTRIES
    )
    with multiprocessing.Pool(os.cpu_count()) as pool:
        tasks = [(writer.work_directory, part, size) for part in writer.plan.parts]
        writer.finish(pool.imap(_write, tasks))
    return directory


def _write(task: tuple[Path, Part, int]) -> PartManifest:
    work, part, size = task
    with PartWriter(work, part) as writer:
        for columns in _columns(part, size):
            writer.add_columns(columns)
        return writer.finish()


def _columns(part: Part, size: int) -> Iterator[MessageColumns]:
    chance = random.Random(part.first_seq)
    noise = chance.randbytes(MIB)
    address = address_of(b"", b"backlog")
    block = Properties(content_type=b"application/octet-stream", delivery_mode=2).encode()
    for first in range(part.first_seq, part.end_seq, CHUNK):
        count = min(CHUNK, part.end_seq - first)
        places = [chance.randrange(len(noise) - size) for _ in range(count)]
        yield MessageColumns(
            list(range(first, first + count)),
            [address] * count,
            [block] * count,
            [noise[place : place + size] for place in places],
            [1_700_000_000_000 + first] * count,
            [0] * count,
            [False] * count,
            [True] * count,
        )


# -- the plain program -----------------------------------------------------------------------------


def plain_count(data: Path) -> int:
    """Return the number of records; ValueError at the first wrong checksum."""
    return sum(len(bodies) for _, bodies, _ in _files(data))


def plain_parquet(data: Path, target: Path, zstd_level: int) -> int:
    """Write SAME_COLUMNS of each message; return their number. ValueError at a wrong checksum."""
    schema = pa.schema(
        [("seq", pa.int64()), ("enqueued_at", pa.timestamp("ms")), ("body", pa.binary())]
    )
    count = 0
    with pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        compression_level=zstd_level,
        use_dictionary=["seq", "enqueued_at"],
        write_page_checksum=True,
    ) as writer:
        for raw, bodies, ends in _files(data):
            # The position (21 bytes) follows the record's header and the count of positions (4
            # bytes). Its seq id begins at byte 4; the time of enqueueing follows the position.
            heads = bodies[:, 0] + RECORD_HEADER_BYTES + 4
            seqs = _u64(raw, heads + 4)
            times = _u64(raw, heads + 21)
            columns = [
                pa.array(seqs),
                pa.array(times).view(pa.timestamp("ms")),
                _binary(raw, bodies[:, 1], ends),
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            count += batch.num_rows
            writer.write_batch(batch)
    return count


def _files(data: Path) -> Iterator[tuple[bytes, Any, Any]]:
    """Yield for each segment its bytes, the starts of records and bodies, and the ends of bodies.

    The starts are an array of two columns. ValueError at a wrong checksum.
    """
    store_id = bytes.fromhex((data / "msg_stores/vhosts/1/store_id").read_text().strip())
    for path in sorted(
        (data / "msg_stores/vhosts/1/queues/1").iterdir(), key=lambda path: int(path.stem)
    ):
        raw = path.read_bytes()
        seed = crc32c((1 << 32 | int(path.stem)).to_bytes(8, "big"), crc32c(store_id))
        starts, ends = [], []
        view = memoryview(raw)
        header = struct.Struct(">HBBIII").unpack_from
        at = FILE_HEADER_BYTES
        while at < len(raw):
            _, _, _, length, header_crc, body_crc = header(raw, at)
            end = at + RECORD_HEADER_BYTES + length
            if crc32c(view[at : at + 8], seed) != header_crc:
                raise ValueError(f"{path}: byte {at}")
            if crc32c(view[at + RECORD_HEADER_BYTES : end], header_crc) != body_crc:
                raise ValueError(f"{path}: byte {at}")
            # Skip exchange, routing key and properties; each follows its length.
            place = at + RECORD_HEADER_BYTES + 4 + 21 + 9
            place += 1 + raw[place]
            place += 1 + raw[place]
            place += 8 + int.from_bytes(raw[place : place + 4], "big")
            starts.append((at, place))
            ends.append(end)
            at = end
        yield raw, np.array(starts), np.array(ends)


def _u64(raw: bytes, places: Any) -> Any:
    data = np.frombuffer(raw, np.uint8)
    return data[places[:, None] + np.arange(8)].copy().view(">u8").astype(np.int64).reshape(-1)


def _binary(raw: bytes, starts: Any, ends: Any) -> Any:
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    whole = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return whole.take(pa.array(np.arange(0, 2 * len(starts), 2)))
