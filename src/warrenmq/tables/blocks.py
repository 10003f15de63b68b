"""Turns blocks of messages (readers/record_block.py) into Arrow, by the code that reads stores."""

from pathlib import Path
from typing import Any

import numpy as np

from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    INDEX_MAGIC,
    crc_seed,
    file_header_is_valid,
    file_header_number,
)
from warrenmq.tables import parts
from warrenmq.tables.contents import ContentTable
from warrenmq.tables.file_scan import POSITION_TYPE, RECORD_TYPE, Piece
from warrenmq.tables.message_batches import MessageBatches
from warrenmq.tables.scan import RecordScan
from warrenmq.tables.schemas import MESSAGES

_STORE_ID = slice(12, 28)


class BlockBatches:
    """Makes record batches of one schema from the blocks of one queue."""

    def __init__(self, schema: Any, vhost: str, queue: str, verify: bool = True) -> None:
        self.needs_bodies = "body" in schema.names
        self._verify = verify
        self._queue = queue
        self._batches = MessageBatches(no_partition(vhost, verify), schema)

    def build(self, block: bytes | memoryview) -> Any:
        """The messages of a block as one record batch; ValueError for no block or a damaged one."""
        piece = read_block(block, self._verify)
        queue_ids = piece.positions["queue_id"]
        queue_id = int(queue_ids[0]) if len(queue_ids) else 0
        if (queue_ids != queue_id).any():
            raise ValueError("a block of messages is damaged: it is of several queues")
        queue = parts.QueuePart(queue_id, self._queue, -1, 0, np.empty(0, np.int64))
        return self._batches.whole(parts.FilePart(parts.INDEX, "", 0, len(block), (queue,)), piece)


def no_partition(vhost: str, verify: bool) -> parts.Partition:
    """A partition without files, for batches of messages that come from no known directory."""
    options = parts.ReadOptions(verify=parts.VERIFY_CRC if verify else parts.VERIFY_NONE)
    nowhere = Path()
    return parts.Partition(
        MESSAGES, options, nowhere, nowhere, vhost, b"", ContentTable(nowhere, b"", (), ())
    )


def read_block(block: bytes | memoryview, verify: bool = True) -> Piece:
    """The records of a block; ValueError when it is no block or damaged."""
    header = bytes(block[:FILE_HEADER_BYTES])
    if not file_header_is_valid(header, INDEX_MAGIC, b""):
        raise ValueError("this is no block of messages, or one of another version of warren")
    data = bytes(block[FILE_HEADER_BYTES:])
    scan = RecordScan(crc_seed(header[_STORE_ID], file_header_number(header)), verify)
    scan.feed(data, FILE_HEADER_BYTES, True)
    if scan.damage:
        offset, _, reason = scan.damage[0]
        raise ValueError(f"a block of messages is damaged at {offset}: {reason}")
    records, positions = scan.take()
    return Piece(data, np.frombuffer(records, RECORD_TYPE), np.frombuffer(positions, POSITION_TYPE))
