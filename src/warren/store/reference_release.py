"""What a deleted queue leaves in its index: references to contents, which are given up batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from warren.store.jobs import LoadDone
from warren.store.message import Position

if TYPE_CHECKING:
    from warren.store.queue_store import QueueStore

# References of a deleted queue that are given up at a time.
RELEASE_BATCH: Final = 2048


class ReferenceRelease(LoadDone):
    """Gives up the references in the index of a deleted queue, batch by batch."""

    def __init__(self, queue: QueueStore) -> None:
        self.queue: QueueStore = queue

    def go_on(self, from_seq: i64) -> None:
        """Release what is in the index from `from_seq` on."""
        self.queue.load_positions(from_seq, self.queue.log.indexed_upto, RELEASE_BATCH, self)

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
        store = self.queue.store
        for position in positions:
            self.queue.settle(position, store.now_ms)
        if next_seq < self.queue.log.indexed_upto:
            self.go_on(next_seq)
        else:
            store.drop_queue(self.queue)
