"""Store files made by hand: a store id, a message, segments and content files with messages."""

from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.message import Message, Position, QueueLedger
from warrenmq.store.records.content import write_content
from warrenmq.store.records.record import CONTENT_MAGIC, INDEX_MAGIC, RecordWriter

STORE_ID = bytes(range(16))
SEGMENT = "queues/7/3.idx"
SEGMENT_NUMBER = 7 << 32 | 3


def message_of(body: bytes, timestamp_ms: int = 1000, persistent: bool = True) -> Message:
    """A message from exchange `ex` with routing key `key` and one property."""
    return Message(b"\x02ex\x03key", b"\x10\x00\x02", body, persistent, timestamp_ms)


def numbered_body(number: int, size: int) -> bytes:
    """A body of 4 bytes with `number`, then `size` bytes that all differ for the next number."""
    return number.to_bytes(4, "big") + bytes((number + place) & 255 for place in range(size))


def segment_records(
    seqs: range, number: int = SEGMENT_NUMBER, with_header: bool = True
) -> list[bytes]:
    """A record for each seq id; first the header of the segment, if `with_header`."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(INDEX_MAGIC, number)
    parts = [b"".join(writer.take())]
    ledger = QueueLedger(number >> 32)
    for seq in seqs:
        writer.add_publish(
            message_of(b"body %d" % seq * 9), [Position(message_of(b""), ledger, seq, 0)], 0, 1
        )
        parts.append(b"".join(writer.take()))
    return parts if with_header else parts[1:]


def content_file(number: int, ids: range, size: int = 200) -> bytes:
    """A content file with contents of these ids."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(CONTENT_MAGIC, number)
    ledger = QueueLedger(1)
    for content_id in ids:
        content = message_of(b"%d" % content_id * size)
        write_content(writer, content_id, content, [Position(content, ledger, content_id, 0)], 0, 1)
    return b"".join(writer.take())


def put(files: FileSystem, path: str, data: bytes) -> None:
    """Create the file `path` with `data`, durably."""
    files.make_directories(path.rpartition("/")[0])
    handle = files.create(path)
    handle.write(0, [data])
    handle.sync()
    handle.close()
    files.sync_directory(path.rpartition("/")[0])
