"""How ready consumers are: the moving average, and what a queue notes of them."""

import pytest

from tests.support.stores.model_store import NOW_MS, ModelHost
from warrenmq.queues.consumer_use import ConsumerUse
from warrenmq.queues.entry import Consumer, Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

HALF = 1000


class Taker(Consumer):
    """A consumer with room for one message, which it keeps."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, b"taker", False, False, 0, 1)
        self.kept: list[Entry] = []

    def can_take(self) -> bool:
        return not self.kept

    def deliver(self, entry: Entry) -> None:
        self.kept.append(entry)


@pytest.mark.parametrize(
    ("moments", "share"),
    [
        # Ready all the time, or never since the beginning.
        ([HALF], 1.0),
        ([0, HALF], 0.5),
        ([0, 3 * HALF], 0.125),
        # A second of each: the share of both together counts for the last two half-lives.
        ([HALF, 2 * HALF], 0.25 + 0.75 * 0.5),
        # Half an average, and then as long ready.
        ([0, HALF, 2 * HALF], 0.5 * 0.5 + 0.5),
        # Changes within a turn take no time.
        ([0, 0, 0, 0, HALF], 1.0),
        ([0, 0, 0, HALF], 0.5),
        # A clock that goes back counts as one that stands.
        ([HALF, 0], 1.0),
    ],
)
def test_average(moments: list[int], share: float) -> None:
    """The consumers stop being ready, resume, and so on at all `moments` but the last one."""
    use = ConsumerUse(0)
    for moment in moments[:-1]:
        if use.is_ready:
            use.stop(moment)
        else:
            use.resume(moment)
    assert use.share(moments[-1]) == pytest.approx(share)


def test_a_queue_without_waiting_messages_finds_its_consumers_ready() -> None:
    """Consumers are not ready from a message that finds no room until an ack."""
    queue = ModelHost().declare()
    use = queue.consumer_use
    message = Message(b"\0\1q", b"\0\0", b"body", True, NOW_MS)
    taker = Taker(queue)
    queue.add_consumer(taker)
    queue.publish(message, -1, NOW_MS)
    assert taker.kept and use.share(NOW_MS + HALF) == 1.0
    queue.publish(message, -1, NOW_MS)
    assert use.share(NOW_MS + HALF) == pytest.approx(0.5)
    for ready_count in (1, 0):
        entry = taker.kept.pop()
        taker.unacked_count -= 1
        assert queue.ready_count == ready_count
        queue.leave(entry, ACKED, NOW_MS + HALF)
        queue.consumer_can_take(taker)
        queue.deliver_ready(NOW_MS + HALF)
        assert use.share(NOW_MS + 2 * HALF) == pytest.approx(0.75)


def test_messages_that_wait_for_a_first_consumer_find_none_ready() -> None:
    queue = ModelHost().declare()
    queue.publish(Message(b"\0\1q", b"\0\0", b"body", True, NOW_MS), -1, NOW_MS)
    queue.add_consumer(Taker(queue))
    queue.deliver_ready(NOW_MS + HALF)
    assert queue.consumer_use.share(NOW_MS + HALF) == pytest.approx(0.5)
