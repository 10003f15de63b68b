"""Decides definitions in the cluster: proposals under conditions, and removals that are repeated.

A proposal is one transaction. It succeeds only if what it relies on is as this node's copy has it;
otherwise something else was decided first, and the proposer looks again as soon as this node has
followed that. An answer that does not come leaves the outcome open: the proposer then looks again
too, and finds the thing or not.

A proposal is over when this node has followed it. Then it waits, for a moment, for the other nodes
as well: what was declared through one node can be used at once through any other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from warrenmq.broker.definitions.metadata import Change, DeleteVhost, PutExchange, PutQueue
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.cluster import decision_store
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.decisions.placement import Placement
from warrenmq.cluster.metadata.conditions import Alive, Condition

logger = logging.getLogger("warren.cluster")

# How long a proposal that this node has followed waits for the other nodes (ms).
PEERS_MS = 500
# Removals of one transaction; each has two conditions at most.
_REMOVALS_MAX = 40

Done = Callable[[str, int], None]


class ClusterDefinitions(SharedDefinitions):
    """The shared definitions, as the node of `follower` proposes and removes them."""

    def __init__(
        self,
        store: decision_store.DecisionStore,
        follower: Follower,
        placement: Placement,
        when_all_followed: Callable[[int, Callable[[], None]], None],
        clock: decision_store.ClusterClock,
    ) -> None:
        self._store = store
        self._follower = follower
        self._placement = placement
        self._when_all_followed = when_all_followed
        self._clock = clock
        # Removals that are not decided yet, oldest first, with those who wait for them.
        self._removals: deque[_Removal] = deque()
        self._is_removing = False

    # -- proposals ---------------------------------------------------------------------------------

    def place(self, queue: PutQueue, owner: object | None) -> None:
        if owner is not None:
            queue.is_exclusive = True
            self._follower.claims[queue.vhost, queue.name] = owner
        self._placement.place(queue)

    def propose(self, changes: list[Change], done: Done, conflict: str = "") -> None:
        # A vhost that the cluster does not have has left nothing behind there: its deletion was one
        # decision.
        vhosts = self._follower.copy.vhosts
        wanted = [
            each for each in changes if not isinstance(each, DeleteVhost) or each.name in vhosts
        ]
        self._try(wanted, done, conflict, self._clock.now_ms() + decision_store.DECIDE_MS)

    def _try(self, changes: list[Change], done: Done, conflict: str, deadline_ms: int) -> None:
        if self._removals:
            # A name may be taken by what this node has removed: that is decided first.
            self._removals[-1].callbacks.append(
                lambda failure: (
                    self._end(changes, done, failure)
                    if failure
                    else self._try(changes, done, conflict, deadline_ms)
                )
            )
            return
        conditions = self._follower.copy.prepare(changes)
        if conditions is None:
            self._look_again(changes, done, conflict)
            return

        def on_result(result: decision_store.CommitResult) -> None:
            if result.revision:
                self._follower.when_followed(
                    result.revision, lambda: self._wait_for_peers(result.revision, changes, done)
                )
            elif result.failure:
                if self._clock.now_ms() + decision_store.RETRY_MS > deadline_ms:
                    self._end(changes, done, result.failure)
                else:
                    # The outcome may be unknown; a repetition then meets the thing itself.
                    self._clock.call_later(
                        decision_store.RETRY_MS,
                        lambda: self._try(changes, done, conflict, deadline_ms),
                    )
            else:
                self._look_again(changes, done, conflict)

        self._store.commit(conditions, changes, on_result)

    def _look_again(self, changes: list[Change], done: Done, conflict: str) -> None:
        once = _Once(lambda: self._end(changes, done, conflict))
        self._follower.when_followed(self._follower.revision + 1, once.call)
        self._clock.call_later(decision_store.LOOK_AGAIN_MS, once.call)

    def _wait_for_peers(self, revision: int, changes: list[Change], done: Done) -> None:
        once = _Once(lambda: self._end(changes, done, ""))
        self._when_all_followed(revision, once.call)
        if not once.is_called:
            self._clock.call_later(PEERS_MS, once.call)

    def _end(self, changes: list[Change], done: Done, failure: str) -> None:
        for change in changes:
            if isinstance(change, PutQueue) and change.is_exclusive:
                self._follower.claims.pop((change.vhost, change.name), None)
        done(failure, self._clock.now_ms())

    # -- removals ----------------------------------------------------------------------------------

    def remove(self, changes: list[Change], done: Done | None) -> None:
        removal = _Removal(self._follower.copy.removals(changes))
        if done is not None:
            removal.wait(done, self._clock)
        self._removals.append(removal)
        self._remove_next()

    def _remove_next(self) -> None:
        while self._removals and not self._is_removing:
            removal = self._removals[0]
            if not removal.steps:
                self._removals.popleft()
                self._finish_removal(removal)
                continue
            self._is_removing = True
            self._store.commit(*removal.steps[0], self._on_removed)

    def _on_removed(self, result: decision_store.CommitResult) -> None:
        self._is_removing = False
        removal = self._removals[0]
        if result.failure:
            self._clock.call_later(decision_store.RETRY_MS, self._remove_next)
            return
        _conditions, changes = removal.steps.popleft()
        if not result.revision and len(changes) > 1:
            # One of the things is gone already, or has begun another life. The others go alone.
            removal.split(changes)
        removal.revision = max(removal.revision, result.revision)
        self._remove_next()

    def _finish_removal(self, removal: _Removal) -> None:
        def finish() -> None:
            for callback in removal.callbacks:
                callback("")
            removal.callbacks = []

        def wait_for_peers() -> None:
            once = _Once(finish)
            self._when_all_followed(removal.revision, once.call)
            if not once.is_called:
                self._clock.call_later(PEERS_MS, once.call)

        self._follower.when_followed(removal.revision, wait_for_peers)


class _Removal:
    """Removals that belong together: in as few transactions as possible, one after another."""

    def __init__(self, removals: list[tuple[list[Condition], Change]]) -> None:
        # Conditions and changes of the transactions that are left.
        self.steps: deque[tuple[list[Condition], list[Change]]] = deque()
        self.revision = 0
        self._conditions = {id(change): conditions for conditions, change in removals}
        for start in range(0, len(removals), _REMOVALS_MAX):
            changes = [change for _conditions, change in removals[start : start + _REMOVALS_MAX]]
            self.steps.append((self._conditions_of(changes), changes))
        self.callbacks: list[Callable[[str], None]] = []

    def split(self, changes: list[Change]) -> None:
        """Try `changes` again, each in a transaction of its own."""
        for change in reversed(changes):
            self.steps.appendleft((self._conditions_of([change]), [change]))

    def _conditions_of(self, changes: list[Change]) -> list[Condition]:
        # Many removals have an end in common.
        found: dict[tuple[type, bytes, bytes], Condition] = {}
        for change in changes:
            for condition in self._conditions[id(change)]:
                assert isinstance(condition, Alive)
                end = condition.change
                assert isinstance(end, (PutQueue, PutExchange))
                found[type(end), end.vhost, end.name] = condition
        return list(found.values())

    def wait(self, done: Done, clock: decision_store.ClusterClock) -> None:
        """Call `done` when all is decided, or after DECIDE_MS with what is missing."""
        once = _Once(lambda: None)

        def decided(failure: str) -> None:
            if not once.is_called:
                once.call()
                done(failure, clock.now_ms())

        self.callbacks.append(decided)
        clock.call_later(
            decision_store.DECIDE_MS,
            lambda: decided("the removal will be repeated until the cluster has taken it"),
        )


class _Once:
    """A callback that is called at most once."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.is_called = False
        self._callback = callback

    def call(self) -> None:
        """Call the callback, the first time."""
        if not self.is_called:
            self.is_called = True
            self._callback()
