"""Reads the messages of a partition as record batches, in the order of their queue."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warrenmq.tables.columns import (
    MESSAGE_COLUMNS,
    TIMESTAMP,
    as_strings,
    what_is_not_text,
)
from warrenmq.tables.property_columns import property_columns
from warrenmq.tables.rabbitmq.damage import Damage, OnDamage
from warrenmq.tables.rabbitmq.external_term import TermError
from warrenmq.tables.rabbitmq.import_plan import Partition
from warrenmq.tables.rabbitmq.slot_index import STORE_SUFFIX, term_of_entry
from warrenmq.tables.rabbitmq.stored_message import StoredMessage, decode_message

# The columns of a message, with the exact bytes of names that are not UTF-8 and of the properties.
# `enqueued_at` is null, since RabbitMQ does not store it. `redelivered` is true, as for all
# messages that come back after a crash. `routing_key` is the publisher's own, without the keys of
# CC and BCC.
SCHEMA: Final = pa.schema(
    [
        *MESSAGE_COLUMNS.items(),
        ("exchange_raw", pa.binary()),
        ("routing_key_raw", pa.binary()),
        ("properties_raw", pa.binary()),
    ]
)
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20

_OPEN_FILES: Final = 64
_NO_ID: Final = bytes(16)


def read(partition: Partition, on_damage: OnDamage) -> Iterator[Any]:
    """Batches of SCHEMA; a message that cannot be read is reported to `on_damage` and left out.

    A batch has at most BATCH_ROWS rows and BATCH_BYTES of properties and bodies; a larger message
    has a batch to itself.
    """
    files = _Files(partition.paths)
    rows = _Rows(partition)
    try:
        columns = (partition.files.tolist(), partition.offsets.tolist(), partition.lengths.tolist())
        for number, (file, offset, length) in enumerate(zip(*columns, strict=True)):
            try:
                message = decode_message(files.read(file, offset, length))
                message_id = partition.ids[16 * number : 16 * number + 16]
                if message.id != message_id and message_id != _NO_ID:
                    raise TermError("another message than the index names")
            except (OSError, TermError) as error:
                text = f"message {partition.seqs[number]}: {error}"
                on_damage(
                    Damage(partition.vhost, partition.queue, partition.paths[file], offset, 1, text)
                )
                continue
            size = len(message.body) + len(message.properties)
            if rows.messages and rows.bytes + size > BATCH_BYTES:
                yield rows.take()
            rows.add(number, message, size)
            if len(rows.messages) == BATCH_ROWS:
                yield rows.take()
        if rows.messages:
            yield rows.take()
    finally:
        files.close()


class _Files:
    """The files of a partition; at most _OPEN_FILES of them are open at a time."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths
        self._open: OrderedDict[int, int] = OrderedDict()

    def read(self, number: int, offset: int, length: int) -> bytes:
        """The bytes of a term; TermError when the file shows that they have changed, or OSError."""
        descriptor = self._open.get(number)
        if descriptor is None:
            if len(self._open) == _OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                os.close(oldest)
            descriptor = self._open[number] = os.open(
                self._paths[number], os.O_RDONLY | os.O_CLOEXEC
            )
        data = os.pread(descriptor, length, offset)
        if len(data) < length:
            raise TermError("the file is shorter than it was")
        return term_of_entry(data) if self._paths[number].endswith(STORE_SUFFIX) else data

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


class _Rows:
    """Gathers messages into a batch."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.messages: list[StoredMessage] = []
        self.numbers: list[int] = []
        self.bytes = 0

    def add(self, number: int, message: StoredMessage, size: int) -> None:
        self.messages.append(message)
        self.numbers.append(number)
        self.bytes += size

    def take(self) -> Any:
        """Return the batch and start the next one."""
        partition, messages, numbers = self._partition, self.messages, np.array(self.numbers)
        count = len(messages)
        blocks = pa.array([message.properties for message in messages], pa.binary())
        expiries = partition.expiries[numbers]
        exchanges = pa.array([message.exchange for message in messages], pa.binary())
        routing_keys = pa.array([message.routing_keys[0] for message in messages], pa.binary())
        columns = {
            "vhost": pa.repeat(pa.scalar(partition.vhost), count),
            "queue": pa.repeat(pa.scalar(partition.queue), count),
            "seq": pa.array(partition.seqs[numbers]),
            "exchange": as_strings(exchanges),
            "routing_key": as_strings(routing_keys),
            "exchange_raw": what_is_not_text(exchanges),
            "routing_key_raw": what_is_not_text(routing_keys),
            "enqueued_at": pa.nulls(count, TIMESTAMP),
            "expires_at": pa.array(expiries, mask=expiries == 0).view(TIMESTAMP),
            "redelivered": pa.repeat(pa.scalar(True), count),
            "persistent": pa.repeat(pa.scalar(True), count),
            "size": pa.array([len(message.body) for message in messages], pa.int32()),
            "body": pa.array([message.body for message in messages], pa.binary()),
            "properties_raw": blocks,
        }
        columns |= property_columns(blocks, SCHEMA)
        self.messages, self.numbers, self.bytes = [], [], 0
        return pa.RecordBatch.from_arrays(
            [columns[column.name] for column in SCHEMA], schema=SCHEMA
        )
