"""What people write today: a pika consumer that gathers messages and writes them to Parquet files with pyarrow.

`python -m bench.archive_consumer URI QUEUE MESSAGES DIRECTORY` drains so many messages, acks them when their file is
written and synced, and prints the seconds it took, from the first message on.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
from pika.adapters.blocking_connection import BlockingChannel

FILE_MESSAGES = 32_000
# Twice as many, so that deliveries do not stop while a file is written; more than 65,535 cannot be said.
PREFETCH_COUNT = 2 * FILE_MESSAGES

SCHEMA = pa.schema(
    {"exchange": pa.string(), "routing_key": pa.string(), "redelivered": pa.bool_(), "message_id": pa.string(), "body": pa.binary()}
)  # fmt: skip


class Consumer:
    """Rows wait here for their file."""

    def __init__(self, directory: Path, messages: int) -> None:
        self.directory = directory
        self.left = messages
        self.files = 0
        self.rows: list[tuple[Any, ...]] = []
        self.started_s: float | None = None

    def take(
        self, channel: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes
    ) -> None:
        if self.started_s is None:
            self.started_s = time.monotonic()
        self.rows.append(
            (method.exchange, method.routing_key, method.redelivered, properties.message_id, body)
        )
        self.left -= 1
        if len(self.rows) == FILE_MESSAGES or self.left == 0:
            self.write()
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self.left == 0:
            channel.stop_consuming()

    def write(self) -> None:
        path = self.directory / f"{self.files:06d}.parquet"
        columns = [
            pa.array(values, kind)
            for values, kind in zip(zip(*self.rows, strict=True), SCHEMA.types, strict=True)
        ]
        table = pa.table(columns, schema=SCHEMA)
        pq.write_table(table, path, compression="zstd", use_dictionary=["exchange", "routing_key"])
        with path.open("rb") as file:
            os.fsync(file.fileno())
        self.files += 1
        self.rows = []


def main() -> None:
    uri, queue, messages, directory = sys.argv[1:5]
    Path(directory).mkdir()
    consumer = Consumer(Path(directory), int(messages))
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH_COUNT)
        channel.basic_consume(queue, consumer.take)
        channel.start_consuming()
    assert consumer.started_s is not None
    print(json.dumps({"seconds": time.monotonic() - consumer.started_s, "files": consumer.files}))


if __name__ == "__main__":
    main()
