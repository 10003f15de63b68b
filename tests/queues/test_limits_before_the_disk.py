"""A message for which a queue has no room is never written (W14), nor one that makes room."""

import pytest

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.settings import (
    DROP_HEAD,
    NO_LIMIT,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    LengthLimit,
    QueueSettings,
)

COUNT = 50
ROOM = 3


def written(disk: MemoryDisk, body: bytes) -> bool:
    """Whether `body` is in any file."""
    return any(body in bytes(file.data) for _, file in disk.files.files())


@pytest.mark.parametrize("size", [20, 10_000], ids=["embedded", "in the content store"])
@pytest.mark.parametrize("overflow", [DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX])
def test_only_what_stays_is_written(overflow: int, size: int) -> None:
    disk = MemoryDisk()
    node = MemoryNode(disk)
    node.declare(b"q", settings=QueueSettings(limit=LengthLimit(ROOM, NO_LIMIT, overflow)))
    bodies = [(b"message %02d " % number).ljust(size, b".") for number in range(COUNT)]
    for body in bodies:
        node.publish(b"q", body)
    node.commit()
    kept = bodies[-ROOM:] if overflow == DROP_HEAD else bodies[:ROOM]
    assert [body for body in bodies if written(disk, body)] == kept
    assert node.vhost.queues[b"q"].ready_count == ROOM
