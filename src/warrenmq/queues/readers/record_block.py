"""A block: messages in bulk, encoded as the records of a file of the store (records/record.py).

A block begins with a file header, whose store id and number seed the checksums. One PUBLISH record
for each message follows, with one position, as in a segment of an index: a reader of segments reads
blocks too. A block without bodies has PUBLISH_HEAD records, which end after the length of the body.
"""

from librt.strings import BytesWriter
from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.store.model.message import Position
from warrenmq.store.records.record import (
    INDEX_MAGIC,
    PUBLISH,
    PUBLISH_HEAD,
    RecordWriter,
    write_publish_head,
)


def encode_block(entries: list[Entry], with_bodies: bool, store_id: bytes) -> bytes:
    """The block of `entries`, whose contents must be in memory."""
    positions: list[Position] = [entry for entry in entries]
    writer = RecordWriter(store_id)
    writer.start_file(INDEX_MAGIC, 0)
    head = BytesWriter()
    kind: i64 = PUBLISH if with_bodies else PUBLISH_HEAD
    index: i64 = 0
    while index < len(positions):
        message = positions[index].message
        write_publish_head(head, message, positions, index, index + 1)
        writer.raw_record(kind, head.getvalue(), message.body if with_bodies else b"")
        head.truncate(0)
        index += 1
    return b"".join(writer.take())
