"""The services of a vhost for its queues."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import Entry, EntryLedger, QueueEnd
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.settings import DeadLetterRule
from warrenmq.queues.turn import TurnShare
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.model.message import Message, MovedMessage, QueueLedger
from warrenmq.store.vhost_store import VhostStore

# Returns the unacked entries of a queue with seq ids in [first, end).
UnackedFinder = Callable[[QueueLedger, i64, i64], list[Entry]]


@mypyc_attr(allow_interpreted_subclasses=True)
class HandoverHost:
    """The services of a vhost for its queues: dead letters (`dead_letters.py`), new levels."""

    def begin_level(self, owner_id: i64, priority: i64) -> i64:
        """Store that a queue begins a level; returns the id of the level's ledger."""
        raise RuntimeError("abstract")

    def admits(self, share: TurnShare) -> bool:
        """Whether there is room for more; if not, `share` gets a turn when there is."""
        raise RuntimeError("abstract")

    def take(self, entry: Entry, reason: i64, rule: DeadLetterRule) -> None:
        """Hand over an unacked entry that leaves its queue for `reason`."""
        raise RuntimeError("abstract")

    def take_refused(self, queue: QueueEnd, message: Message, rule: DeadLetterRule) -> None:
        """Publish a message that `queue` has refused."""
        raise RuntimeError("abstract")

    def takers(
        self, queues: list[MessageTaker], message: Message, now_ms: i64
    ) -> list[MessageTaker]:
        """The queues among `queues` that take `message`, a copy of a message that is handed over.

        Publishes the dead letters of the others at once: the journal must have them when it has
        the copy, after which a start no longer looks for the original.
        """
        raise RuntimeError("abstract")

    def move_refused(
        self, queue: MessageTaker, copy: MovedMessage, now_ms: i64
    ) -> MovedMessage | None:
        """Publish the dead letter of `copy` instead of it, if `queue`, its only one, refuses it.

        Returns what was published, with the origin of `copy`: one record says where the message is
        and that it has moved. None: nothing was published.
        """
        raise RuntimeError("abstract")


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
        # The ledgers of all queues and their levels, by id.
        self.ledgers: dict[int, EntryLedger] = {}
        # Open channels, in the order in which they were opened.
        self.channels: dict[FlowHost, None] = {}
        # One finder for each keeper of unacked entries that is neither a channel nor a group.
        self.unacked_finders: list[UnackedFinder] = []
        # Finds what reader groups have reserved. Set once, with the vhost.
        self.reserved_finder: UnackedFinder | None = None
        # Functions that are called when contents of unacked entries are lost; reader groups and
        # sinks forget these entries.
        self.loss_watchers: list[Callable[[QueueLedger, list[Entry]], None]] = []
        # Finds the parts of reader groups in a queue, and takes those that the master of a copy
        # tells: `reader_parts` and `take_reader_parts`. Set once, with the vhost.
        self.parts_finder: Callable[[QueueLedger], list[ReaderPart]] | None = None
        self.parts_taker: Callable[[QueueLedger, list[ReaderPart]], bool] | None = None
        # Set once, before the first queue.
        self.handovers: HandoverHost | None = None
        self._node: NodeServices = node
        self._store: VhostStore = store

    def backing(self, ledger_id: i64) -> PagedQueue | None:
        """The queue, or the level of a queue, whose ledger has this id."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return None
        queue = ledger.queue
        return queue.backing_of(ledger) if isinstance(queue, LeveledQueue) else None

    def forget(self, queue: LeveledQueue) -> None:
        """Forget a queue that is deleted."""
        self.queues_by_id.pop(queue.id, None)
        for backing in queue.backings():
            self.ledgers.pop(backing.ledger.queue_id, None)

    def open_store(self, ledger: EntryLedger, is_durable: bool) -> QueueStore:
        """See QueueHost."""
        self.ledgers[ledger.queue_id] = ledger
        return self._store.add_queue(ledger, is_durable)

    def expect_timer(self, ledger: QueueLedger) -> None:
        """See QueueHost."""
        queue = self.ledgers[ledger.queue_id].queue
        if isinstance(queue, Queue) and not queue.is_hidden:
            self._node.timed_queues[queue] = None

    def new_level(self, ledger: QueueLedger, priority: i64) -> i64:
        """See QueueHost."""
        assert self.handovers is not None
        return self.handovers.begin_level(ledger.queue_id, priority)

    def admits_dead_letter(self, share: TurnShare) -> bool:
        """See QueueHost."""
        assert self.handovers is not None
        return self.handovers.admits(share)

    def dead_letter(self, entry: Entry, reason: i64, rule: DeadLetterRule) -> None:
        """See QueueHost."""
        assert self.handovers is not None
        self.handovers.take(entry, reason, rule)

    def dead_letter_refused(self, queue: QueueEnd, message: Message, rule: DeadLetterRule) -> None:
        """See QueueHost."""
        assert self.handovers is not None
        self.handovers.take_refused(queue, message, rule)

    def wake(self) -> None:
        """See TurnShares."""
        self._node.wake()

    def on_unacked_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """See QueueHost."""
        for watcher in self.loss_watchers:
            watcher(ledger, lost)

    def find_unacked(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """See QueueHost."""
        found = self.find_unreserved(ledger, first, end)
        if self.reserved_finder is not None:
            found.extend(self.reserved_finder(ledger, first, end))
        return found

    def reader_parts(self, ledger: QueueLedger) -> list[ReaderPart]:
        """See QueueHost."""
        assert self.parts_finder is not None
        return self.parts_finder(ledger)

    def take_reader_parts(self, ledger: QueueLedger, parts: list[ReaderPart]) -> bool:
        """See QueueHost."""
        assert self.parts_taker is not None
        return self.parts_taker(ledger, parts)

    def find_unreserved(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The unacked entries in [first, end) that no reader group has reserved."""
        found: list[Entry] = []
        for channel in self.channels:
            channel.collect_unacked(ledger, first, end, found)
        for find in self.unacked_finders:
            found.extend(find(ledger, first, end))
        return found
