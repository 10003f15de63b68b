"""A group's position stays valid after a crash, although no journal has transient seq ids."""

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import end_of, one_queue, open_one
from warrenmq.admin.protocol.requests import OpenGroup


def test_new_messages_are_never_numbered_below_what_a_group_has_passed() -> None:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    for number in range(5):
        node.publish(b"q", b"%d" % number, persistent=False)
    opened = one_queue(MemoryClient(node).must(OpenGroup("g", [b"q"], start="latest")))
    assert opened.acked == 6
    node = node.crash()
    seqs = [node.publish(b"q", b"new %d" % number) for number in range(3)]
    node.commit()
    assert min(seqs) >= opened.acked
    # Then the group finds the new messages.
    client = MemoryClient(node)
    opened = open_one(client)
    assert end_of(client.must(opened.reserve(opened.reserved))) == seqs[-1] + 1
