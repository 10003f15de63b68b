"""A virtual host: its queues with their store, its turns, and its recovery at start."""

from __future__ import annotations

import logging
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.limits import VHOST_LIMITS
from warrenmq.broker.definitions.metadata import PutQueue, PutQueuePart
from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.broker.vhost.handovers.dead_letters import DeadLetters
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.handovers.handovers import Handovers
from warrenmq.broker.vhost.loss_log import LossLog
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE, paused_name
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.readers import VhostReaders
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.broker.vhost.store_host import VhostLossReport, VhostStoreHost
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.figures import update_debt
from warrenmq.store.recovery import JournalReplay, RecoveredQueue
from warrenmq.store.vhost_store import VhostStore
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.startup")

# Interval between two counts of the store's debt (ms).
_DEBT_INTERVAL_MS: Final = 1000


class Vhost(VhostQueues):
    """One vhost of a node, with its queues, its store and its sinks."""

    def __init__(self, node: NodeServices, name: bytes, vhost_id: i64, store: VhostStore) -> None:
        super().__init__(node, name, vhost_id, store)
        self.readers: VhostReaders = VhostReaders(self)
        # Losses that are not logged yet.
        self.losses: LossLog = LossLog(name)
        delayed = DelayedMessages(self, Handovers(self))
        self.dead_letters: DeadLetters = DeadLetters(self, delayed)
        self.host.handovers = self.dead_letters
        # Sinks and stages. The queues of stages are in `queues_by_id` only.
        self.receipts: Receipts = Receipts(self)
        self.staging: Staging = Staging(self, delayed, self.receipts)
        # Sum of the sealed and the finished batches at the last call of `on_sealed`.
        self._batches: i64 = 0
        self._debt_at_ms: i64 = 0
        # Generation of the last checkpoint that an event told of; -1 until the first look at it.
        self._told_generation: i64 = -1
        store.set_host(VhostStoreHost(self.host), VhostLossReport(self.host, self.losses))

    @property
    def delayed(self) -> DelayedMessages:
        """The messages that wait at delayed exchanges."""
        return self.dead_letters.delayed

    # -- start-up ----------------------------------------------------------------------------------

    def restore_queue(self, definition: PutQueue, now_ms: i64) -> Queue:
        """Create a durable queue from its definition; it is empty until `restore_messages`.

        A copy of a mirrored queue is hidden.
        """
        settings = parse_arguments(definition.arguments, self.queue_text(definition.name))
        restored = QueueDefinition(
            definition.name,
            definition.id,
            definition.durable,
            definition.auto_delete,
            None,
            definition.arguments,
            settings,
            definition.birth,
        )
        if definition.group:
            return self.add_hidden_queue(restored, now_ms)
        return self.add_queue(restored, now_ms)

    def restore_part(self, part: PutQueuePart) -> bool:
        """Restore a part of a queue without its messages; nothing if the queue is deleted.

        False: the definition of the part, or of its queue, is damaged.
        """
        if part.owner == 0:
            if part.number in self.delayed.buckets:
                return False
            self.delayed.restore(part.number, part.id)
            return True
        queue = self.queues_by_id.get(part.owner)
        return queue is None or queue.restore_level(part.number, part.id)

    def restore_messages(
        self, replay: JournalReplay, next_queue_id: i64, unusable_ids: set[int], now_ms: i64
    ) -> list[RecoveredQueue]:
        """Give the recovered messages to their queues; returns the messages without a queue.

        Returned are messages of queues that the metadata does not know, or whose definition is
        damaged (`unusable_ids`): the caller must keep them aside (W23). Any other unknown id below
        `next_queue_id` belongs to a deleted queue.
        """
        self.staging.restore_moved(replay.moved)
        self.receipts.restore_moved(replay.moved)
        orphans: list[RecoveredQueue] = []
        for queue_id, recovered in replay.queues.items():
            backing = self.host.backing(queue_id)
            if backing is not None:
                self._restore_backing(backing, recovered, replay.is_clean)
            elif queue_id >= next_queue_id or queue_id in unusable_ids:
                if len(recovered.positions) > 0:
                    orphans.append(recovered)
                self.store.forget_queue(recovered, now_ms)
            else:
                self.store.adopt_deleted(recovered, now_ms)
        self.receipts.restore_splits()
        for queue_id, files in replay.moved.items():
            alive = {seq: file for seq, file in files.items() if replay.is_alive(queue_id, seq)}
            is_origin = queue_id in self.staging.stages or self.receipts.has_book(queue_id)
            if not is_origin and len(alive) > 0:
                self.delayed.handovers.restore_moved(queue_id, alive, now_ms)
        return orphans

    def _restore_backing(
        self, backing: PagedQueue, recovered: RecoveredQueue, is_clean: bool
    ) -> None:
        ledger = backing.ledger
        queue = ledger.queue
        assert isinstance(queue, LeveledQueue)
        self.store.adopt(backing.store, recovered)
        index = ledger.index
        if index is not None:
            first = (
                index.segments[0].number * index.segment_entries if len(index.segments) > 0 else 0
            )
            upto = ledger.indexed_upto
            count = index.live_count(0, upto)
            live_bytes: i64 = 0
            for segment in index.segments:
                if segment.entries > 0:
                    stored = segment.size_bytes + segment.referred_bytes
                    live_bytes += stored * segment.live // segment.entries
            may_expire = queue.settings.message_ttl_ms != NO_LIMIT
            backing.restore_delta(first, upto, count, live_bytes, may_expire)
        backing.restore(queue, recovered.in_order(), is_clean)
        if queue.settings.limit is not None:
            # Messages that the full queue dropped before the start may be there again.
            backing.on_arrival()

    # -- parameters --------------------------------------------------------------------------------

    def put_parameter(self, component: str, name: str, value: str) -> None:
        """Put a stored parameter in force; one that nobody could have set is skipped."""
        try:
            if component == VHOST_LIMITS:
                self.limits.put(value)
            elif component == QUEUE_PAUSE:
                self.put_pause(name, paused_name(value))
            else:
                self.policies.put(component, name, value)
        except ValueError as error:
            logger.error(
                "vhost '%s': skipped %s '%s': %s", name_text(self.name), component, name, error
            )

    def delete_parameter(self, component: str, name: str) -> None:
        """Take a deleted parameter out of force."""
        if component == VHOST_LIMITS:
            self.limits.clear()
        elif component == QUEUE_PAUSE:
            self.clear_pause(name)
        else:
            self.policies.clear(component, name)

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants that hold between two operations.

        For tests and the simulator only, because the check walks over all messages.
        """
        for queue in self.queues_by_id.values():
            queue.check()
        for bucket in self.delayed.buckets.values():
            bucket.check()
        for channel in self.host.channels:
            channel.check()
        self.router.check()
        self.store.check()

    # -- turns -------------------------------------------------------------------------------------

    def advance(self, now_ms: i64) -> bool:
        """Run a slice of the queues' and the store's work at a turn's end; True if more is left."""
        # Positions of a sealed batch may move to the index. Positions that refer to stored contents
        # may move when these contents are on disk, which is when the batch is finished.
        batches = self.journal.last_sealed() + self.store.journal.last_finished()
        if batches != self._batches:
            self._batches = batches
            self.host.on_sealed()
        is_moving = self.staging.advance(now_ms)
        is_applying = self.policies.advance(now_ms)
        has_letters = self.dead_letters.advance(now_ms)
        has_due = self.delayed.advance(now_ms)
        self.delayed.handovers.advance(now_ms)
        self.host.end_turn(now_ms)
        self.store.advance(now_ms)
        self.losses.report(now_ms)
        if now_ms >= self._debt_at_ms:
            self._debt_at_ms = now_ms + _DEBT_INTERVAL_MS
            self.store.dead_files.is_disk_low = self.node.alarms.disk_since_ms != OFF
            self.receipts.sweep()
            self._tell_of_checkpoint()
            update_debt(self.store)
            if self.store.debt.payable_bytes > 0:
                # Only a checkpoint deletes files.
                self.store.checkpoints.want()
        memory = self.host.memory
        is_late = self.host.has_more and memory.ram_bytes > memory.stop_above
        waiting_bytes = self.store.jobs.lane.waiting_bytes
        self.node.disk_flow.store_waits(
            self.journal, waiting_bytes, self.store.debt.grown_bytes, is_late
        )
        return (
            self.store.has_more
            or is_moving
            or is_applying
            or has_letters
            or has_due
            or self.staging.mover.may_resume()
        )

    def _tell_of_checkpoint(self) -> None:
        """Announce the last checkpoint, once it is on disk."""
        generation = self.store.checkpoints.generation
        if generation != self._told_generation:
            if self._told_generation >= 0:
                self.announce("checkpoint.completed", {"generation": int(generation)})
            self._told_generation = generation
