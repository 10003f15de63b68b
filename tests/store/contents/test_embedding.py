"""The threshold between messages in the journal and messages in the content store (S43, T58)."""

import pytest

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.store.settings import StoreSettings

ADDRESS = b"\x00\x01q"
PROPERTIES = b"\x00\x00"
THRESHOLD = StoreSettings(1 << 20).embed_below


@pytest.mark.parametrize(
    ("content_bytes", "is_embedded"), [(THRESHOLD - 1, True), (THRESHOLD, False)]
)
def test_s43_messages_below_the_threshold_are_embedded(
    content_bytes: int, is_embedded: bool
) -> None:
    """Address, properties and body count together; a message at the threshold is not embedded."""
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    node.publish(
        b"q", bytes(content_bytes - len(ADDRESS) - len(PROPERTIES)), True, PROPERTIES, ADDRESS
    )
    assert queue.backing.ready.head().content_bytes == content_bytes
    node.commit()
    names = node.disk.files.list_names("msg_store_persistent")
    assert (names == []) == is_embedded
