"""What a queue asks of the vhost it is in, and the share of each turn that the queues of a vhost get.

A queue that has something to do which takes long, or that waits for the end of the turn, is on the list `paging` once.
`work_off` calls those on the list in turn until they have taken the steps that a turn has for them; the others, and those
that have more to do, follow in the next turn, which `wake` asks for. So no queue holds up the others (G6, W19), and a
queue without anything to do is not looked at. What is left of the steps is for the journal's old files
(`broker/store_owner.py`).

A turn has TURN_STEPS, and more when much was published in it: such a turn is long anyway, and what comes in must be able
to leave memory as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from warren.queues.memory_account import MemoryAccount
from warren.queues.paging import MORE, WAIT_FOR_DISK, WAIT_FOR_SEAL

if TYPE_CHECKING:
    from warren.queues.entry import Entry
    from warren.queues.queue import Queue
    from warren.store.message import QueueLog
    from warren.store.queue_store import QueueStore

# Steps (see `paging.py`) that one turn has for the queues of one vhost, about a millisecond's worth; those that it has
# besides for each message that came in, twice what paging it takes; and the most it can have.
TURN_STEPS: Final = 1024
STEPS_A_MESSAGE: Final = 12
TURN_STEPS_MAX: Final = 8192
LOAD_BYTES: Final = 4194304
AHEAD_BYTES: Final = 1048576


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost:
    """The surroundings that the queues of one vhost share.

    `embed_below`: messages of this size (bytes) and more have their content in a content store, not in the index.
    `page_batch`: how many messages move between memory and disk together (C4).
    `segment_entries`: seq ids of one segment of an index.
    """

    def __init__(
        self, memory: MemoryAccount, embed_below: i64, page_batch: i64, segment_entries: i64
    ) -> None:
        self.embed_below: i64 = embed_below
        self.page_batch: i64 = page_batch
        self.segment_entries: i64 = segment_entries
        self.memory: MemoryAccount = memory
        # Content (bytes) that one load brings a reader group.
        self.load_bytes: i64 = LOAD_BYTES
        # Content (bytes) that one load reads ahead for consumers: everything else on the loop waits while it is decoded.
        self.ahead_bytes: i64 = AHEAD_BYTES
        # Queues in which something has happened in this turn, each once.
        self.touched: list[Queue] = []
        # Queues with something to do at the end of the turn, each at most once (`Queue.work`).
        self.paging: list[Queue] = []
        # In the last turn there was more to do than fitted.
        self.has_more: bool = False
        # Messages that the queues have taken since the last turn's end, and the steps that this one has left.
        self.arrived_count: i64 = 0
        self.steps_left: i64 = TURN_STEPS
        # Those that go on when something was sealed.
        self._waiting_for_seal: list[Queue] = []

    def on_sealed(self) -> None:
        """A batch of the journal was sealed: what was PENDING may move."""
        waiting = self._waiting_for_seal
        self._waiting_for_seal = []
        for queue in waiting:
            queue.ask_for_turn()

    def work_off(self, now_ms: i64) -> None:
        """The end of a turn."""
        listed = self.paging
        self.paging = []
        self.steps_left = min(TURN_STEPS + STEPS_A_MESSAGE * self.arrived_count, i64(TURN_STEPS_MAX))
        self.arrived_count = 0
        index: i64 = 0
        is_more = False
        waiting: list[Queue] = []
        while index < len(listed) and self.steps_left > 0:
            queue = listed[index]
            index += 1
            outcome = queue.work(now_ms)
            self.steps_left -= 1 + queue.worked_count
            if outcome == MORE:
                is_more = True
                waiting.append(queue)
            elif outcome == WAIT_FOR_DISK:
                waiting.append(queue)
            elif outcome == WAIT_FOR_SEAL and not queue.is_listed:
                self._waiting_for_seal.append(queue)
        rest = listed[index:]
        for queue in waiting:
            if not queue.is_listed:
                queue.is_listed = True
                rest.append(queue)
        self.paging = rest + self.paging
        touched = self.touched
        self.touched = []
        for queue in touched:
            queue.is_touched = False
            queue.memory.report(now_ms)
        self.has_more = is_more or index < len(listed)
        if self.has_more:
            self.wake()

    def open_store(self, log: QueueLog, is_durable: bool) -> QueueStore:
        """The store of a new queue."""
        raise RuntimeError("abstract")

    def expect_timer(self, queue: Queue) -> None:
        """The broker's timer must look at `queue` from now on: messages in it expire."""
        raise RuntimeError("abstract")

    def wake(self) -> None:
        """There will be something to do at the end of this turn."""
        raise RuntimeError("abstract")

    def on_out_lost(self, queue: Queue, lost: list[Entry]) -> None:
        """The contents of these unacked entries cannot be had; they are settled, and a reader group that has them forgets
        them."""
        raise RuntimeError("abstract")

    def find_out(self, queue: Queue, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of `queue` with seq ids in [first, end), whoever has them, in any order."""
        raise RuntimeError("abstract")
