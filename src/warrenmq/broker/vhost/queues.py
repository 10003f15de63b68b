"""The queues and exchanges of a virtual host, and the storing of their definitions.

The router finds queues by name, the journal finds them by id. A durable definition goes to the
metadata in the same group commit as the messages that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.limits import VhostLimits
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteQueue,
    PutQueuePart,
    PutVhost,
)
from warrenmq.broker.definitions.removal_changes import delete_binding, removal_changes
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.event_listener import INTERNAL_USER
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.broker.policies.vhost_policies import VhostPolicies
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.broker.vhost.pauses import pause_key
from warrenmq.broker.vhost.queue_host import VhostQueueHost
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Consumer
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.stale_entry import StaleEnd
from warrenmq.routing.equivalence import resource_text
from warrenmq.routing.exchange import Exchange
from warrenmq.routing.router import RemovedBindings, Router
from warrenmq.store.journal.change_sets import ChangeSet
from warrenmq.store.journal.journal import Journal
from warrenmq.store.vhost_store import VhostStore

# Bindings of a deleted queue that go in the same decision.
_DECIDED_BINDINGS_MAX: Final = 100
# Tries of a router (`Exchange.tried`) that take as long as one step.
_TRIED_A_STEP: Final = 8


class VhostQueues:
    """The queues of one vhost of `node`. `id` names its directory; clients use `name`."""

    def __init__(self, node: NodeServices, name: bytes, vhost_id: i64, store: VhostStore) -> None:
        self.node: NodeServices = node
        self.name: bytes = name
        # The stored definition, with what people see of the vhost.
        self.definition: PutVhost = PutVhost(name, vhost_id)
        self.store: VhostStore = store
        self.journal: Journal = store.journal
        self.host: VhostQueueHost = VhostQueueHost(node, store)
        self.router: Router = Router(node.random_bytes)
        # Steps (`flow/publish_turns.py`) of all routes so far: one for each queue found, and those
        # that it took to find them.
        self.route_steps: i64 = 0
        self.queues: dict[bytes, Queue] = {}
        # Queues that live on other nodes of the cluster.
        self.remote_queues: dict[bytes, RemoteQueue] = {}
        self.policies: VhostPolicies = VhostPolicies(self.router, node.wake)
        self.limits: VhostLimits = VhostLimits()
        # The names of paused queues, by the key of the life that is paused (`pauses.py`).
        self.pauses: dict[str, bytes] = {}
        # Exclusive queues by owner (their connection) and id.
        self._exclusive: dict[object, dict[int, Queue]] = {}
        # Channels that consume direct replies, by the name that replies are sent to.
        self.reply_channels: dict[bytes, FlowHost] = {}
        # Functions called for each deleted queue, as watcher(queue, message_count, now_ms): reader
        # groups let go of the queue and its reserved messages.
        self.deletion_watchers: list[Callable[[Queue, int, int], None]] = []
        # Functions called for each hidden copy that begins to serve clients, as
        # watcher(queue, is_complete), before any of them gets a message: reader groups go on.
        self.take_over_watchers: list[Callable[[Queue, bool], None]] = []
        # Functions called for each hidden copy that is discarded.
        self.discard_watchers: list[Callable[[Queue], None]] = []
        # New exchanges, queues and bindings that are not stored yet, with the change set that
        # stores each.
        self.unstored: dict[object, ChangeSet] = {}

    def define(self, definition: PutVhost) -> None:
        """Put a changed definition of the vhost in force."""
        is_changed = definition.is_tracing != self.definition.is_tracing
        self.definition = definition
        if is_changed:
            # Channels resolve their routes again, and see then whether messages are traced.
            self.router.version += 1
            for channel in self.host.channels:
                channel.set_tracing(definition.is_tracing)

    @property
    def id(self) -> i64:
        """The number that names the vhost's directory."""
        return self.definition.id

    @property
    def queues_by_id(self) -> dict[int, Queue]:
        """All queues, those of stages too, by id."""
        return self.host.queues_by_id

    # -- texts -------------------------------------------------------------------------------------

    def queue_text(self, name: bytes) -> str:
        """Text for errors: `queue 'q' in vhost '/'`."""
        return resource_text("queue", name, self.name)

    def exchange_text(self, name: bytes) -> str:
        """Text for errors: `exchange 'x' in vhost '/'`."""
        return resource_text("exchange", name, self.name)

    # -- routing -----------------------------------------------------------------------------------

    def route(
        self,
        exchange: Exchange,
        routing_keys: list[bytes],
        headers: bytes,
        properties: bytes = b"",
        waits: list[Exchange] | None = None,
    ) -> list[MessageTaker]:
        """The queues that a message is routed to, each once; see `Router.route`."""
        router = self.router
        tried = router.tried
        found = router.route(exchange, routing_keys, headers, properties, waits)
        self.route_steps += len(found) + (router.tried - tried) // _TRIED_A_STEP
        return [destination for destination in found if isinstance(destination, MessageTaker)]

    def taker(self, name: bytes) -> MessageTaker | None:
        """The queue `name`, on this node or another."""
        queue = self.queues.get(name)
        return queue if queue is not None else self.remote_queues.get(name)

    # -- definitions -------------------------------------------------------------------------------

    def begin_level(self, owner_id: i64, priority: i64) -> i64:
        """Store that a queue begins a level; returns the id of the level's ledger."""
        ledger_id = self.node.next_queue_id()
        if self.queues_by_id[owner_id].durable:
            self.add_part(PutQueuePart(self.name, ledger_id, owner_id, priority))
        return ledger_id

    def add_part(self, part: PutQueuePart) -> None:
        """Store a new part of a queue; no batch with its messages is durable before that."""
        self.store_changes([part], True).is_needed_by_records = True

    def announce(self, event: str, subject: object, user: bytes = INTERNAL_USER) -> None:
        """Tell the listener, if there is one, of an event that concerns `subject`."""
        if self.node.events is not None:
            self.node.events(event, subject, self.name, user)

    def forget(self, removed: RemovedBindings, user: bytes = INTERNAL_USER) -> list[Change]:
        """The changes for the metadata after the router has removed bindings and exchanges."""
        if self.node.events is not None:
            for binding in removed.bindings:
                self.announce("binding.deleted", binding, user)
            for exchange in removed.exchanges:
                self.announce("exchange.deleted", exchange, user)
        return removal_changes(self.name, removed, self.node.shared is not None)

    def remove_queue(self, queue: Queue, now_ms: i64, user: bytes = INTERNAL_USER) -> list[Change]:
        """Delete a queue with its messages and bindings; returns the changes for the metadata.

        The queue's consumers are cancelled. `user` asks for it.
        """
        del self.queues[queue.name]
        self.host.forget(queue)
        owner = queue.definition.owner
        if owner in self._exclusive:
            self._exclusive[owner].pop(queue.id, None)
        self.node.timed_queues.pop(queue, None)
        changes = self.forget(self.router.remove_queue(queue))
        if queue.durable or self.node.shared is not None:
            changes.append(DeleteQueue(self.name, queue.id, queue.name))
        message_count = queue.ready_count + queue.unacked_count
        for consumer in queue.delete(now_ms):
            consumer.on_queue_deleted()
        for watcher in self.deletion_watchers:
            watcher(queue, message_count, now_ms)
        self.node.counters.churn.queues_deleted += 1
        self.announce("queue.deleted", queue, user)
        return changes

    def delete_queue(self, queue: Queue, now_ms: i64) -> None:
        """Delete a queue without a client that waits: auto-deleted, exclusive or expired."""
        if queue.is_deleted or queue.is_hidden:
            return
        decider = self.decider_of(queue)
        source = queue.confirm_source
        if decider is None or source is None:
            self.add_changes(self.remove_queue(queue, now_ms))
        elif not source.is_leaving:
            source.is_leaving = True
            LeavingQueue(self, decider, queue, source).propose()

    def decider_of(self, queue: Queue) -> SharedDefinitions | None:
        """Who decides on the deletion of `queue` before anything of it is deleted; None: nobody.

        A queue that has copies on other nodes stays until the cluster has decided it. This node may
        be its master no more, without having heard of it, or die before it is decided: then a
        mirror goes on with all messages.
        """
        return None if queue.confirm_source is None else self.node.shared

    def deletion_of(self, queue: Queue) -> list[Change]:
        """The changes by which the cluster deletes a queue of this node with its bindings.

        Bindings beyond those that one decision takes stay, and are void.
        """
        changes: list[Change] = []
        for binding in queue.incoming:
            if len(changes) == _DECIDED_BINDINGS_MAX:
                break
            changes.append(delete_binding(self.name, binding))
        changes.append(DeleteQueue(self.name, queue.id, queue.name))
        return changes

    def delete_unused(self, queue: Queue, now_ms: i64) -> None:
        """Delete `queue` if it is to go with its last consumer, and has none any more."""
        if queue.definition.auto_delete and queue.demand.had_consumer and len(queue.consumers) == 0:
            self.delete_queue(queue, now_ms)

    def delete_followed(self, queue: Queue, now_ms: i64) -> list[Change]:
        """Delete a queue that the cluster has deleted; the node's own row of it goes too.

        Returns what has gone with it.
        """
        changes = self.remove_queue(queue, now_ms)
        rows: list[Change] = [change for change in changes if isinstance(change, DeleteQueue)]
        if queue.durable:
            self.store_changes(rows, True)
        return changes

    def delete_exclusive_queues(self, owner: object, now_ms: i64) -> None:
        """Delete the exclusive queues of `owner`, a connection that ends."""
        owned = self._exclusive.pop(owner, None)
        if owned is not None:
            for queue in owned.values():
                self.delete_queue(queue, now_ms)

    def commit(self, done: Callable[[bool, int], None]) -> None:
        """Call `done(ok, now_ms)` when all records appended so far are durable."""
        self.journal.when_durable(done)
        self.node.wake()

    def commit_with(
        self, changes: list[Change], done: Callable[[bool, int], None], is_kept: bool = False
    ) -> None:
        """Commit, and call `done` when `changes` are stored as well; both must succeed."""
        if len(changes) == 0:
            self.commit(done)
            return
        stored: list[bool] = []
        self.store_changes(changes, is_kept).callbacks.append(lambda ok, _now_ms: stored.append(ok))
        # The flusher stores definitions before records: `stored` has its value when `done` is
        # called.
        self.commit(lambda ok, now_ms: done(ok and stored[0], now_ms))

    def store_changes(
        self, changes: list[Change], is_kept: bool, is_patient: bool = False
    ) -> ChangeSet:
        """Store `changes` with the next group commit; `ChangeSet` explains flags and callbacks."""
        opaque: list[object] = list(changes)
        self.node.wake()
        return self.journal.definitions.add(opaque, is_kept, is_patient)

    def add_changes(self, changes: list[Change]) -> None:
        """Store changes that have happened, so they cannot be refused; no client waits for them."""
        if self.node.shared is not None:
            self.remove_shared(self.node.shared, changes, None)
        elif len(changes) > 0:
            self.store_changes(changes, True)

    def remove_shared(
        self,
        shared: SharedDefinitions,
        changes: list[Change],
        done: Callable[[str, int], None] | None,
    ) -> None:
        """Add the changes in a cluster, where `shared` removes the definitions that all nodes know.

        The node's own metadata has what this node alone knows, and its durable queues. `done`: see
        `SharedDefinitions.remove`.
        """
        own: list[Change] = []
        removals: list[Change] = []
        for change in changes:
            if isinstance(change, (DeleteQueue, DeleteExchange, DeleteBinding)):
                removals.append(change)
            # A queue of another node has the id 0. The rows that belong to this id here are those
            # of delayed messages.
            is_of_others = isinstance(change, DeleteQueue) and change.id == 0
            if not is_of_others and not isinstance(change, (DeleteExchange, DeleteBinding)):
                own.append(change)
        if len(own) > 0:
            self.store_changes(own, True)
        if len(removals) > 0 or done is not None:
            shared.remove(removals, done)

    def add_queue(
        self, definition: QueueDefinition, now_ms: i64, user: bytes = INTERNAL_USER
    ) -> Queue:
        """Create a queue, new or restored from the metadata; `user` asks for it.

        The caller has checked that the name is free, and stores the definition of a durable queue.
        """
        queue = Queue(definition, self.host, now_ms)
        self.queues[queue.name] = queue
        self.queues_by_id[queue.id] = queue
        if definition.owner is not None:
            self._exclusive.setdefault(definition.owner, {})[queue.id] = queue
        self.router.add_queue(queue)
        self.policies.on_queue(queue)
        self._obey_pauses(queue)
        if queue.settings.need_timer():
            self.node.timed_queues[queue] = None
        self.node.counters.churn.queues_created += 1
        self.announce("queue.created", queue, user)
        return queue

    # -- pauses ------------------------------------------------------------------------------------

    def put_pause(self, key: str, name: bytes) -> None:
        """Pause the life `key` of the queue `name`, here or when this node becomes its master."""
        self.pauses[key] = name
        self._on_pause(name)

    def clear_pause(self, key: str) -> None:
        """Resume the queue whose life `key` is paused."""
        name = self.pauses.pop(key, None)
        if name is not None:
            self._on_pause(name)

    def _on_pause(self, name: bytes) -> None:
        queue = self.queues.get(name)
        if queue is not None:
            self._obey_pauses(queue)
            self.node.wake()

    def _obey_pauses(self, queue: Queue) -> None:
        is_paused = len(self.pauses) > 0 and pause_key(queue.definition) in self.pauses
        if is_paused != queue.is_paused:
            queue.set_paused(is_paused)

    # -- copies of queues --------------------------------------------------------------------------

    def add_hidden_queue(self, definition: QueueDefinition, now_ms: i64) -> Queue:
        """Create a copy of a queue whose master is another node, new or restored; see `is_hidden`.

        The caller stores the definition of a durable queue.
        """
        queue = Queue(definition, self.host, now_ms)
        queue.begin_hidden()
        self.queues_by_id[queue.id] = queue
        return queue

    def remove_hidden_queue(self, queue: Queue, now_ms: i64) -> None:
        """Delete a hidden copy with its messages, and its row in the node's own metadata."""
        assert queue.is_hidden
        for watcher in self.discard_watchers:
            watcher(queue)
        self.host.forget(queue)
        queue.delete(now_ms)
        if queue.durable:
            self.store_changes([DeleteQueue(self.name, queue.id, queue.name)], True)

    def set_confirm_source(self, queue: Queue, source: ConfirmSource | None) -> None:
        """Let confirms of publishes to `queue` wait for `source`, None: for the journal only."""
        queue.confirm_source = source
        # Channels resolve their routes again, and learn whether a queue has a source.
        self.router.version += 1

    # -- queues of other nodes ---------------------------------------------------------------------

    def new_remote_queue(
        self, definition: QueueDefinition, node: bytes, epoch: i64 = 0
    ) -> RemoteQueue:
        """The object that stands for the queue of `definition` while `node` leads it in `epoch`."""
        return RemoteQueue(definition, self.name, self.node.remote_node(node), epoch)

    def add_remote_queue(
        self, definition: QueueDefinition, node: bytes, epoch: i64 = 0
    ) -> RemoteQueue:
        """Make the queue of `definition`, which lives on `node`, known here; its name is free."""
        queue = self.new_remote_queue(definition, node, epoch)
        self.remote_queues[queue.name] = queue
        self.router.add_queue(queue)
        self.policies.on_queue(queue)
        self.announce("queue.created", queue)
        return queue

    def remove_remote_queue(self, queue: RemoteQueue, now_ms: i64) -> RemovedBindings:
        """Forget a queue of another node that is deleted; returns the bindings that go with it."""
        del self.remote_queues[queue.name]
        removed = self.router.remove_queue(queue)
        self.forget(removed)
        queue.delete(now_ms)
        self.announce("queue.deleted", queue)
        return removed

    def delete_abandoned(self, queue: RemoteQueue, now_ms: i64) -> list[Change]:
        """Delete a queue whose node is down or gone; returns the changes for the cluster."""
        changes: list[Change] = [DeleteQueue(self.name, 0, queue.name)]
        removed = self.remove_remote_queue(queue, now_ms)
        changes.extend(removal_changes(self.name, removed, True))
        return changes

    # -- queues that move --------------------------------------------------------------------------

    def replace_taker(
        self, old: MessageTaker, new: MessageTaker, now_ms: i64, is_complete: bool = True
    ) -> None:
        """Let `new` stand for the queue of `old`, as its master has moved; both have one birth.

        Bindings stay, and consumers of this node's clients go along. A queue of this node that is
        replaced becomes a hidden copy, and takes back what was unacked without settling it. A
        hidden copy that takes over serves clients from the next turn on; unless it `is_complete`,
        it may lack messages of the last master. For a `new` queue of another node, `keep_consumers`
        and `epoch` are set before.
        """
        assert old.name == new.name and old.definition.birth == new.definition.birth
        self.router.replace_queue(old, new)
        old.replaced_by = new
        new.replaced_by = None
        consumers: list[Consumer] = []
        if isinstance(old, Queue):
            consumers = self._hide(old, now_ms)
        elif isinstance(old, RemoteQueue):
            del self.remote_queues[old.name]
            consumers = old.leave_home(now_ms)
        for consumer in consumers:
            consumer.queue = new
        if isinstance(new, Queue):
            self._unhide(new, consumers, now_ms, is_complete)
        elif isinstance(new, RemoteQueue):
            self.remote_queues[new.name] = new
            self.policies.on_queue(new)
            for consumer in consumers:
                new.take_over(consumer)
            new.subscribe()
        if isinstance(old, RemoteQueue):
            for late in old.take_late():
                new.settle_stale(late.level, late.seq, late.epoch, late.reason, now_ms)
        elif isinstance(old, Queue):
            old.end_hiding(now_ms)

    def _hide(self, queue: Queue, now_ms: i64) -> list[Consumer]:
        """Make `queue` a hidden copy; returns the consumers of this node's clients that stay."""
        del self.queues[queue.name]
        self.node.timed_queues.pop(queue, None)
        end = StaleEnd(queue)
        message_count = queue.ready_count + queue.unacked_count
        consumers = [consumer for consumer in queue.hide() if consumer.on_queue_moved()]
        for backing in queue.backings():
            ledger = backing.ledger
            entries = backing.find_unacked(0, ledger.next_seq)
            if len(entries) == 0:
                continue
            level = queue.level_of(ledger)
            for channel in self.host.channels:
                channel.replace_unacked(ledger, level, end)
            # Holders that are no channels forget the entries, which the queue has back.
            for forget in self.host.loss_watchers:
                forget(ledger, entries)
            backing.requeue(entries, now_ms)
        for watcher in self.deletion_watchers:
            # Readers find the queue gone. It is not: their memberships must not end as if it were.
            watcher(queue, max(message_count, 1), now_ms)
        return consumers

    def _unhide(
        self, queue: Queue, consumers: list[Consumer], now_ms: i64, is_complete: bool
    ) -> None:
        """Let a hidden copy serve clients, and `consumers` that want to be its own."""
        queue.unhide(now_ms)
        for watcher in self.take_over_watchers:
            watcher(queue, is_complete)
        self.queues[queue.name] = queue
        self.policies.on_queue(queue)
        self._obey_pauses(queue)
        if queue.settings.need_timer() or queue.has_expiring:
            self.node.timed_queues[queue] = None
        for consumer in consumers:
            if queue.admits_consumer(consumer.exclusive):
                queue.add_consumer(consumer)
            else:
                consumer.is_cancelled = True
                consumer.on_queue_deleted()


class LeavingQueue:
    """The deletion of a mirrored queue that nobody uses, until the cluster has decided it.

    A proposal that was not answered may be carried out later, so it cannot be taken back: it is
    repeated, and whoever wants to use the queue meanwhile waits, or is refused.
    """

    def __init__(
        self, queues: VhostQueues, decider: SharedDefinitions, queue: Queue, source: ConfirmSource
    ) -> None:
        self._queues: VhostQueues = queues
        self._decider: SharedDefinitions = decider
        self._queue: Queue = queue
        self._source: ConfirmSource = source

    def propose(self) -> None:
        """Let the cluster decide."""
        self._decider.propose(self._queues.deletion_of(self._queue), self.on_decided)

    def on_decided(self, failure: str, now_ms: int) -> None:
        """Look again: the queue is deleted already if the cluster has agreed.

        If its group has changed, no earlier proposal counts any more.
        """
        queue = self._queue
        source = self._source
        waits = source.leaving_waits
        source.leaving_waits = []
        if failure and not queue.is_deleted and queue.confirm_source is source:
            self.propose()
            for wait in waits:
                wait(failure, now_ms)
            return
        source.is_leaving = False
        for wait in waits:
            wait("", now_ms)
        self._queues.delete_unused(queue, now_ms)
