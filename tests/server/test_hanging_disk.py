"""A disk that hangs while the kernel syncs a batch: only confirms wait, and they wait for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.node_thread import NodeThread
from warrenmq.store.disk.kernel_syncs import KernelSyncs


class HangingSyncs(KernelSyncs):
    """Syncs that begin only when `heal` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []
        self.is_hanging = True

    def begin(self, descriptor: int) -> None:
        if self.is_hanging:
            self.waiting.append(descriptor)
        else:
            super().begin(descriptor)

    def heal(self) -> None:
        self.is_hanging = False
        for descriptor in self.waiting:
            super().begin(descriptor)


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[NodeThread]:
    thread = NodeThread(tmp_path)
    yield thread
    thread.stop()


def hang(node: Any) -> HangingSyncs:
    syncs = HangingSyncs()
    node.loop.remove_reader(node._flusher.syncs.event)
    node._flusher.syncs.close()
    node._flusher.syncs = syncs
    node.loop.add_reader(syncs.event, node._on_synced)
    return syncs


def test_others_are_served_and_the_confirm_waits(thread: NodeThread) -> None:
    node: Any = thread.node
    if node._flusher.syncs is None:
        pytest.skip("the kernel syncs nothing by itself")
    publisher = thread.peer().open().channel()
    publisher.declare(b"q", durable=True)
    publisher.confirm_select()
    other = thread.peer().open().channel()
    syncs = thread.call(lambda: hang(node))
    publisher.publish(b"q", b"first", PERSISTENT)
    eventually(lambda: len(syncs.waiting) == 1, "the kernel has the batch")
    # Neither a queue in memory nor a delivery of the message needs the disk.
    other.declare(b"other", exclusive=True)
    other.publish(b"other", b"transient")
    other.consume(b"other")
    assert other.message().body == b"transient"
    other.consume(b"q")
    assert other.message().body == b"first"
    publisher.publish(b"q", b"second", PERSISTENT)
    assert other.message().body == b"second"
    publisher.quiet()
    thread.call(syncs.heal)
    publisher.confirms(2)
    for channel in (publisher, other):
        channel.peer.drop()
