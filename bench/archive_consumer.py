"""A common way to archive a queue: a pika consumer writes messages to Parquet files with pyarrow.

`python -m bench.archive_consumer URI QUEUE MESSAGES DIRECTORY` drains MESSAGES messages, acks them
when their file is written and synced, and prints the seconds since the first message.
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
# Two files of messages, so that deliveries continue while one is written. AMQP's maximum is 65,535.
PREFETCH_COUNT = 2 * FILE_MESSAGES

SCHEMA = pa.schema(
    {"exchange": pa.string(), "routing_key": pa.string(), "redelivered": pa.bool_(), "message_id": pa.string(), "body": pa.binary()}
)  # fmt: skip


class Consumer:
    """Gathers rows and writes a Parquet file for every FILE_MESSAGES of them."""

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
