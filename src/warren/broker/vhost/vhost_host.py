"""What the queues of a vhost ask of it."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warren.broker.flow.channel_side import ChannelSide
from warren.broker.vhost.node_services import NodeServices
from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.queues.queue_host import QueueHost
from warren.store.message import QueueLog
from warren.store.queue_store import QueueStore
from warren.store.vhost_store import VhostStore


class VhostHost(QueueHost):
    """Answers for one vhost of `node`, with its `store`."""

    def __init__(self, node: NodeServices, store: VhostStore) -> None:
        settings = store.settings
        super().__init__(
            node.memory_account,
            settings.embed_below,
            node.settings.msg_store_io_batch_size,
            settings.segment_entries,
        )
        self.queues_by_id: dict[int, Queue] = {}
        # Who may have messages unacked: open channels, and others by what they hold of a queue in a range of seq ids.
        self.channels: dict[ChannelSide, None] = {}
        self.held_entries: list[Callable[[QueueLog, i64, i64], list[Entry]]] = []
        # Told of unacked messages of a queue whose contents cannot be had: reader groups forget them.
        self.loss_watchers: list[Callable[[QueueLog, list[Entry]], None]] = []
        self._node: NodeServices = node
        self._store: VhostStore = store

    def open_store(self, log: QueueLog, is_durable: bool) -> QueueStore:
        """The store of a new queue."""
        return self._store.add_queue(log, is_durable)

    def expect_timer(self, log: QueueLog) -> None:
        """The broker's timer must look at the queue of `log` from now on: messages in it expire."""
        self._node.timed_queues[self.queues_by_id[log.queue_id]] = None

    def wake(self) -> None:
        """There will be something to do at the end of this turn."""
        self._node.wake()

    def on_out_lost(self, log: QueueLog, lost: list[Entry]) -> None:
        """The contents of these unacked entries cannot be had; they are settled, and a reader group that has them forgets
        them."""
        for watcher in self.loss_watchers:
            watcher(log, lost)

    def find_out(self, log: QueueLog, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue with seq ids in [first, end), whoever has them, in any order."""
        found: list[Entry] = []
        for channel in self.channels:
            channel.collect_out(log, first, end, found)
        for held in self.held_entries:
            found.extend(held(log, first, end))
        return found
