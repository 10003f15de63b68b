"""A checkpoint has the same bytes whatever slices it is encoded in."""

from tests.support.stores.made_files import STORE_ID
from warrenmq.store.contents.file import ContentFile
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.records.checkpoint import (
    CheckpointEncoder,
    CheckpointHead,
    decode_checkpoint,
    encode_queue,
)

QUEUES = 10
FILES = 3


def encoded(rows: int) -> tuple[bytes, int]:
    """The bytes of a checkpoint, and the number of slices that encoded it."""
    head = CheckpointHead(7, 1, 2, 3, 4, 5, 6)
    head.damage.append((1, 40, 80))
    head.published_bytes, head.written_bytes = 1 << 40, 1 << 41
    queue_rows = [encode_queue(QueueLedger(number), False) for number in range(1, QUEUES + 1)]
    content_rows = [ContentFile(number, f"{number}.rdq", 1).row() for number in range(FILES)]
    encoder = CheckpointEncoder(STORE_ID, head, queue_rows, content_rows)
    slices = 1
    while encoder.step(rows):
        slices += 1
    return b"".join(encoder.parts()), slices


def test_slices_of_any_size() -> None:
    whole, _ = encoded(1000)
    for rows in range(1, QUEUES + FILES + 2):
        assert encoded(rows) == (whole, -(-(QUEUES + FILES) // rows))
    found = decode_checkpoint(whole, STORE_ID)
    assert found is not None
    assert [row.queue_id for row in found.queues] == list(range(1, QUEUES + 1))
    assert (len(found.content_rows), found.head.generation, found.head.damage) == (
        FILES,
        7,
        [(1, 40, 80)],
    )
    assert (found.head.published_bytes, found.head.written_bytes) == (1 << 40, 1 << 41)
    assert decode_checkpoint(whole[:-1], STORE_ID) is None
