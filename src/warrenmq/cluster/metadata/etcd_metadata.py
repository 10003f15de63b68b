"""The definitions of a cluster on etcd.

As a `Metadata` it keeps what nodes share: vhosts, users, rights, parameters, exchanges, queues and
bindings, transient ones too, and sinks. Numeric ids, parts of queues, reader groups and stages are
a node's own. Beyond `Metadata` it has what several writers need: `commit` checks conditions,
`load_at` says of which revision the definitions are, and `watch` tells what changes after it.

Any thread may call any method. Methods raise MetadataError: EtcdUnavailable, EtcdRefused and the
others of `errors.py`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.kinds import USERS
from warrenmq.cluster.metadata.change_operations import Write, operations_of
from warrenmq.cluster.metadata.conditions import Condition, compare_of
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.keys import (
    NAMES_OF_VHOST,
    change_of,
    deletion_of,
    parts_of,
    prefix_of,
    record_key,
)
from warrenmq.cluster.metadata.loading import load_at
from warrenmq.cluster.metadata.operations import (
    Compare,
    Event,
    KeyValue,
    Operation,
    RawDelete,
    RawPut,
)
from warrenmq.cluster.metadata.uploading import Upload
from warrenmq.cluster.metadata.watching import StopSignal

logger = logging.getLogger("warren.cluster")

# Operations of one transaction; etcd's own limit is 128.
OPERATIONS_MAX: Final = 120
# Permissions of a deleted user that go in the same transaction. Others stay, and are void.
_PERMISSIONS_MAX: Final = 50
# Attempts at an `apply` whose outcome stays unknown.
_ATTEMPTS: Final = 2

# News of a watch: changes of definitions; records written (KeyValue) and deleted (RawDelete).
Watched = metadata.Change | KeyValue | RawDelete


class EtcdMetadata(metadata.Metadata):
    """The definitions of `cluster`, by `gateway`, which `close` closes."""

    def __init__(self, gateway: EtcdGateway, cluster: str) -> None:
        self.gateway = gateway
        self._cluster = cluster

    def load(self) -> metadata.Definitions:
        return self.load_at()[0]

    def load_at(self) -> tuple[metadata.Definitions, int]:
        """The definitions in force, and the revision that they are as of; see `loading.py`."""
        return load_at(self.gateway, self._cluster)

    def apply(self, changes: list[metadata.Change]) -> None:
        """Store `changes`; all or none if they fit in one transaction of OPERATIONS_MAX.

        More are stored in several, in order. EtcdUnavailable with `is_outcome_unknown`: they may be
        stored. ValueError: something is deleted and then written again.
        """
        operations = self._operations(changes, 0)
        for start in range(0, len(operations), OPERATIONS_MAX):
            self._apply(operations[start : start + OPERATIONS_MAX])

    def commit(
        self, conditions: Sequence[Condition], changes: Sequence[Write], lease: int = 0
    ) -> int | None:
        """Store `changes` as one transaction if all `conditions` hold.

        The `lease` is for exclusive queues, which are deleted when it ends. Returns the revision
        that made the changes, 0 if there was nothing to change, None if a condition does not
        hold. EtcdUnavailable with `is_outcome_unknown`: see `conditions.py`. ValueError: more than
        OPERATIONS_MAX, or something is deleted and then written again.
        """
        compares = [compare_of(self._cluster, condition) for condition in conditions]
        return self._transact(compares, self._operations(changes, lease))

    def upload(self, changes: Iterable[metadata.Change], records: Sequence[RawPut] = ()) -> int:
        """Store all definitions of a lone node in a cluster that has none; see `uploading.py`."""
        return Upload(self.gateway, self._cluster).run(changes, records)

    def watch(
        self,
        from_revision: int,
        on_changes: Callable[[int, list[Watched]], None],
        stop: StopSignal,
    ) -> None:
        """Call `on_changes` with each revision from `from_revision` on that changed the cluster.

        Its changes come in order, with births. DeleteVhost stands for all that goes with the vhost.
        The caller decides which bindings are in force, and takes a deleted user's permissions away.
        Records come too. Returns when `stop` is set; raises Compacted if the caller must load anew,
        else as `EtcdGateway.watch`.
        """

        def on_events(revision: int, events: list[Event]) -> None:
            on_changes(revision, _watched(events))

        self.gateway.watch(prefix_of(self._cluster), from_revision, on_events, stop)

    def key(self, kind: str, *parts: bytes) -> bytes:
        """The key of a record, such as ("members", NODE)."""
        return record_key(self._cluster, kind, *parts)

    def get(self, key: bytes) -> KeyValue | None:
        """A record, None if there is none."""
        return self.gateway.read(key)

    def records(self, kind: str, revision: int = 0) -> list[KeyValue]:
        """All records of a kind, as of `revision` (0: the newest)."""
        return self.gateway.read_range(prefix_of(self._cluster, kind), revision)[0]

    def close(self) -> None:
        self.gateway.close()

    def _apply(self, operations: list[Operation]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._transact([], operations)
            except EtcdUnavailable as error:
                # Puts and deletions have the same effect twice.
                if attempt == _ATTEMPTS - 1 or not error.is_outcome_unknown:
                    raise
            else:
                return

    def _transact(self, compares: list[Compare], operations: list[Operation]) -> int | None:
        if max(len(compares), len(operations)) > OPERATIONS_MAX:
            raise ValueError(f"a commit has at most {OPERATIONS_MAX} conditions and operations")
        result = self.gateway.transact(compares, operations)
        if not result.succeeded:
            return None
        is_change = any(isinstance(operation, RawPut) for operation in operations)
        if is_change or any(response.deleted_count for response in result.responses):
            return result.revision
        # The revision may be that of another user of etcd, which no watch of this cluster tells.
        return 0

    def _operations(self, changes: Iterable[Write], lease: int) -> list[Operation]:
        writes: list[Write] = []
        for change in changes:
            writes.append(change)
            if isinstance(change, metadata.DeleteUser):
                writes.extend(self._permissions_of(change.name))
        return operations_of(self._cluster, writes, lease)

    def _permissions_of(self, user: bytes) -> list[Write]:
        """Deletions of the user's permissions.

        It does not matter if one is missed: permissions of an earlier life of a user are void.
        """
        deletions: list[Write] = []
        for kind, (column,) in USERS.owned():
            place = kind.keys.parts.index(column)
            prefix = prefix_of(self._cluster, kind.keys.name)
            for key in self.gateway.read_range(prefix, keys_only=True)[0]:
                _name, parts = parts_of(key.key)
                if parts[place] == user:
                    deletions.append(RawDelete(key.key))
        return deletions[:_PERMISSIONS_MAX]


def _watched(events: list[Event]) -> list[Watched]:
    """The changes of one revision, in order."""
    changes: list[Watched] = []
    # Vhosts that this revision deletes, with all that is in them.
    gone: set[bytes] = set()
    for event in events:
        kind, parts = parts_of(event.kv.key)
        if event.type != "PUT" and kind in NAMES_OF_VHOST and parts and parts[0] in gone:
            continue
        try:
            change = _watched_change(event)
        except metadata.MetadataDamaged as error:
            # The last definition that could be read stays in force.
            logger.error("skipped a change of a definition: %s", error)
            continue
        changes.append(change)
        if isinstance(change, metadata.DeleteVhost):
            gone.add(change.name)
    return changes


def _watched_change(event: Event) -> Watched:
    kv = event.kv
    if event.type == "PUT":
        put = change_of(kv.key, kv.value, kv.create_revision, kv.mod_revision)
        return kv if put is None else put
    deletion = deletion_of(kv.key)
    return RawDelete(kv.key) if deletion is None else deletion
