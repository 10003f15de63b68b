"""Runs a query as Spark does, without a JVM, until it is killed: from a queue to JSON lines.

`python -m tests.spark.amqp.driver_app URI QUEUE DIRECTORY [once]` writes `offsets/N` before batch N
is planned, and `commits/N` when its rows are in `out/N`, which a repeated batch overwrites. With
`once` it ends when the queue is empty.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadMaxRows

from warrenmq.spark.amqp.options import parse_amqp_source
from warrenmq.spark.amqp.stream_reader import AmqpStreamReader
from warrenmq.spark.columns import default_schema


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, queue, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    options = parse_amqp_source(
        {
            "uri": uri,
            "queue": queue,
            "spoolDir": str(directory / "spool"),
            "spoolMaxBytes": str(1024 * 1024),
            "prefetch": "200",
            "deduplicate": "message-id",
            "longPollMs": "300",
        }
    )
    reader = AmqpStreamReader(options, default_schema(True, False))
    is_once = sys.argv[4:] == ["once"]
    if is_once:
        reader.prepareForTriggerAvailableNow()
    run(reader, directory, is_once)
    reader.stop()


def run(reader: AmqpStreamReader, directory: Path, is_once: bool) -> None:
    """Run batches in the order of Spark's MicroBatchExecution."""
    for name in ("offsets", "commits", "out"):
        (directory / name).mkdir(exist_ok=True)
    batch = last_number(directory / "offsets")
    if batch < 0 or batch > 0:
        start = (
            None if batch < 0 else json.loads((directory / "offsets" / str(batch - 1)).read_text())
        )
    else:
        start = reader.initialOffset()
    if batch >= 0:
        end = json.loads((directory / "offsets" / str(batch)).read_text())
        if batch > last_number(directory / "commits"):
            assert start is not None
            write(reader, directory, batch, start, end)
        start = end
    if start is None:
        start = reader.initialOffset()
    while True:
        end = reader.latestOffset(start, ReadMaxRows(150))
        if json.dumps(end) == json.dumps(start):
            if is_once:
                return
            continue
        batch += 1
        put(directory / "offsets" / str(batch), json.dumps(end))
        if batch > 0 and batch % 3 == 0:
            reader.commit(start)
        write(reader, directory, batch, start, end)
        start = end


def write(
    reader: AmqpStreamReader,
    directory: Path,
    batch: int,
    start: dict[str, object],
    end: dict[str, object],
) -> None:
    lines = []
    for partition in reader.partitions(start, end):
        for rows in reader.read(partition):
            lines += [row["body"].decode() for row in rows.to_pylist()]
    put(directory / "out" / str(batch), "\n".join(lines))
    put(directory / "commits" / str(batch), "")


def put(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.rename(path)


def last_number(directory: Path) -> int:
    return max((int(path.name) for path in directory.glob("*") if path.name.isdigit()), default=-1)


def end_with(parent: int) -> None:
    """End this program when `parent` ends, so that a killed test run does not leave it behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
