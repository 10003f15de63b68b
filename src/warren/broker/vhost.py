"""A virtual host: its exchanges and queues, their journal, and what start-up brings back.

Queues are found by name through the router and by id through the journal. A definition that is durable goes to the
metadata in the same group commit as the messages that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from warren.broker.loss_log import LossLog
from warren.broker.metadata import Change, DeleteQueue, PutQueue
from warren.broker.staging import Staging
from warren.broker.store_owner import VhostLossReport, VhostStoreOwner
from warren.broker.topology import removal_changes
from warren.broker.vhost_host import VhostHost
from warren.queues.arguments import QueueArguments, parse_arguments
from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.routing.equivalence import resource_text
from warren.routing.exchange import Exchange
from warren.routing.router import Router
from warren.store.change_sets import ChangeSet
from warren.store.figures import look_at_debt
from warren.store.journal import Journal
from warren.store.message import QueueLog
from warren.store.recovery import JournalReplay, RecoveredQueue
from warren.store.vhost_store import VhostStore

if TYPE_CHECKING:
    from warren.broker.broker import Broker
    from warren.broker.channel import Channel
    from warren.broker.connection import Connection

# The debt of the store is counted so often (ms).
_DEBT_INTERVAL_MS: Final = 1000


class Vhost:
    """One vhost. `id` names its directory; `name` is what clients say."""

    def __init__(self, broker: Broker, name: bytes, vhost_id: i64, store: VhostStore) -> None:
        self.broker: Broker = broker
        self.name: bytes = name
        self.id: i64 = vhost_id
        self.store: VhostStore = store
        self.journal: Journal = store.journal
        # How many batches had been sealed, and finished, when the queues were told of it.
        self._batches: i64 = 0
        self._debt_at_ms: i64 = 0
        # What the log has not been told yet.
        self.losses: LossLog = LossLog(name)
        store.set_owner(VhostStoreOwner(self), VhostLossReport(self))
        self.host: VhostHost = VhostHost(self)
        self.router: Router = Router()
        self.queues: dict[bytes, Queue] = {}
        self.queues_by_id: dict[int, Queue] = {}
        # Those that go with a connection, by it and by id.
        self._exclusive: dict[object, dict[int, Queue]] = {}
        # Receivers of direct replies, by the name replies are sent to.
        self.reply_channels: dict[bytes, Channel] = {}
        # What reader groups hold of a queue, in a range of seq ids.
        self.held_entries: list[Callable[[QueueLog, i64, i64], list[Entry]]] = []
        # Told of unacked messages of a queue whose contents cannot be had: reader groups forget them.
        self.loss_watchers: list[Callable[[QueueLog, list[Entry]], None]] = []
        # Told of every queue that is deleted, how many ready messages it had, and the time: reader groups let go of what
        # they hold of it.
        self.deletion_watchers: list[Callable[[Queue, int, int], None]] = []
        # Exchanges, queues and bindings that are new and not stored yet, with the change sets that store them.
        self.unstored: dict[object, ChangeSet] = {}
        # Its queues are in `queues_by_id` only.
        self.staging: Staging = Staging(self)

    # -- texts -----------------------------------------------------------------------------------------------------

    def queue_text(self, name: bytes) -> str:
        """`queue 'q' in vhost '/'`."""
        return resource_text("queue", name, self.name)

    def exchange_text(self, name: bytes) -> str:
        """`exchange 'x' in vhost '/'`."""
        return resource_text("exchange", name, self.name)

    # -- routing ---------------------------------------------------------------------------------------------------

    def route(self, exchange: Exchange, routing_keys: list[bytes], headers: bytes) -> list[Queue]:
        """The queues a message goes to, each once."""
        return [
            destination
            for destination in self.router.route(exchange, routing_keys, headers)
            if isinstance(destination, Queue)
        ]

    # -- definitions -----------------------------------------------------------------------------------------------

    def declare_queue(
        self,
        name: bytes,
        durable: bool,
        auto_delete: bool,
        owner: Connection | None,
        arguments: QueueArguments,
        now_ms: i64,
    ) -> Queue:
        """Make a new queue; the caller has checked that the name is free, and persists it when durable."""
        return self._add_queue(
            name, self.broker.next_queue_id(), durable, auto_delete, owner, arguments, now_ms
        )

    def remove_queue(self, queue: Queue, now_ms: i64) -> list[Change]:
        """Delete a queue with its messages and bindings, cancel its consumers; returns the metadata changes."""
        del self.queues[queue.name]
        self.queues_by_id.pop(queue.id, None)
        if queue.owner in self._exclusive:
            self._exclusive[queue.owner].pop(queue.id, None)
        self.broker.timed_queues.pop(queue, None)
        changes = removal_changes(self.name, self.router.remove_queue(queue))
        if queue.durable:
            changes.append(DeleteQueue(self.name, queue.id))
        ready_count = queue.ready_count
        for consumer in queue.delete(now_ms):
            consumer.on_queue_deleted()
        for watcher in self.deletion_watchers:
            watcher(queue, ready_count, now_ms)
        return changes

    def delete_queue(self, queue: Queue, now_ms: i64) -> None:
        """Delete a queue nobody waits for: auto-deleted, exclusive, expired."""
        if not queue.is_deleted:
            self.add_changes(self.remove_queue(queue, now_ms))

    def delete_exclusive_queues(self, owner: Connection, now_ms: i64) -> None:
        """The owner's connection ends."""
        owned = self._exclusive.pop(owner, None)
        if owned is not None:
            for queue in owned.values():
                self.delete_queue(queue, now_ms)

    def commit(self, done: Callable[[bool, int], None]) -> None:
        """Call `done(ok, now_ms)` when everything journaled so far is durable."""
        self.journal.when_durable(done)
        self.broker.wake()

    def commit_with(
        self, changes: list[Change], done: Callable[[bool, int], None], is_kept: bool = False
    ) -> None:
        """Call `done(ok, now_ms)` when everything journaled so far is durable and `changes` are stored."""
        if len(changes) == 0:
            self.commit(done)
            return
        stored: list[bool] = []
        self.store_changes(changes, is_kept).callbacks.append(lambda ok, _now_ms: stored.append(ok))
        # Definitions are decided before records are.
        self.commit(lambda ok, now_ms: done(ok and stored[0], now_ms))

    def store_changes(self, changes: list[Change], is_kept: bool, is_patient: bool = False) -> ChangeSet:
        """Store `changes` with the next group commit; `ChangeSet` says what the two flags mean, and who is told."""
        opaque: list[object] = list(changes)
        self.broker.wake()
        return self.journal.definitions.add(opaque, is_kept, is_patient)

    def add_changes(self, changes: list[Change]) -> None:
        """Changes of definitions that say what has happened, and nobody waits for."""
        if len(changes) > 0:
            self.store_changes(changes, True)

    # -- start-up --------------------------------------------------------------------------------------------------

    def restore_queue(self, definition: PutQueue, now_ms: i64) -> Queue:
        """Bring back a durable queue from the metadata, still empty."""
        arguments = parse_arguments(definition.arguments, self.queue_text(definition.name))
        return self._add_queue(
            definition.name,
            definition.id,
            definition.durable,
            definition.auto_delete,
            None,
            arguments,
            now_ms,
        )

    def restore_messages(
        self, replay: JournalReplay, next_queue_id: i64, unusable_ids: set[int], now_ms: i64
    ) -> list[RecoveredQueue]:
        """Give what was recovered to the queues.

        Returns what belongs to queues the metadata never heard of, or whose definition is damaged (`unusable_ids`):
        those messages must be kept aside (W23). Other ids below `next_queue_id` that are gone belong to deleted queues.
        """
        self.staging.restore_moved(replay.moved)
        orphans: list[RecoveredQueue] = []
        for queue_id, recovered in replay.queues.items():
            queue = self.queues_by_id.get(queue_id)
            if queue is not None:
                self._restore_queue(queue, recovered, replay.is_clean)
            elif queue_id >= next_queue_id or queue_id in unusable_ids:
                if len(recovered.positions) > 0:
                    orphans.append(recovered)
                self.store.forget_positions(recovered, now_ms)
            else:
                self.store.adopt_deleted(recovered, now_ms)
        return orphans

    def _restore_queue(self, queue: Queue, recovered: RecoveredQueue, is_clean: bool) -> None:
        backing = queue.backing
        self.store.adopt(backing.store, recovered)
        index = queue.log.index
        if index is not None:
            first = index.segments[0].number * index.segment_entries if len(index.segments) > 0 else 0
            upto = queue.log.indexed_upto
            count = index.live_count(0, upto)
            live_bytes: i64 = 0
            for segment in index.segments:
                if segment.entries > 0:
                    live_bytes += segment.size_bytes * segment.live // segment.entries
            backing.restore_delta(first, upto, count, live_bytes)
        backing.restore(queue, recovered.in_order(), is_clean)

    def _add_queue(
        self,
        name: bytes,
        queue_id: i64,
        durable: bool,
        auto_delete: bool,
        owner: Connection | None,
        arguments: QueueArguments,
        now_ms: i64,
    ) -> Queue:
        queue = Queue(
            name,
            queue_id,
            durable,
            auto_delete,
            owner,
            arguments,
            self.host,
            now_ms,
        )
        self.queues[name] = queue
        self.queues_by_id[queue_id] = queue
        if owner is not None:
            self._exclusive.setdefault(owner, {})[queue_id] = queue
        self.router.add_queue(queue)
        if queue.has_timer():
            self.broker.timed_queues[queue] = None
        return queue

    # -- turns -----------------------------------------------------------------------------------------------------

    def advance(self, now_ms: i64) -> bool:
        """The end of a turn: what queues and store have to do, a slice of it; True when there is more to do."""
        # What was sealed may move; what refers to contents, when these are on disk.
        batches = self.journal.last_sealed() + self.store.journal.last_finished()
        if batches != self._batches:
            self._batches = batches
            self.host.on_sealed()
        is_moving = self.staging.advance(now_ms)
        self.host.end_turn(now_ms)
        self.store.advance(now_ms)
        self.losses.report(now_ms)
        if now_ms >= self._debt_at_ms:
            self._debt_at_ms = now_ms + _DEBT_INTERVAL_MS
            look_at_debt(self.store)
            if self.store.debt.payable_bytes > 0:
                # Only a checkpoint deletes files.
                self.store.checkpoints.want()
        memory = self.host.memory
        is_late = self.host.has_more and memory.ram_bytes > memory.stop_above
        waiting_bytes = self.store.jobs.lane.waiting_bytes
        self.broker.disk_flow.store_waits(self, waiting_bytes, self.store.debt.grown_bytes, is_late)
        return self.store.has_more or is_moving or self.staging.may_resume()

    def find_out(self, log: QueueLog, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue with seq ids in [first, end), whoever has them, in any order."""
        found: list[Entry] = []
        for connection in self.broker.connections:
            if connection.vhost is self:
                for channel in connection.channels.values():
                    channel.unacked.collect(log, first, end, found)
                    transaction = channel.transaction
                    if transaction is not None:
                        for settle in transaction.settles:
                            for entry in settle.entries:
                                if entry.log is log and first <= entry.seq < end:
                                    found.append(entry)
        for held in self.held_entries:
            found.extend(held(log, first, end))
        return found
