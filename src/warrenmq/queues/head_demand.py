"""Who wants the head of a queue: its consumers, clients that get messages one by one, and reader groups that wait."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Consumer
from warrenmq.queues.waiting_consumers import ConsumerCircle

# A client that gets messages one by one counts as a consumer for so long after each (ms).
GET_DEMAND_MS: Final = 1000


class HeadDemand:
    """The demand for the messages of one queue. Times are those of the turns of the node (ms)."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        # The consumers that have room and wait for a message.
        self.circle: ConsumerCircle = ConsumerCircle()
        # Called once, when the head is there or the queue is empty, with the time.
        self.waiters: list[Callable[[int], None]] = []
        # Nothing is handed out until a reader group has taken what it held before the start.
        self.is_paused: bool = False
        # When somebody last asked for the head, and when the queue last had its share of a turn.
        self.wanted_ms: i64 = -GET_DEMAND_MS
        self.now_ms: i64 = 0

    def is_there(self) -> bool:
        """Does anybody want the head, now or soon?"""
        return (
            len(self.consumers) > 0
            or len(self.waiters) > 0
            or self.now_ms - self.wanted_ms < GET_DEMAND_MS
        )

    def has_taker(self) -> bool:
        """Is there anybody who could take the head at this moment?"""
        return self.circle.has_ready() or len(self.waiters) > 0

    def serve_waiters(self, now_ms: i64) -> None:
        """The head is there, or the queue is empty or deleted: tell those who wait. They look again, and may wait again."""
        waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            waiter(now_ms)
