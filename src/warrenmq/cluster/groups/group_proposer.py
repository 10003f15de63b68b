"""Proposes changes of groups, many queues in one transaction (5.3, 5.9).

A change is made from the group that this node has followed, on condition that it is the newest one.
When another change was decided first, the proposer waits until this node has followed that, and
makes its own change anew. So a proposal says what is to change, as a function of any group. A queue
has one proposal at a time; others for the same queue wait behind it.

After the death of a node thousands of groups change at once. What is proposed in one turn goes in
transactions of up to `QUEUES_MAX` queues. If one of them cannot be changed, none of its transaction
is; then they are tried again in smaller ones.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from warrenmq.broker.definitions.metadata import Change, DeleteQueue, MetadataDamaged, PutQueue
from warrenmq.cluster.decision_store import (
    DECIDE_MS,
    LOOK_AGAIN_MS,
    RETRY_MS,
    ClusterClock,
    CommitResult,
    DecisionStore,
)
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_of, with_group, without_group
from warrenmq.cluster.metadata.conditions import Condition, LastWritten, NodeIs
from warrenmq.cluster.metadata.values import value_of
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# Outcomes of a proposal. DECIDED: this node has followed it. REFUSED: the group, as this node has
# it now, does not allow it, or the queue is gone. UNANSWERED: the store did not decide in time; the
# change may still come.
DECIDED: Final = 1
REFUSED: Final = 2
UNANSWERED: Final = 3

# Queues of one transaction, and bytes of their definitions (etcd refuses more than 1.5 MiB).
QUEUES_MAX: Final = 60
BYTES_MAX: Final = 1 << 20
# Transactions under way at one time, so that declarations need not wait behind all others.
_TRANSACTIONS_MAX: Final = 4

# A queue, in one life: vhost, name, birth.
QueueKey = tuple[bytes, bytes, int]
Done = Callable[[int], None]
# What a proposal makes of the definition of its queue; None: it is refused.
_Edit = Callable[[PutQueue], PutQueue | DeleteQueue | None]
# Nodes that must not run for a change that was made from this group.
Fence = Callable[[Group], Collection[bytes]]


class _Proposal:
    """A change of one queue. `fence`: see `GroupProposer.propose`."""

    def __init__(self, key: QueueKey, edit: _Edit, done: Done, fence: Fence | None) -> None:
        self.key = key
        self.edit = edit
        self.done = done
        self.fence = fence
        # When the proposal fails unless it is decided (ms); 0 before the first attempt.
        self.deadline_ms = 0
        # Queues that its next transaction may have.
        self.queues_max = 1 if fence is not None else QUEUES_MAX
        # The definition that the last attempt has read, and the change that it has proposed.
        self.read: PutQueue | None = None
        self.change: PutQueue | DeleteQueue | None = None


class GroupProposer:
    """Proposes for one node, whose definitions are in `copy`.

    `when_followed(revision, callback)` is that of the node's `Follower`; `wake` asks for the end of
    a turn, which calls `end_turn`.
    """

    def __init__(
        self,
        store: DecisionStore,
        copy: DefinitionsCopy,
        clock: ClusterClock,
        when_followed: Callable[[int, Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._copy = copy
        self._clock = clock
        self._when_followed = when_followed
        self._wake = wake
        # The proposals of each queue; the first one is under way.
        self._chains: dict[QueueKey, deque[_Proposal]] = {}
        # Proposals whose attempt is due, in order.
        self._due: deque[_Proposal] = deque()
        self._transactions_count = 0

    # -- proposals ---------------------------------------------------------------------------------

    def propose(
        self,
        vhost: bytes,
        name: bytes,
        birth: int,
        transition: Callable[[Group], Group | None],
        done: Done,
        fence: Fence | None = None,
    ) -> None:
        """Propose to change the group of a mirrored queue; then call `done` with the outcome.

        `transition` is called with the newest group, once for each attempt. `fence` names nodes
        that must not run; if one does, or the group has changed, the proposal is refused. After an
        answer that was lost a decided change may be reported as REFUSED, if others came after it:
        so who needs to know looks at the group.
        """

        def edit(put: PutQueue) -> PutQueue | None:
            group = group_of(put)
            changed = None if group is None else transition(group)
            return None if changed is None else with_group(put, changed)

        self._add(_Proposal((vhost, name, birth), edit, done, fence))

    def propose_first(
        self, vhost: bytes, name: bytes, birth: int, make: Callable[[], Group | None], done: Done
    ) -> None:
        """Propose the first group of a queue that is not mirrored; None: nothing is proposed."""

        def edit(put: PutQueue) -> PutQueue | None:
            group = None if put.group else make()
            return None if group is None else with_group(put, group)

        self._add(_Proposal((vhost, name, birth), edit, done, None))

    def propose_end(self, vhost: bytes, name: bytes, birth: int, done: Done) -> None:
        """Propose that a queue has no group any more; refused while it has copies elsewhere."""

        def edit(put: PutQueue) -> PutQueue | None:
            group = group_of(put)
            if group is None or group.is_down or group.recoverable != (group.master_node,):
                return None
            return without_group(put)

        self._add(_Proposal((vhost, name, birth), edit, done, None))

    def propose_removal(
        self, vhost: bytes, name: bytes, birth: int, may: Callable[[Group], bool], done: Done
    ) -> None:
        """Propose to delete a mirrored queue, as long as its group is one that `may` be deleted."""

        def edit(put: PutQueue) -> DeleteQueue | None:
            group = group_of(put)
            return DeleteQueue(vhost, 0, name) if group is not None and may(group) else None

        self._add(_Proposal((vhost, name, birth), edit, done, None))

    def is_busy(self, vhost: bytes, name: bytes, birth: int) -> bool:
        """Whether a proposal of the queue is under way."""
        return (vhost, name, birth) in self._chains

    @property
    def has_room(self) -> bool:
        """Whether more proposals would be sent soon: fewer wait than a transaction takes."""
        return len(self._due) < QUEUES_MAX

    def _add(self, proposal: _Proposal) -> None:
        chain = self._chains.get(proposal.key)
        if chain is not None:
            chain.append(proposal)
            return
        self._chains[proposal.key] = deque([proposal])
        self._due.append(proposal)
        self._wake()

    # -- transactions ------------------------------------------------------------------------------

    def has_lease(self) -> bool:
        """See DecisionStore."""
        return self._store.has_lease()

    def end_turn(self) -> None:
        """Commit what is due, as far as transactions are free."""
        while self._due and self._transactions_count < _TRANSACTIONS_MAX:
            batch = self._next_batch()
            if batch:
                self._commit(batch)

    def _next_batch(self) -> list[_Proposal]:
        """Take the next proposals that fit in one transaction; those that are refused end here."""
        batch: list[_Proposal] = []
        queues_max = QUEUES_MAX
        size = 0
        while self._due:
            proposal = self._due[0]
            queues_max = min(queues_max, proposal.queues_max)
            if len(batch) >= queues_max:
                break
            if self._is_made(proposal):
                self._due.popleft()
                self._end(proposal, DECIDED)
                continue
            change = self._edited(proposal)
            if change is None:
                self._due.popleft()
                self._end(proposal, REFUSED)
                continue
            size += len(value_of(change)) if isinstance(change, PutQueue) else 0
            if batch and size > BYTES_MAX:
                break
            self._due.popleft()
            batch.append(proposal)
        return batch

    def _edited(self, proposal: _Proposal) -> PutQueue | DeleteQueue | None:
        """The change that the proposal makes of the queue as it is now, None if it is refused."""
        proposal.change = None
        proposal.read = put = self._definition(proposal.key)
        if put is not None:
            try:
                proposal.change = proposal.edit(put)
            except MetadataDamaged as error:
                logger.error("queue '%s' cannot change: %s", name_text(put.name), error)
        return proposal.change

    def _is_made(self, proposal: _Proposal) -> bool:
        """Whether the queue has, by now, the change of an attempt that had no success."""
        change, now = proposal.change, self._definition(proposal.key)
        if isinstance(change, DeleteQueue) or change is None or now is None:
            return isinstance(change, DeleteQueue) and now is None
        is_newer = now.revision > change.revision
        return is_newer and (now.group, now.node) == (change.group, change.node)

    def _definition(self, key: QueueKey) -> PutQueue | None:
        vhost, name, birth = key
        found = self._copy.queues.get((vhost, name))
        return found if found is not None and found.birth == birth else None

    def _commit(self, batch: list[_Proposal]) -> None:
        conditions: list[Condition] = []
        changes: list[Change] = []
        now_ms = self._clock.now_ms()
        for proposal in batch:
            assert proposal.read is not None and proposal.change is not None
            proposal.deadline_ms = proposal.deadline_ms or now_ms + DECIDE_MS
            conditions.append(LastWritten(proposal.read, proposal.read.revision))
            conditions.extend(_absent(proposal))
            changes.append(proposal.change)
        self._transactions_count += 1
        self._store.commit(conditions, changes, lambda result: self._on_result(batch, result))

    def _on_result(self, batch: list[_Proposal], result: CommitResult) -> None:
        self._transactions_count -= 1
        if result.revision:
            self._when_followed(result.revision, lambda: self._end_all(batch))
        elif result.failure:
            self._clock.call_later(RETRY_MS, lambda: self._try_again(batch))
        elif batch[0].fence is not None:
            self._end(batch[0], REFUSED)
        else:
            for proposal in batch:
                proposal.queues_max = max(1, len(batch) // 2)
            # This node may not have followed yet what was decided first.
            self._clock.call_later(LOOK_AGAIN_MS, lambda: self._try_again(batch))
        self._wake()

    def _try_again(self, batch: list[_Proposal]) -> None:
        now_ms = self._clock.now_ms()
        for proposal in batch:
            if now_ms > proposal.deadline_ms:
                self._end(proposal, DECIDED if self._is_made(proposal) else UNANSWERED)
            else:
                self._due.append(proposal)
        self._wake()

    def _end_all(self, batch: list[_Proposal]) -> None:
        for proposal in batch:
            self._end(proposal, DECIDED)

    def _end(self, proposal: _Proposal, outcome: int) -> None:
        chain = self._chains[proposal.key]
        chain.popleft()
        if chain:
            self._due.append(chain[0])
            self._wake()
        else:
            del self._chains[proposal.key]
        proposal.done(outcome)


def _absent(proposal: _Proposal) -> list[Condition]:
    """The conditions that the fenced nodes of a proposal do not run."""
    group = None if proposal.read is None else group_of(proposal.read)
    if proposal.fence is None or group is None:
        return []
    return [NodeIs(node, 0) for node in sorted(proposal.fence(group))]
