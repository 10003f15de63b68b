"""The parts of a queue: one, or one for each level of a priority queue, with their figures.

Each level is a `PagedQueue` with a ledger of its own: a queue to the store and to the memory
monitor. A level begins with its first message, so a priority queue whose messages all have the same
priority costs what any other queue costs. All levels share the queue's consumers.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.backing.head_demand import HeadDemand
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Consumer, EntryLedger
from warrenmq.queues.hand_out_gate import CLOSED, OPEN, HandOutGate
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue_host import QueueHost
from warrenmq.store.model.message import QueueLedger


class PriorityLevels:
    """The levels of one queue: `base`, that of priority 0, and others up to `highest`."""

    def __init__(self, base: PagedQueue, highest: i64) -> None:
        self.highest: i64 = highest
        # The levels that have begun, the highest first.
        self.levels: list[PagedQueue] = [base]
        self._priorities: list[i64] = [0]
        self._by_priority: list[PagedQueue | None] = [None] * (highest + 1)
        self._by_priority[0] = base
        self._by_ledger: dict[int, PagedQueue] = {base.ledger.queue_id: base}

    @property
    def ready_count(self) -> i64:
        """Ready messages of all levels."""
        count: i64 = 0
        for level in self.levels:
            count += level.ready.count
        return count

    @property
    def body_bytes(self) -> i64:
        """Bytes of the bodies of all ready messages."""
        size: i64 = 0
        for level in self.levels:
            size += level.ready.body_bytes
        return size

    def find(self, priority: i64) -> PagedQueue | None:
        """The level of `priority`, at most `highest`; None if it has not begun."""
        return self._by_priority[priority]

    def add(self, priority: i64, level: PagedQueue) -> None:
        """Begin the level of `priority`."""
        place: i64 = 0
        while self._priorities[place] > priority:
            place += 1
        self.levels.insert(place, level)
        self._priorities.insert(place, priority)
        self._by_priority[priority] = level
        self._by_ledger[level.ledger.queue_id] = level

    def of_ledger(self, ledger: QueueLedger) -> PagedQueue:
        """The level whose messages `ledger` numbers."""
        return self._by_ledger[ledger.queue_id]

    def priority_of(self, ledger: QueueLedger) -> i64:
        """The priority of the level whose messages `ledger` numbers."""
        return self._priorities[self.levels.index(self._by_ledger[ledger.queue_id])]

    def head_level(self, lowest: PagedQueue) -> PagedQueue:
        """The highest level with a ready message, down to `lowest`; that one if there is none."""
        for level in self.levels:
            if level.ready.count > 0 or level is lowest:
                return level
        return lowest


@mypyc_attr(allow_interpreted_subclasses=True)
class LeveledQueue(MessageTaker):
    """The levels of a queue; `backing` is that of priority 0, the only one without priorities."""

    def __init__(self, definition: QueueDefinition, host: QueueHost) -> None:
        super().__init__(definition)
        self.id: i64 = definition.id
        traits = definition.settings.traits
        self.demand: HeadDemand = HeadDemand(traits.is_single_active, traits.is_quorum)
        self.backing: PagedQueue = PagedQueue(
            EntryLedger(definition.id, self),
            self.demand,
            definition.durable,
            self.settings.is_lazy,
            host,
        )
        # Until when this node is sure to be the master. `demand.gate` is the same one, but shut
        # while the queue is paused.
        self.gate: HandOutGate = OPEN
        # Consumers, basic.get and reader groups get nothing; see `Queue.set_paused`.
        self.is_paused: bool = False
        highest = traits.max_priority
        # None: the queue has no priorities.
        self.levels: PriorityLevels | None = (
            PriorityLevels(self.backing, highest) if highest > 0 else None
        )

    # -- the gate ----------------------------------------------------------------------------------

    def set_gate(self, gate: HandOutGate) -> None:
        """Hand out until `gate` says; the queue gets a turn, in case it lets messages out again."""
        self.gate = gate
        self.demand.gate = CLOSED if self.is_paused else gate
        self.resume_hand_outs()

    def resume_hand_outs(self) -> None:
        """Ask for a turn: the gate, which was shut, lets messages out again."""
        self.demand.is_shut = False
        for backing in self.backings():
            backing.on_arrival()

    # -- figures -----------------------------------------------------------------------------------

    @property
    def ledger(self) -> EntryLedger:
        """The ledger, which identifies this queue to the store and to its vhost."""
        return self.backing.ledger

    @property
    def next_seq(self) -> int:
        """Seq id that the next published message gets."""
        return self.backing.ledger.next_seq

    @property
    def ready_count(self) -> i64:
        """Messages that wait in the queue."""
        levels = self.levels
        return self.backing.ready.count if levels is None else levels.ready_count

    @property
    def ready_body_bytes(self) -> i64:
        """Bytes of the bodies of all ready messages."""
        levels = self.levels
        return self.backing.ready.body_bytes if levels is None else levels.body_bytes

    @property
    def unacked_count(self) -> i64:
        """Messages that are delivered or reserved and not settled yet."""
        count: i64 = 0
        for backing in self.backings():
            count += backing.unacked.count - backing.unacked.leaving_count
        return count

    @property
    def consumers(self) -> list[Consumer]:
        """The queue's consumers, the oldest first."""
        return self.demand.consumers

    @property
    def is_deleted(self) -> bool:
        return self.backing.is_deleted

    @property
    def exclusive_consumer(self) -> bool:
        """Whether one consumer has exclusive access to the queue."""
        consumers = self.demand.consumers
        return len(consumers) == 1 and consumers[0].exclusive

    @property
    def has_expiring(self) -> bool:
        """Whether a ready message may have a time of expiry."""
        for backing in self.backings():  # noqa: SIM110  # compiled, a generator costs more
            if backing.has_expiring:
                return True
        return False

    # -- long returns ------------------------------------------------------------------------------

    def begin_return(self) -> None:
        self.demand.return_count += 1

    def end_return(self) -> None:
        self.demand.return_count -= 1
        self.backing.on_arrival()

    # -- epochs ------------------------------------------------------------------------------------

    @property
    def epoch(self) -> i64:
        """The number of the cluster's last decision who leads the queue; 0: there was none."""
        return self.backing.ledger.epoch

    def begin_epoch(self, epoch: i64) -> bool:
        """Begin `epoch` with the next message of each level; see `PagedQueue.begin_epoch`.

        A crash may leave it begun in some levels; begun again, it begins in the others.
        """
        is_begun = False
        for backing in self.backings():
            is_begun = backing.begin_epoch(epoch) or is_begun
        return is_begun

    # -- levels ------------------------------------------------------------------------------------

    def backings(self) -> list[PagedQueue]:
        """The levels of the queue, the highest first; one unless it is a priority queue."""
        levels = self.levels
        return [self.backing] if levels is None else levels.levels

    def backing_of(self, ledger: QueueLedger) -> PagedQueue:
        """The level whose messages `ledger` numbers."""
        levels = self.levels
        return self.backing if levels is None else levels.of_ledger(ledger)

    def level_of(self, ledger: QueueLedger) -> i64:
        """The priority of the level whose messages `ledger` numbers."""
        levels = self.levels
        return 0 if levels is None else levels.priority_of(ledger)

    def level_at(self, priority: i64) -> PagedQueue | None:
        """The level of `priority`; None if it has not begun."""
        levels = self.levels
        if levels is None:
            return self.backing if priority == 0 else None
        return levels.find(priority) if 0 <= priority <= levels.highest else None

    def begin_level(self, priority: i64) -> PagedQueue | None:
        """The level of `priority`, which begins now if it has not; None: the queue has none."""
        levels = self.levels
        if levels is None:
            return self.backing if priority == 0 else None
        return self._level(levels, priority) if 0 <= priority <= levels.highest else None

    def restore_level(self, priority: i64, ledger_id: i64) -> bool:
        """Begin a level that an earlier run of the node began; False: the queue cannot have it."""
        levels = self.levels
        if (
            levels is None
            or not 0 < priority <= levels.highest
            or levels.find(priority) is not None
        ):
            return False
        self._begin_level(levels, priority, ledger_id)
        return True

    def _top(self) -> PagedQueue:
        """The level with the head of the queue."""
        levels = self.levels
        return self.backing if levels is None else levels.head_level(self.backing)

    def _head_level(self, lowest: PagedQueue) -> PagedQueue:
        """The level with the head of `lowest` and the levels above it."""
        levels = self.levels
        return self.backing if levels is None else levels.head_level(lowest)

    def _level(self, levels: PriorityLevels, priority: i64) -> PagedQueue:
        if priority > levels.highest:
            priority = levels.highest
        level = levels.find(priority)
        if level is not None:
            return level
        ledger_id = self.backing.host.new_level(self.backing.ledger, priority)
        level = self._begin_level(levels, priority, ledger_id)
        feed = self.backing.feed
        if feed is not None:
            # An earlier epoch may have used lower seq ids in this level, unknown to this node.
            epochs = self.backing.ledger.epochs
            if len(epochs) > 0:
                level.skip_to(epochs[-1][1])
            level.feed = feed.level_began(priority)
        level.begin_epoch(self.epoch)
        return level

    def _begin_level(self, levels: PriorityLevels, priority: i64, ledger_id: i64) -> PagedQueue:
        backing = self.backing
        level = PagedQueue(
            EntryLedger(ledger_id, self),
            self.demand,
            self.durable,
            self.settings.is_lazy,
            backing.host,
        )
        level.store.is_copy = backing.store.is_copy
        levels.add(priority, level)
        return level

    def follow_seqs(self) -> None:
        """Take the seq ids of a master from now on, and tell nobody what happens."""
        for backing in self.backings():
            backing.feed = None
            backing.store.is_copy = True

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants between two operations, for tests and the simulator."""
        for backing in self.backings():
            backing.check()
