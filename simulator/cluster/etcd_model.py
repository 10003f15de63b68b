"""A model of the store in which nodes decide: transactions under conditions, births, and watches.

The model keeps what etcd promises and nothing more. A transaction is whole; its revision is one
above the last; a key's birth is the revision that created it. Each node hears of every revision
once and in order, some time later. A transaction whose answer is lost may have happened or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from warrenmq.broker.definitions.kinds import KIND_OF
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteVhost,
    PutBinding,
    PutExchange,
    PutQueue,
)
from warrenmq.cluster.decision_store import CommitResult, DecisionStore
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.metadata.conditions import (
    Absent,
    Alive,
    Condition,
    Exists,
    LastWritten,
    NodeIs,
)
from warrenmq.cluster.metadata.keys import (
    NAMES_OF_VHOST,
    change_of,
    deletion_of,
    key_of,
    prefix_of,
)
from warrenmq.cluster.metadata.values import value_of
from warrenmq.cluster.records import RunningNode

CLUSTER = "model"


class Run(NamedTuple):
    """A running node: the birth of its record, and the record."""

    birth: int
    record: RunningNode


# The record of a node of which nobody asks more than that it runs.
_ANYBODY: Final = RunningNode("", 1, "", 0, "")


class ModelKey:
    """A key: its value, the revision that created it, and the one that last wrote it."""

    def __init__(self, value: bytes, birth: int, revision: int) -> None:
        self.value = value
        self.birth = birth
        self.revision = revision


class EtcdModel:
    """The store of a cluster."""

    def __init__(self) -> None:
        self.keys: dict[bytes, ModelKey] = {}
        self.revision = 0
        # The changes of each revision, in order, as a watch tells them.
        self.history: list[tuple[int, list[Change]]] = []
        # Running nodes by name.
        self.running: dict[bytes, Run] = {}
        # The running nodes as of each revision that has changed them.
        self.running_at: dict[int, dict[bytes, Run]] = {}
        # The process of etcd stands still: nothing is decided, and no lease ends before it goes on.
        self.is_paused = False
        # Transactions that have reached it meanwhile; who proposed them has got no answer.
        self._deferred: list[tuple[list[Condition], list[Change]]] = []
        # Keys that are deleted with the lease of a node: its exclusive queues.
        self._leased: dict[bytes, bytes] = {}

    def put_node(self, name: bytes, record: RunningNode = _ANYBODY) -> int:
        """Let a node run under a new lease; returns the birth of its record."""
        self.running[name] = Run(self.revision + 1, record)
        self._note_running([])
        return self.revision

    def drop_node(self, name: bytes) -> None:
        """End the lease of a node, if it has one."""
        if self.running.pop(name, None) is None:
            return
        told: list[Change] = []
        for key in [key for key, node in self._leased.items() if node == name]:
            del self._leased[key]
            if self.keys.pop(key, None) is not None:
                deletion = deletion_of(key)
                assert deletion is not None
                told.append(deletion)
        self._note_running(told)

    def _note_running(self, told: list[Change]) -> None:
        self.revision += 1
        self.running_at[self.revision] = dict(self.running)
        self.history.append((self.revision, told))

    def commit(self, conditions: list[Condition], changes: list[Change]) -> int:
        """Carry out a transaction; its revision, 0 if a condition fails or nothing changes."""
        if not all(self._holds(condition) for condition in conditions):
            return 0
        told: list[Change] = []
        revision = self.revision + 1
        for change in changes:
            self._change(change, revision, told)
        if not told:
            return 0
        self.revision = revision
        self.history.append((revision, told))
        return revision

    def defer(self, conditions: list[Condition], changes: list[Change]) -> None:
        """Take a transaction that is carried out when etcd goes on."""
        self._deferred.append((conditions, changes))

    def resume(self) -> None:
        """End a pause: carry out what has come meanwhile."""
        self.is_paused = False
        deferred, self._deferred = self._deferred, []
        for conditions, changes in deferred:
            self.commit(conditions, changes)

    def has_lease(self, lease: NodeIs | None) -> bool:
        """Whether the author of a transaction has its `lease`, if it needs one."""
        return lease is None or self._holds(lease)

    def load(self) -> Definitions:
        """The definitions as of the last revision; bindings of earlier lives are left out."""
        found = Definitions()
        for key, kept in sorted(self.keys.items(), key=lambda each: each[1].birth):
            change = change_of(key, kept.value, kept.birth, kept.revision)
            assert change is not None
            if not isinstance(change, PutBinding) or self._is_current(change):
                KIND_OF[type(change)].listed(found).append(change)
        return found

    def group(self, vhost: bytes, name: bytes) -> Group | None:
        """The group of a queue, None if it is not mirrored or does not exist."""
        key = key_of(CLUSTER, PutQueue(vhost, 0, name, True, False, b""))
        kept = self.keys.get(key)
        if kept is None:
            return None
        put = change_of(key, kept.value, kept.birth, kept.revision)
        assert isinstance(put, PutQueue)
        return group_of(put)

    def _holds(self, condition: Condition) -> bool:
        if isinstance(condition, Absent):
            return key_of(CLUSTER, condition.change) not in self.keys
        if isinstance(condition, Exists):
            return key_of(CLUSTER, condition.change) in self.keys
        if isinstance(condition, Alive):
            found = self.keys.get(key_of(CLUSTER, condition.change))
            return found is not None and found.birth == condition.birth
        if isinstance(condition, LastWritten):
            found = self.keys.get(key_of(CLUSTER, condition.change))
            return found is not None and found.revision == condition.mod_revision
        if isinstance(condition, NodeIs):
            run = self.running.get(condition.node)
            return (0 if run is None else run.birth) == condition.birth
        return True

    def _change(self, change: Change, revision: int, told: list[Change]) -> None:
        key = key_of(CLUSTER, change)
        try:
            value = value_of(change)
        except TypeError:
            self._delete(change, key, told)
            return
        self._leased.pop(key, None)
        if isinstance(change, PutQueue) and change.is_exclusive:
            self._leased[key] = change.node
        kept = self.keys.get(key)
        birth = revision if kept is None else kept.birth
        self.keys[key] = ModelKey(value, birth, revision)
        put = change_of(key, value, birth, revision)
        assert put is not None
        told.append(put)

    def _delete(self, change: Change, key: bytes, told: list[Change]) -> None:
        kept = self.keys.pop(key, None)
        if kept is None:
            return
        deletion = deletion_of(key)
        assert deletion is not None
        told.append(deletion)
        if isinstance(change, DeleteVhost):
            prefixes = tuple(prefix_of(CLUSTER, name, change.name) for name in NAMES_OF_VHOST)
            for other in [each for each in self.keys if each.startswith(prefixes)]:
                del self.keys[other]

    def _is_current(self, binding: PutBinding) -> bool:
        source = PutExchange(binding.vhost, binding.source, b"", False, False, b"")
        end: PutQueue | PutExchange
        if binding.destination_is_queue:
            end = PutQueue(binding.vhost, 0, binding.destination, True, False, b"")
        else:
            end = PutExchange(binding.vhost, binding.destination, b"", False, False, b"")
        lives = [
            (key_of(CLUSTER, source), binding.source_birth),
            (key_of(CLUSTER, end), binding.destination_birth),
        ]
        for key, birth in lives:
            kept = self.keys.get(key)
            if (0 if kept is None else kept.birth) != birth:
                return False
        return True


class ModelledStore(DecisionStore):
    """The store as one node reaches it.

    Requests and events wait in `requests` and `events` until `answer` and `tell` let them through,
    so that whoever drives the model decides about time and order. `is_reachable` False: requests
    fail. `loses_answers`: a request is carried out, and its answer says that nothing is known.
    """

    def __init__(self, model: EtcdModel, follow: Callable[[int, list[Change]], None]) -> None:
        self.is_reachable = True
        self.loses_answers = False
        self.told_revision = 0
        # The lease that every request relies on; None: the node needs none.
        self.lease: NodeIs | None = None
        self._model = model
        self._follow = follow
        self._requests: list[
            tuple[list[Condition], list[Change], Callable[[CommitResult], None]]
        ] = []

    def commit(
        self,
        conditions: list[Condition],
        changes: list[Change],
        done: Callable[[CommitResult], None],
    ) -> None:
        self._requests.append((conditions, changes, done))

    def lease_birth(self) -> int:
        """See DecisionStore."""
        return 0 if self.lease is None else self.lease.birth

    @property
    def has_answers(self) -> bool:
        """Whether etcd answers the node now."""
        return self.is_reachable and not self._model.is_paused

    @property
    def request_count(self) -> int:
        """Requests that wait for an answer."""
        return len(self._requests)

    def answer(self, place: int = 0) -> None:
        """Carry out one of the requests, the oldest by default, and answer it."""
        conditions, changes, done = self._requests.pop(place)
        if self.lease is not None:
            conditions = [*conditions, self.lease]
        if self.is_reachable and self._model.is_paused:
            self._model.defer(conditions, changes)
        if not self.has_answers:
            done(CommitResult(0, "etcd does not answer"))
            return
        revision = self._model.commit(conditions, changes)
        if not revision and not self._model.has_lease(self.lease):
            done(CommitResult(0, "this node has lost its lease"))
        elif self.loses_answers:
            done(CommitResult(0, "the answer was lost"))
        else:
            done(CommitResult(revision))

    def tell(self) -> bool:
        """Tell the node of the next revision; False if it knows all."""
        if not self.has_answers or self.told_revision == self._model.revision:
            return False
        # Each revision has its place in the history.
        revision, changes = self._model.history[self.told_revision]
        self.told_revision = revision
        self._follow(revision, changes)
        return True

    def carry_out(self) -> None:
        """Carry out the oldest request; nobody gets the answer."""
        conditions, changes, _done = self._requests.pop(0)
        if self.has_answers:
            self._model.commit(conditions, changes)

    def drop_requests(self) -> None:
        """Forget requests without an answer: the node is dead."""
        self._requests.clear()
