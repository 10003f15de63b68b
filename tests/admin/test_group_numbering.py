"""A group's position outlives the numbering of its queue: numbers of transient messages are in no journal."""

from tests.support.memory_node import MemoryClient, MemoryDisk, MemoryNode
from warren.admin.protocol import GroupOpened, OpenGroup, Reserve, Reserved


def test_new_messages_are_never_numbered_below_what_a_group_has_passed() -> None:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    for number in range(5):
        node.publish(b"q", b"%d" % number, persistent=False)
    opened = MemoryClient(node).must(OpenGroup("g", b"q", True))
    assert isinstance(opened, GroupOpened)
    assert opened.acked == 6
    node = node.crash()
    seqs = [node.publish(b"q", b"new %d" % number) for number in range(3)]
    node.commit()
    assert min(seqs) >= opened.acked
    # And so the group finds them.
    client = MemoryClient(node)
    opened = client.must(OpenGroup("g", b"q"))
    assert isinstance(opened, GroupOpened)
    reserved = client.must(Reserve("g", opened.epoch, opened.incarnation, opened.reserved, 100, 1 << 20))
    assert isinstance(reserved, Reserved)
    assert reserved.end == seqs[-1] + 1
