"""The keys, their revisions and the leases, in memory: what etcd promises, without I/O.

A transaction is whole, and its revision is one above the last. The last HISTORY_EVENTS events stay
known, so that older revisions can be read and watched.

Everything that has to be on the disk before anybody may learn of it gathers in `unwritten`.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from warrenmq.cluster.metadata.operations import (
    Compare,
    Event,
    KeyValue,
    Operation,
    OperationResult,
    RawDelete,
    RawGet,
    RawPut,
    TxnResult,
)

# Events that stay known; each is some hundred bytes.
HISTORY_EVENTS: Final = 50_000
# The longest lease (s).
TTL_MAX_S: Final = 86_400


class DuplicateKey(Exception):
    """A transaction touches a key twice."""


class UnknownLease(Exception):
    """A key is to get a lease that has ended, or never was."""


class TooOld(Exception):
    """The revision is no longer known; `revision` is the oldest that is."""

    def __init__(self, revision: int) -> None:
        super().__init__()
        self.revision = revision


class NotYetMade(Exception):
    """A read asks for a revision that no transaction has reached yet."""


class LeaseGranted(NamedTuple):
    """A lease and the time after which it ends without a renewal (s)."""

    lease: int
    ttl_s: int


class LeaseEnded(NamedTuple):
    """A lease that exists no more."""

    lease: int


# A change that goes to the disk: of a key, which an event tells, or of a lease.
Write = Event | LeaseGranted | LeaseEnded


class _Lease:
    def __init__(self, ttl_s: int, ends_s: float) -> None:
        self.ttl_s = ttl_s
        self.ends_s = ends_s
        self.keys: set[bytes] = set()


class _Revision(NamedTuple):
    """A transaction that changed keys, with what each key was before."""

    number: int
    events: list[Event]
    before: list[KeyValue | None]


class KeyStore:
    """The store as of `revision`; all times are of one monotonic clock (s).

    `leases`: those that were granted, each of which now lasts its whole time again.
    """

    def __init__(
        self,
        revision: int,
        keys: Iterable[KeyValue],
        leases: Iterable[LeaseGranted],
        now_s: float,
    ) -> None:
        self.revision = revision
        # The size of the file that has the store.
        self.size_bytes = 0
        self.unwritten: list[Write] = []
        self._keys = {each.key: each for each in keys}
        self._order = sorted(self._keys)
        self._leases = {each.lease: _Lease(each.ttl_s, now_s + each.ttl_s) for each in leases}
        for each in self._keys.values():
            if each.lease in self._leases:
                self._leases[each.lease].keys.add(each.key)
        self._history: deque[_Revision] = deque()
        self._events_count = 0
        # The oldest revision that can be read.
        self._oldest = revision

    # -- reading -----------------------------------------------------------------------------------

    def read_range(self, key: bytes, range_end: bytes, revision: int) -> list[KeyValue]:
        """The keys from `key` to before `range_end` as of `revision` (0: now), in order.

        Without a `range_end` it is `key` alone. Raises TooOld and NotYetMade.
        """
        found = {each: self._keys[each] for each in self._in_range(key, range_end)}
        if revision == 0 or revision == self.revision:
            return list(found.values())
        if revision > self.revision:
            raise NotYetMade
        if revision < self._oldest:
            raise TooOld(self._oldest)
        for past in reversed(self._history):
            if past.number <= revision:
                break
            for event, before in zip(past.events, past.before, strict=True):
                if not _is_in(event.kv.key, key, range_end):
                    continue
                if before is None:
                    found.pop(event.kv.key, None)
                else:
                    found[event.kv.key] = before
        return [found[each] for each in sorted(found)]

    def events_since(
        self, key: bytes, range_end: bytes, first: int, last: int
    ) -> list[list[Event]]:
        """The events of keys in a range at the revisions `first` to `last`, by revision.

        Raises TooOld.
        """
        if first <= self._oldest and first <= self.revision:
            raise TooOld(self._oldest)
        told = []
        for past in self._history:
            if first <= past.number <= last:
                events = [each for each in past.events if _is_in(each.kv.key, key, range_end)]
                if events:
                    told.append(events)
        return told

    # -- transactions ------------------------------------------------------------------------------

    def transact(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
    ) -> TxnResult:
        """Carry out `then` if all `compares` hold, else `otherwise`.

        Raises DuplicateKey and UnknownLease, and changes nothing then.
        """
        succeeded = all(self._holds(compare) for compare in compares)
        for branch in (then, otherwise):
            _check_keys(branch)
        operations = then if succeeded else otherwise
        for each in operations:
            if isinstance(each, RawPut) and each.lease and each.lease not in self._leases:
                raise UnknownLease
        change = _Change(self.revision + 1)
        results = tuple(self._carry_out(operation, change) for operation in operations)
        self._end(change)
        return TxnResult(succeeded, self.revision, results)

    def _holds(self, compare: Compare) -> bool:
        keys = [self._keys[key] for key in self._in_range(compare.key, compare.range_end)]
        if not keys:
            # A key that is not there has no value, not even an empty one; else it is all zeros.
            return compare.target != "VALUE" and _compares(compare, KeyValue(compare.key))
        return all([_compares(compare, key) for key in keys])

    def _carry_out(self, operation: Operation, change: _Change) -> OperationResult:
        if isinstance(operation, RawGet):
            found = self._keys.get(operation.key)
            return OperationResult() if found is None else OperationResult((found,))
        if isinstance(operation, RawPut):
            self._put(operation, change)
            return OperationResult()
        doomed = self._in_range(operation.key, operation.range_end)
        for key in doomed:
            self._delete(key, change)
        return OperationResult(deleted_count=len(doomed))

    def _put(self, put: RawPut, change: _Change) -> None:
        before = self._keys.get(put.key)
        if before is None:
            insort(self._order, put.key)
        elif before.lease in self._leases:
            self._leases[before.lease].keys.discard(put.key)
        born = change.revision if before is None else before.create_revision
        new = KeyValue(put.key, put.value, born, change.revision, put.lease)
        self._keys[put.key] = new
        if put.lease:
            self._leases[put.lease].keys.add(put.key)
        change.add(Event(new), before)

    def _delete(self, key: bytes, change: _Change) -> None:
        before = self._keys.pop(key)
        del self._order[bisect_left(self._order, key)]
        if before.lease in self._leases:
            self._leases[before.lease].keys.discard(key)
        gone = KeyValue(key, mod_revision=change.revision)
        change.add(Event(gone, "DELETE"), before)

    def _end(self, change: _Change) -> None:
        """Make the changed keys the next revision, if any was changed."""
        if not change.events:
            return
        self.revision = change.revision
        self.unwritten += change.events
        self._history.append(_Revision(change.revision, change.events, change.before))
        self._events_count += len(change.events)
        while self._events_count > HISTORY_EVENTS:
            dropped = self._history.popleft()
            self._events_count -= len(dropped.events)
            self._oldest = dropped.number

    # -- leases ------------------------------------------------------------------------------------

    def grant(self, ttl_s: int, now_s: float) -> int:
        """The id of a new lease that ends `ttl_s` after its last renewal."""
        ttl_s = min(max(ttl_s, 1), TTL_MAX_S)
        # A random id: one that a restart has forgotten is not given to another lease.
        lease = secrets.randbits(62) + 1
        self._leases[lease] = _Lease(ttl_s, now_s + ttl_s)
        self.unwritten.append(LeaseGranted(lease, ttl_s))
        return lease

    def keep_alive(self, lease: int, now_s: float) -> int:
        """Renew a lease; the time it has from now on (s), 0 if there is none."""
        known = self._leases.get(lease)
        if known is None:
            return 0
        known.ends_s = now_s + known.ttl_s
        return known.ttl_s

    def revoke(self, lease: int) -> bool:
        """End a lease and delete its keys; False if there is none."""
        known = self._leases.get(lease)
        if known is None:
            return False
        change = _Change(self.revision + 1)
        for key in sorted(known.keys):
            self._delete(key, change)
        del self._leases[lease]
        self._end(change)
        self.unwritten.append(LeaseEnded(lease))
        return True

    def expire(self, now_s: float) -> None:
        """End the leases whose time is over."""
        for lease in [each for each, known in self._leases.items() if known.ends_s <= now_s]:
            self.revoke(lease)

    def extend(self, by_s: float) -> None:
        """Let all leases last longer: nobody could renew them for this time."""
        for known in self._leases.values():
            known.ends_s += by_s

    # -- ranges ------------------------------------------------------------------------------------

    def _in_range(self, key: bytes, range_end: bytes) -> list[bytes]:
        if not range_end:
            return [key] if key in self._keys else []
        start = bisect_left(self._order, key)
        return self._order[start : bisect_left(self._order, range_end, start)]


class _Change:
    """A transaction under way, which makes `revision` if it changes a key."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.events: list[Event] = []
        self.before: list[KeyValue | None] = []

    def add(self, event: Event, before: KeyValue | None) -> None:
        """Add what happened to a key, and what it was before."""
        self.events.append(event)
        self.before.append(before)


def _check_keys(operations: Sequence[Operation]) -> None:
    """Raise DuplicateKey if a key is written twice, or deleted and written."""
    written = [each.key for each in operations if isinstance(each, RawPut)]
    deletions = [each for each in operations if isinstance(each, RawDelete)]
    if len(set(written)) < len(written):
        raise DuplicateKey
    for each in deletions:
        if any([_is_in(key, each.key, each.range_end) for key in written]):
            raise DuplicateKey


def _is_in(key: bytes, start: bytes, range_end: bytes) -> bool:
    return start <= key < range_end if range_end else key == start


def _compares(compare: Compare, key: KeyValue) -> bool:
    found: int | bytes
    match compare.target:
        case "CREATE":
            found = key.create_revision
        case "MOD":
            found = key.mod_revision
        case "LEASE":
            found = key.lease
        case "VALUE":
            found = key.value
    wanted = compare.operand
    if compare.result == "EQUAL":
        return found == wanted
    # Both are numbers, or both are bytes.
    if compare.result == "GREATER":
        return found > wanted  # type: ignore[operator]  # see above
    return found < wanted  # type: ignore[operator]  # see above
