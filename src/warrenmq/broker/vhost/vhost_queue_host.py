"""The services of a vhost for its queues."""

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
    """Implements QueueHost for one vhost of `node` with its `store`."""

    def __init__(self, node: NodeServices, store: VhostStore) -> None:
        settings = store.settings
        super().__init__(
            node.memory_account,
            settings.embed_below,
            node.settings.msg_store_io_batch_size,
            settings.segment_entries,
        )
        self.queues_by_id: dict[int, Queue] = {}
        # Open channels, in the order in which they were opened.
        self.channels: dict[ChannelSide, None] = {}
        # Functions that return unacked entries of a queue in a range of seq ids: one for each
        # keeper of such entries that is not a channel.
        self.unacked_finders: list[Callable[[QueueLedger, i64, i64], list[Entry]]] = []
        # Functions that are called when contents of unacked entries are lost; reader groups and
        # sinks forget these entries.
        self.loss_watchers: list[Callable[[QueueLedger, list[Entry]], None]] = []
        self._node: NodeServices = node
        self._store: VhostStore = store

    def open_store(self, ledger: QueueLedger, is_durable: bool) -> QueueStore:
        """See QueueHost."""
        return self._store.add_queue(ledger, is_durable)

    def expect_timer(self, ledger: QueueLedger) -> None:
        """See QueueHost."""
        self._node.timed_queues[self.queues_by_id[ledger.queue_id]] = None

    def wake(self) -> None:
        """See TurnShares."""
        self._node.wake()

    def on_unacked_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """See QueueHost."""
        for watcher in self.loss_watchers:
            watcher(ledger, lost)

    def find_unacked(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """See QueueHost."""
        found: list[Entry] = []
        for channel in self.channels:
            channel.collect_unacked(ledger, first, end, found)
        for find in self.unacked_finders:
            found.extend(find(ledger, first, end))
        return found
