"""`python -m bench store-tables`: a backlog on disk as tables of Spark, beside a plain program that reads the same files.

The store is written by the writer of data directories, without a node: one queue of persistent messages of 1 KiB. Both read all
of it and compare every checksum: Spark (warm, two cores) through the data source `warren_store`, the plain program in one
process with numpy, pyarrow and a loop over the records. Once they count, and once they write Parquet with zstd: the plain program
three columns, Spark the same and then all. Half of the store is read as well: twice the bytes should take twice the time.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from bench.machine import machine
from warren.broker.metadata import Definitions, PutQueue, PutVhost
from warren.build import build_name
from warren.offline.part_writer import MessageColumns, address_of, write_part
from warren.offline.store_plan import Part, PartManifest, QueueExtent
from warren.offline.store_writer import StoreWriter
from warren.spark import session
from warren.store.queue_index import SEGMENT_ENTRIES
from warren.wire.properties import Properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_HEADER_BYTES = 40
RECORD_HEADER_BYTES = 16
CHUNK = 2048
MIB = 1 << 20
WARM_UP_MESSAGES = 200_000
# What the plain program makes of a message.
SAME_COLUMNS = "seq BIGINT, enqueued_at TIMESTAMP, body BINARY"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench store-tables", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, metavar="N", help="(default: 10,000,000)")
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES", help="of a body (default: 1024)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="of Spark (default: 2)")
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
    print(f"{options.messages:,} messages, {size // MIB:,} MiB, written in {took:.0f} s", flush=True)
    rows = [
        _timed("plain program, count", size, lambda: plain_count(data)),
        _timed("plain program, Parquet", size, lambda: plain_parquet(data, directory / "plain.parquet")),
    ]
    spark = session("bench", f"local[{options.cores},4]")

    def table(columns: str, end: int) -> "DataFrame":
        reader = spark.read.format("warren_store").option("path", str(data)).option("seqTo", end + 1)
        return (reader.schema(columns) if columns else reader).load()

    def count(columns: str, end: int) -> int:
        return table(columns, end).count()

    def write(columns: str, end: int) -> int:
        target = directory / "spark.parquet"
        writer = table(columns, end).write.option("parquet.enable.dictionary#body", "false")
        writer.mode("overwrite").parquet(str(target), compression="zstd")
        return spark.read.parquet(str(target)).count()

    for _ in range(3):
        count("", WARM_UP_MESSAGES)
        write("", WARM_UP_MESSAGES)
    half = options.messages // 2
    watch = Workers()
    for columns, name, end in (
        (SAME_COLUMNS, "the same columns", options.messages),
        (SAME_COLUMNS, "half of it", half),
        ("", "all columns", options.messages),
    ):
        share = size * end // options.messages
        rows.append(_timed(f"warren_store, count, {name}", share, partial(count, columns, end)))
        rows.append(_timed(f"warren_store, Parquet, {name}", share, partial(write, columns, end)))
    peak = watch.stop()
    spark.stop()
    print(f"\n| what | seconds | CPU seconds | MiB/s | messages/s |\n|{'---|' * 5}")
    for row in rows:
        print(row.line())
    print(f"\nlargest worker of Spark's: {peak // MIB} MiB")


@dataclass
class Row:
    """One measurement."""

    name: str
    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float

    def line(self) -> str:
        rate, speed = self.bytes / MIB / self.seconds, self.messages / self.seconds
        return f"| {self.name} | {self.seconds:.1f} | {self.cpu_seconds:.1f} | {rate:,.0f} | {speed:,.0f} |"


def _timed(name: str, size: int, work: Callable[[], int]) -> Row:
    cpu = _cpu_seconds()
    started = time.monotonic()
    messages = work()
    row = Row(name, messages, size, time.monotonic() - started, _cpu_seconds() - cpu)
    print(row.line(), flush=True)
    return row


def _cpu_seconds() -> float:
    """Of this process and all that it has started and that are still there."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class Workers:
    """Watches the memory of Spark's Python workers."""

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
        """The largest resident size of one of them, in bytes."""
        self._over.set()
        self._thread.join()
        return self._peak


# -- the backlog ---------------------------------------------------------------------------------------------------------


def make_backlog(directory: Path, messages: int, size: int) -> Path:
    """A data directory with one queue."""
    definitions = Definitions()
    definitions.vhosts.append(PutVhost(b"/", 1))
    definitions.queues.append(PutQueue(b"/", 1, b"backlog", True, False, b""))
    extent = QueueExtent(vhost_id=1, queue_id=1, end_seq=messages + 1)
    writer = StoreWriter.create(directory, definitions, [extent], part_messages=16 * SEGMENT_ENTRIES)
    with multiprocessing.Pool(os.cpu_count()) as pool:
        tasks = [(writer.work, part, size) for part in writer.plan.parts]
        writer.finish(pool.imap(_write, tasks))
    return directory


def _write(task: tuple[Path, Part, int]) -> PartManifest:
    work, part, size = task
    return write_part(work, part, _columns(part, size))


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


# -- the plain program ---------------------------------------------------------------------------------------------------


def plain_count(data: Path) -> int:
    """Records whose checksums are right."""
    return sum(len(bodies) for _, bodies, _ in _files(data))


def plain_parquet(data: Path, target: Path) -> int:
    """Write what is needed of each message; returns how many there are."""
    schema = pa.schema([("seq", pa.int64()), ("enqueued_at", pa.timestamp("ms")), ("body", pa.binary())])
    count = 0
    with pq.ParquetWriter(target, schema, compression="zstd", use_dictionary=["seq"]) as writer:
        for raw, bodies, ends in _files(data):
            # A position lies behind the record's header and the count of positions; then come expiry and flags.
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
    """Each segment: its bytes, where records and their bodies begin (two columns), and where bodies end."""
    store_id = bytes.fromhex((data / "msg_stores/vhosts/1/store_id").read_text().strip())
    for path in sorted((data / "msg_stores/vhosts/1/queues/1").iterdir(), key=lambda path: int(path.stem)):
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
            # Exchange, routing key and properties have their lengths before them.
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
