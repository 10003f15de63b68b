"""What the queues of a vhost ask of it."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.flow.channel_side import ChannelSide
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.queue_host import QueueHost
from warrenmq.store.message import QueueLedger
from warrenmq.store.queue_store import QueueStore
from warrenmq.store.vhost_store import VhostStore


class VhostQueueHost(QueueHost):
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
        self.unacked_finders: list[Callable[[QueueLedger, i64, i64], list[Entry]]] = []
        # Told of unacked messages of a queue whose contents cannot be had: reader groups forget them.
        self.loss_watchers: list[Callable[[QueueLedger, list[Entry]], None]] = []
        self._node: NodeServices = node
        self._store: VhostStore = store

    def open_store(self, ledger: QueueLedger, is_durable: bool) -> QueueStore:
        """The store of a new queue."""
        return self._store.add_queue(ledger, is_durable)

    def expect_timer(self, ledger: QueueLedger) -> None:
        """The broker's timer must look at the queue of `log` from now on: messages in it expire."""
        self._node.timed_queues[self.queues_by_id[ledger.queue_id]] = None

    def wake(self) -> None:
        """There will be something to do at the end of this turn."""
        self._node.wake()

    def on_out_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """The contents of these unacked entries cannot be had; they are settled, and a reader group that has them forgets
        them."""
        for watcher in self.loss_watchers:
            watcher(ledger, lost)

    def find_out(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue with seq ids in [first, end), whoever has them, in any order."""
        found: list[Entry] = []
        for channel in self.channels:
            channel.collect_out(ledger, first, end, found)
        for held in self.unacked_finders:
            found.extend(held(ledger, first, end))
        return found
