"""Puts in force, on this node, what its cluster has decided, in the order of the decisions.

Every node follows the same decisions, so all know the same queues, exchanges and bindings. A queue
lives on one node, which makes it with an id of its own and stores the row that it needs to recover
it; for all others it is a remote queue. Each node of a mirrored queue's group has a copy of it,
with an id and a row of its own (`groups/group_host.py`).

A vhost opens and closes over some turns of the loop; decisions that come meanwhile wait.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import RUNNING
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeleteQueue,
    DeleteSink,
    DeleteVhost,
    MetadataDamaged,
    PutBinding,
    PutExchange,
    PutParameter,
    PutQueue,
    PutSink,
    PutVhost,
)
from warrenmq.broker.policies.policy import OPERATOR_POLICY, POLICY
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decisions.missed import missed_changes
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.group_host import GroupHost
from warrenmq.cluster.sinks.sinks import ClusterSinks
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.queue import Queue
from warrenmq.vocabulary.fail_points import fail_point
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError

logger = logging.getLogger("warren.cluster")

# Puts users, rights, parameters and vhosts in force; see `Follower`.
Apply = Callable[[list[Change], Callable[[str], None]], None]
# Stores changes in the node's own metadata, then calls back with "" or with what failed.
Store = Callable[[list[Change], Callable[[str], None]], None]
# The owner of an exclusive queue whose connection is on another node.
_CLIENT_ELSEWHERE = object()


class FollowerHost(ABC):
    """The queues of other nodes, as the vhosts of this node know them."""

    @abstractmethod
    def add(self, vhost: Vhost, definition: QueueDefinition, node: bytes, epoch: int = 0) -> None:
        """Let `vhost` have a queue that lives on `node`: its master, if it has an `epoch`."""

    @abstractmethod
    def remove(self, vhost: Vhost, name: bytes, birth: int) -> list[Change]:
        """Remove the remote queue `name` of this birth from `vhost`, if it is there.

        Returns what has gone with it.
        """


class Follower:
    """Follows the decisions of the cluster on the node `name`.

    `host` knows the queues of other nodes. `apply` puts changes of users, rights, parameters and
    vhosts in force, `store` writes to the node's own metadata. `now_ms` tells the time.
    """

    def __init__(
        self,
        name: bytes,
        broker: Broker,
        copy: DefinitionsCopy,
        host: FollowerHost,
        apply: Apply,
        store: Store,
        now_ms: Callable[[], int],
    ) -> None:
        self.copy = copy
        # The last decision that is in force on this node.
        self.revision = 0
        # Connections that wait for exclusive queues, by vhost and name.
        self.claims: dict[tuple[bytes, bytes], object] = {}
        self._name = name
        self._broker = broker
        self._host = host
        self._apply_elsewhere = apply
        self._store = store
        self._now_ms = now_ms
        self._waiting: deque[tuple[int, deque[Change]]] = deque()
        self._is_busy = False
        # Puts the groups of mirrored queues in force; None: this node has no mirrored queues.
        self.groups: GroupHost | None = None
        # Puts sinks in force; None: this node keeps its own.
        self.sinks: ClusterSinks | None = None
        # True: a start skips a queue that fails with an unexpected error, and goes on. False: the
        # error is raised, so that tests and simulations see it.
        self.sets_aside = False
        # Ids of the copies that this node has of mirrored queues, hidden or not, by vhost and name.
        self._copy_ids: dict[tuple[bytes, bytes], int] = {}
        # Work that decisions wait for before they count as followed, with the first of them: rows
        # of own queues on their way to the disk, and deferrals.
        self._deferred: dict[object, int] = {}
        self._watchers: list[tuple[int, Callable[[], None]]] = []
        # Exchanges that have gone with their last binding in the decision that is followed.
        self._auto_deleted: list[DeleteExchange] = []

    # -- decisions ---------------------------------------------------------------------------------

    def load(self, shared: Definitions, revision: int) -> None:
        """Make known, at a start, what the cluster has as of `revision`.

        The vhosts are open, with this node's durable queues; users, rights and parameters are in
        force.
        """
        self.copy.load(shared)
        own = self._name
        for vhost in self._broker.vhosts.values():
            for own_queue in vhost.queues_by_id.values():
                if own_queue.is_hidden:
                    self._copy_ids[vhost.name, own_queue.name] = own_queue.id
        for exchange in shared.exchanges:
            self._follow_one(revision, exchange)
        for queue in shared.queues:
            if queue.node != own or queue.group:
                self._load_queue(revision, queue)
        for binding in shared.bindings:
            self._follow_one(revision, binding)
        if self.sinks is not None:
            for vhost in self._broker.vhosts.values():
                self.sinks.take(vhost)
        for sink in shared.sinks:
            self._follow_one(revision, sink)
        if self.sinks is not None:
            for vhost in self._broker.vhosts.values():
                self.sinks.loaded(vhost)
        self.revision = revision

    def _load_queue(self, revision: int, put: PutQueue) -> None:
        try:
            self._follow_one(revision, put)
        except Exception as error:  # Damage to one queue must not keep the node from starting.
            if self.groups is None or not self.sets_aside:
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error(
                "vhost '%s': queue '%s' is set aside until the next start: %s at %s:%d %s",
                name_text(put.vhost),
                name_text(put.name),
                type(error).__name__,
                place.filename,
                place.lineno,
                error,
            )
            self.groups.set_aside(put)

    def catch_up(self, shared: Definitions, revision: int) -> None:
        """Follow to `revision`, whose definitions are `shared`, without the steps between."""
        self._waiting.clear()
        self.follow(revision, missed_changes(self.copy, self._broker, shared))

    def follow(self, revision: int, changes: list[Change]) -> None:
        """Put the decision `revision` in force, now or when those before it are."""
        self._waiting.append((revision, deque(changes)))
        self._work()

    def when_followed(self, revision: int, callback: Callable[[], None]) -> None:
        """Call `callback` once the decision `revision` is in force here, and stored."""
        self._watchers.append((revision, callback))
        self._notify()

    def followed(self) -> int:
        """The last decision that is in force here, with all rows stored that it needs."""
        deferred = min(self._deferred.values(), default=self.revision + 1)
        return min(self.revision, deferred - 1)

    def defer(self) -> Callable[[], None]:
        """Let the decision that is being put in force count as followed later.

        That is when the returned function is called. Between decisions it defers the next one.
        """
        deferral = object()
        self._deferred[deferral] = self.revision + 1

        def release() -> None:
            del self._deferred[deferral]
            self._notify()

        return release

    def _work(self) -> None:
        while self._waiting and not self._is_busy:
            revision, changes = self._waiting[0]
            if changes:
                self._follow_one(revision, changes.popleft())
                fail_point("change.followed")
            else:
                self._waiting.popleft()
                self.revision = revision
                self._remove_auto_deleted()
        self._notify()

    def _notify(self) -> None:
        followed = self.followed()
        due = [each for each in self._watchers if each[0] <= followed]
        if due:
            self._watchers = [each for each in self._watchers if each[0] > followed]
            for _revision, callback in due:
                callback()

    def _follow_one(self, revision: int, change: Change) -> None:
        if isinstance(change, (PutExchange, DeleteExchange, PutQueue, DeleteQueue)):
            before = self.copy.queues.get((change.vhost, change.name))
            if isinstance(change, (PutExchange, PutQueue)):
                # A queue whose client is gone is removed at once, in the life that the copy knows.
                self.copy.apply(change)
            vhost = self._broker.vhosts.get(change.vhost)
            if vhost is not None:
                try:
                    if isinstance(change, PutQueue) and _is_mirrored(change, before):
                        self._put_mirrored(vhost, change)
                    else:
                        self._follow_end(vhost, change)
                except AmqpError as error:
                    logger.error("skipped a definition of the cluster: %s", error.text)
                except MetadataDamaged as error:
                    logger.error("skipped a mirrored queue of the cluster: %s", error)
            if isinstance(change, (DeleteExchange, DeleteQueue)):
                self.copy.apply(change)
        elif isinstance(change, (PutBinding, DeleteBinding)):
            vhost = self._broker.vhosts.get(change.vhost)
            if vhost is not None:
                self._follow_binding(vhost, change)
        elif isinstance(change, (PutVhost, DeleteVhost)):
            self._follow_vhost(change)
        elif isinstance(change, (PutSink, DeleteSink)):
            self._follow_sink(change)
        else:
            self._hand_over(change)

    # -- vhosts, users, parameters -----------------------------------------------------------------

    def _follow_vhost(self, change: PutVhost | DeleteVhost) -> None:
        """Store the row that names the vhost's directory, then open, change or close the vhost."""
        vhost = self._broker.vhosts.get(change.name)
        if isinstance(change, DeleteVhost) and vhost is not None:
            self._let_go_of_mirrored(vhost)
        self.copy.apply(change)
        if isinstance(change, PutVhost):
            # The directory's number is the node's own.
            change.id = self._broker.next_vhost_id() if vhost is None else vhost.id
        elif vhost is None:
            return
        self._is_busy = True

        def stored(failure: str) -> None:
            if failure:
                logger.error("vhost '%s': %s", name_text(change.name), failure)
            self._is_busy = False
            self._hand_over(change)
            self._work()

        self._store([change], stored)

    def _hand_over(self, change: Change) -> None:
        self._is_busy = True
        # The steps of a vhost end in a later turn; then the decisions behind it go on.
        later: list[bool] = []

        def done(failure: str) -> None:
            if failure:
                logger.error("%s", failure)
            self._is_busy = False
            self._tell_of_policies(change)
            self._take_sinks(change)
            if later:
                self._work()

        self._apply_elsewhere([change], done)
        later.append(True)

    # -- exchanges and queues ----------------------------------------------------------------------

    def _follow_end(
        self,
        vhost: Vhost,
        change: PutExchange | DeleteExchange | PutQueue | DeleteQueue,
    ) -> None:
        if isinstance(change, PutExchange):
            self._put_exchange(vhost, change)
        elif isinstance(change, DeleteExchange):
            exchange = vhost.router.exchanges.get(change.name)
            if exchange is not None:
                self._note_removed(vhost.forget(vhost.router.delete_exchange(exchange)))
        elif isinstance(change, PutQueue):
            self._put_queue(vhost, change)
        else:
            self._delete_queue(vhost, change.name)

    def _put_exchange(self, vhost: Vhost, change: PutExchange) -> None:
        router = vhost.router
        if change.name in router.exchanges:
            return
        exchange = router.declare_exchange(
            change.name,
            change.type,
            change.durable,
            change.auto_delete,
            change.internal,
            change.arguments,
        )
        vhost.policies.on_exchange(exchange)
        vhost.announce("exchange.created", exchange)

    def _put_queue(self, vhost: Vhost, change: PutQueue) -> None:
        known = vhost.taker(change.name)
        if known is not None and known.definition.birth == change.birth:
            return
        is_own = change.node == self._name
        owner: object | None = None
        if change.is_exclusive:
            owner = _CLIENT_ELSEWHERE
            if is_own:
                owner = self._take_claim(change)
        if not is_own:
            self._host.add(vhost, _definition(vhost, change, 0, owner), change.node)
            return
        definition = _definition(vhost, change, self._broker.next_queue_id(), owner)
        queue = vhost.add_queue(definition, self._now_ms())
        if change.durable:
            self._store_row(vhost, queue)
        if owner is _CLIENT_ELSEWHERE:
            # The connection of the exclusive queue ended before the queue was decided.
            vhost.delete_queue(queue, self._now_ms())

    def _take_claim(self, change: PutQueue) -> object:
        """The connection that has waited for an exclusive queue, if it is still there."""
        owner = self.claims.pop((change.vhost, change.name), None)
        is_there = isinstance(owner, Connection) and owner.state == RUNNING
        return owner if is_there else _CLIENT_ELSEWHERE

    def _store_row(self, vhost: Vhost, queue: Queue) -> None:
        """Store the row by which the node recovers the queue after a crash."""
        declared = queue.definition
        row = PutQueue(
            vhost.name,
            queue.id,
            queue.name,
            True,
            declared.auto_delete,
            declared.arguments,
            birth=declared.birth,
        )
        change_set = vhost.store_changes([row], True, is_patient=True)
        # Messages without the row would belong to no queue after a crash.
        change_set.is_needed_by_records = True
        vhost.unstored[queue] = change_set
        self._deferred[change_set] = self.revision + 1

        def stored(_ok: bool, _now_ms: int) -> None:
            fail_point("row.stored")
            vhost.unstored.pop(queue, None)
            del self._deferred[change_set]
            self._notify()

        change_set.callbacks.append(stored)

    def _delete_queue(self, vhost: Vhost, name: bytes) -> None:
        known = self.copy.queues.get((vhost.name, name))
        if known is None:
            return
        if known.group and self.groups is not None:
            self.groups.on_removed(vhost, known)
        queue = vhost.queues.get(name)
        if queue is not None and queue.definition.birth == known.birth:
            self._note_removed(vhost.delete_followed(queue, self._now_ms()))
        else:
            self._note_removed(self._host.remove(vhost, name, known.birth))
        copy = self._known_copy(vhost, known)
        if copy is not None and copy.is_hidden:
            self.discard_copy(vhost, copy)
        self._copy_ids.pop((vhost.name, name), None)

    def _note_removed(self, changes: list[Change]) -> None:
        self._auto_deleted.extend(each for each in changes if isinstance(each, DeleteExchange))

    def _remove_auto_deleted(self) -> None:
        """Remove from the cluster what was auto-deleted here and that no decision has removed.

        The node that has removed a last binding did not know of it if it was made meanwhile.
        """
        for change in self._auto_deleted:
            vhost = self._broker.vhosts[change.vhost]
            is_gone = change.name not in vhost.router.exchanges
            if is_gone and (change.vhost, change.name) in self.copy.exchanges:
                vhost.add_changes([change])
        self._auto_deleted = []

    # -- mirrored queues ---------------------------------------------------------------------------

    def own_copy(self, vhost: Vhost, put: PutQueue) -> Queue:
        """This node's copy of the mirrored queue `put`: hidden and empty if it has none yet.

        The row of a new copy of a durable queue is on its way to the disk; no batch with the copy's
        records is durable before, and no later decision counts as followed.
        """
        copy = self._known_copy(vhost, put)
        if copy is None:
            copy = vhost.add_hidden_queue(
                _definition(vhost, put, self._broker.next_queue_id(), None), self._now_ms()
            )
            if put.durable:
                self._store_row(vhost, copy)
        # A queue that serves clients now may be hidden later.
        self._copy_ids[vhost.name, put.name] = copy.id
        return copy

    def discard_copy(self, vhost: Vhost, queue: Queue) -> None:
        """Delete a hidden copy of this node with its messages and its row."""
        vhost.remove_hidden_queue(queue, self._now_ms())
        self._copy_ids.pop((vhost.name, queue.name), None)

    def drop_copy(self, vhost: Vhost, put: PutQueue) -> None:
        """Delete this node's hidden copy of the queue `put`, if it has one."""
        copy = self._known_copy(vhost, put)
        if copy is not None and copy.is_hidden:
            self.discard_copy(vhost, copy)

    def _known_copy(self, vhost: Vhost, put: PutQueue) -> Queue | None:
        """This node's copy in the life `put`: the queue that serves clients, or a hidden one."""
        copy = vhost.queues.get(put.name)
        if copy is None:
            copy = vhost.queues_by_id.get(self._copy_ids.get((vhost.name, put.name), 0))
        return copy if copy is not None and copy.definition.birth == put.birth else None

    def _put_mirrored(self, vhost: Vhost, put: PutQueue) -> None:
        """Make a mirrored queue known here, and let its group be put in force."""
        taker = vhost.taker(put.name)
        if taker is None or taker.definition.birth != put.birth:
            group = group_of(put)
            epoch = 0 if group is None else group.epoch
            self._host.add(vhost, _definition(vhost, put, 0, None), put.node, epoch)
        if self.groups is not None:
            self.groups.on_group(vhost, put)

    def _let_go_of_mirrored(self, vhost: Vhost) -> None:
        """Let go of the mirrored queues of a vhost that the cluster has deleted."""
        for (name, _queue), put in self.copy.queues.items():
            if name == vhost.name and put.group and self.groups is not None:
                self.groups.on_removed(vhost, put)
        for place in [place for place in self._copy_ids if place[0] == vhost.name]:
            del self._copy_ids[place]

    def _tell_of_policies(self, change: Change) -> None:
        if isinstance(change, (PutParameter, DeleteParameter)) and self.groups is not None:
            vhost = self._broker.vhosts.get(change.vhost)
            if vhost is not None and change.component in (POLICY, OPERATOR_POLICY):
                self.groups.on_policies(vhost)

    # -- sinks, bindings ---------------------------------------------------------------------------

    def _take_sinks(self, change: Change) -> None:
        """Let the cluster record the sinks of a vhost that has been opened."""
        if isinstance(change, PutVhost) and self.sinks is not None:
            vhost = self._broker.vhosts.get(change.name)
            if vhost is not None:
                self.sinks.take(vhost)

    def _follow_sink(self, change: PutSink | DeleteSink) -> None:
        self.copy.apply(change)
        vhost = self._broker.vhosts.get(change.vhost)
        if vhost is None or self.sinks is None:
            return
        if isinstance(change, PutSink):
            self.sinks.follow(vhost, change)
        else:
            self.sinks.forget(vhost, change.name)

    def _follow_binding(self, vhost: Vhost, change: PutBinding | DeleteBinding) -> None:
        router = vhost.router
        source = router.exchanges.get(change.source)
        names = router.queues if change.destination_is_queue else router.exchanges
        destination = names.get(change.destination)
        if source is None or destination is None:
            return
        if isinstance(change, DeleteBinding):
            removed = router.unbind(source, destination, change.key, change.arguments)
            if removed is not None:
                self._note_removed(vhost.forget(removed))
        else:
            # A decided binding had, as a condition, that both ends still live the lives it names.
            try:
                binding = router.restore_binding(source, destination, change.key, change.arguments)
            except AmqpError as error:
                logger.error("skipped a binding of the cluster: %s", error.text)
                return
            if binding is not None:
                vhost.announce("binding.created", binding)


def _is_mirrored(put: PutQueue, before: PutQueue | None) -> bool:
    """Whether `put`, which follows on `before`, has a group, or had one until now."""
    return bool(put.group) or (
        before is not None and before.birth == put.birth and before.group != b""
    )


def _definition(
    vhost: Vhost, put: PutQueue, queue_id: int, owner: object | None
) -> QueueDefinition:
    """The declaration of `put` under an id of this node. Raises AmqpError for bad arguments."""
    settings = parse_arguments(put.arguments, vhost.queue_text(put.name))
    return QueueDefinition(
        put.name,
        queue_id,
        put.durable,
        put.auto_delete,
        owner,
        put.arguments,
        settings,
        put.birth,
    )
