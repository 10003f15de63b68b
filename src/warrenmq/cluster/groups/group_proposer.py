"""Proposes changes of groups, many queues in one transaction.

A change is made from the group that this node has followed, on condition that it is the newest one.
When another change was decided first, the proposer waits until this node has followed that, and
makes its own change anew. So a proposal says what is to change, as a function of any group. A queue
has one proposal at a time; others for the same queue wait behind it.

After the death of a node thousands of groups change at once. Proposals go in transactions of up to
`QUEUES_MAX` queues, in the order of their ranks (`proposal_queue.py`). If one of a transaction
cannot be changed, none is; then they are tried again in smaller ones.

Etcd serves others, too: its transactions wait for each other, so few of them are under way at one
time. What may come later is sent only while nothing else waits, one transaction after the other
with pauses that are longer than these took, but at most 15 s. So a store that slows down gets less
to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from warrenmq.broker.definitions.metadata import Change, MetadataDamaged, PutQueue
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
from warrenmq.cluster.groups.proposal_queue import (
    LATER,
    RANKS,
    URGENT,
    USUAL,
    Done,
    Fence,
    Proposal,
    ProposalQueue,
    QueueKey,
)
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
QUEUES_MAX: Final = 30
BYTES_MAX: Final = 1 << 20
# A transaction of a rank is begun while fewer than these are under way.
_UNDER_WAY: Final = {URGENT: 4, USUAL: 2, LATER: 1}
# How many times as long as it took a transaction of the rank LATER is followed by a pause.
LATER_PAUSES: Final = 3


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
        self._proposals = ProposalQueue()
        self._under_way_count = 0
        # When the next transaction of the rank LATER may be begun.
        self._later_from_ms = 0

    # -- proposals ---------------------------------------------------------------------------------

    def propose(
        self,
        vhost: bytes,
        name: bytes,
        birth: int,
        transition: Callable[[Group], Group | None],
        done: Done,
        fence: Fence | None = None,
        rank: int = USUAL,
    ) -> None:
        """Propose to change the group of a mirrored queue; then call `done` with the outcome.

        `transition` is called with the newest group, once for each attempt. `fence` names nodes
        that must not run; if one does, or the group has changed, the proposal is refused. After an
        answer that was lost a decided change may be reported as REFUSED, if others came after it:
        so who needs to know looks at the group. `rank`: see `proposal_queue.py`.
        """

        def edit(put: PutQueue) -> PutQueue | None:
            group = group_of(put)
            changed = None if group is None else transition(group)
            return None if changed is None else with_group(put, changed)

        queues_max = QUEUES_MAX if fence is None else 1
        self._add(Proposal((vhost, name, birth), edit, done, queues_max, fence, rank))

    def propose_first(
        self, vhost: bytes, name: bytes, birth: int, make: Callable[[], Group | None], done: Done
    ) -> None:
        """Propose the first group of a queue that is not mirrored; None: nothing is proposed."""

        def edit(put: PutQueue) -> PutQueue | None:
            group = None if put.group else make()
            return None if group is None else with_group(put, group)

        self._add(Proposal((vhost, name, birth), edit, done, QUEUES_MAX))

    def propose_end(self, vhost: bytes, name: bytes, birth: int, done: Done) -> None:
        """Propose that a queue has no group any more; refused while it has copies elsewhere."""

        def edit(put: PutQueue) -> PutQueue | None:
            group = group_of(put)
            if group is None or group.is_down or group.recoverable != (group.master_node,):
                return None
            return without_group(put)

        self._add(Proposal((vhost, name, birth), edit, done, QUEUES_MAX))

    def hurry(self, vhost: bytes, name: bytes, birth: int) -> None:
        """Let the proposals of a queue be URGENT: somebody waits for them by now."""
        if self._proposals.hurry((vhost, name, birth)):
            self._wake()

    def is_busy(self, vhost: bytes, name: bytes, birth: int) -> bool:
        """Whether a proposal of the queue is under way."""
        return self._proposals.is_busy((vhost, name, birth))

    @property
    def has_room(self) -> bool:
        """Whether more proposals would be sent soon: fewer wait than a transaction takes."""
        return self._proposals.count(URGENT) + self._proposals.count(USUAL) < QUEUES_MAX

    def _add(self, proposal: Proposal) -> None:
        if self._proposals.add(proposal):
            self._wake()

    # -- transactions ------------------------------------------------------------------------------

    def lease_left_ms(self) -> int:
        """See DecisionStore."""
        return self._store.lease_left_ms()

    def lease_birth(self) -> int:
        """See DecisionStore."""
        return self._store.lease_birth()

    def contact_ms(self) -> int:
        """See DecisionStore."""
        return self._store.contact_ms()

    def end_turn(self) -> None:
        """Commit what is due, as far as transactions are free."""
        for rank in RANKS:
            while self._may_commit(rank):
                batch = self._next_batch(rank)
                if batch:
                    self._commit(batch, rank)

    def _may_commit(self, rank: int) -> bool:
        if not self._proposals.count(rank) or self._under_way_count >= _UNDER_WAY[rank]:
            return False
        return rank != LATER or self._clock.now_ms() >= self._later_from_ms

    def _next_batch(self, rank: int) -> list[Proposal]:
        """Take the next proposals that fit in one transaction; those that are refused end here."""
        batch: list[Proposal] = []
        queues_max = QUEUES_MAX
        size = 0
        while (proposal := self._proposals.first(rank)) is not None:
            queues_max = min(queues_max, proposal.queues_max)
            if len(batch) >= queues_max:
                break
            if self._is_made(proposal):
                self._proposals.take(proposal)
                self._end(proposal, DECIDED)
                continue
            change = self._edited(proposal)
            if change is None:
                self._proposals.take(proposal)
                self._end(proposal, REFUSED)
                continue
            size += len(value_of(change))
            if batch and size > BYTES_MAX:
                break
            self._proposals.take(proposal)
            batch.append(proposal)
        return batch

    def _edited(self, proposal: Proposal) -> PutQueue | None:
        """The change that the proposal makes of the queue as it is now, None if it is refused."""
        proposal.change = None
        proposal.read = put = self._definition(proposal.key)
        if put is not None:
            try:
                proposal.change = proposal.edit(put)
            except MetadataDamaged as error:
                logger.error("queue '%s' cannot change: %s", name_text(put.name), error)
        return proposal.change

    def _is_made(self, proposal: Proposal) -> bool:
        """Whether the queue has, by now, the change of an attempt that had no success."""
        change, now = proposal.change, self._definition(proposal.key)
        if change is None or now is None:
            return False
        is_newer = now.revision > change.revision
        return is_newer and (now.group, now.node) == (change.group, change.node)

    def _definition(self, key: QueueKey) -> PutQueue | None:
        vhost, name, birth = key
        found = self._copy.queues.get((vhost, name))
        return found if found is not None and found.birth == birth else None

    def _commit(self, batch: list[Proposal], rank: int) -> None:
        conditions: list[Condition] = []
        changes: list[Change] = []
        now_ms = self._clock.now_ms()
        for proposal in batch:
            assert proposal.read is not None and proposal.change is not None
            proposal.deadline_ms = proposal.deadline_ms or now_ms + DECIDE_MS
            conditions.append(LastWritten(proposal.read, proposal.read.revision))
            conditions.extend(_absent(proposal))
            changes.append(proposal.change)

        def on_result(result: CommitResult) -> None:
            self._under_way_count -= 1
            if rank == LATER:
                self._pause_later(self._clock.now_ms() - now_ms)
            self._on_result(batch, result)

        self._under_way_count += 1
        self._store.commit(conditions, changes, on_result)

    def _pause_later(self, took_ms: int) -> None:
        """Let a transaction of the rank LATER that `took_ms` be followed by a pause.

        The store answers or fails within DECIDE_MS. The rest of a longer time this node itself
        stood still, which says nothing about the store.
        """
        pause_ms = LATER_PAUSES * min(max(took_ms, 0), DECIDE_MS)
        self._later_from_ms = self._clock.now_ms() + pause_ms
        self._clock.call_later(pause_ms, self._wake)

    def _on_result(self, batch: list[Proposal], result: CommitResult) -> None:
        if result.revision:
            self._when_followed(result.revision, lambda: self._end_all(batch))
        elif result.failure:
            self._clock.call_later(RETRY_MS, lambda: self._try_again(batch))
        elif batch[0].fence is not None:
            self._end(batch[0], REFUSED)
        else:
            for proposal in batch:
                proposal.queues_max = max(1, len(batch) // 2)
            # Wait, as this node may not have followed yet the change that was decided first.
            self._clock.call_later(LOOK_AGAIN_MS, lambda: self._try_again(batch))
        self._wake()

    def _try_again(self, batch: list[Proposal]) -> None:
        now_ms = self._clock.now_ms()
        for proposal in batch:
            if now_ms > proposal.deadline_ms:
                self._end(proposal, DECIDED if self._is_made(proposal) else UNANSWERED)
            else:
                self._proposals.again(proposal)
        self._wake()

    def _end_all(self, batch: list[Proposal]) -> None:
        for proposal in batch:
            self._end(proposal, DECIDED)

    def _end(self, proposal: Proposal, outcome: int) -> None:
        if self._proposals.end(proposal):
            self._wake()
        proposal.done(outcome)


def _absent(proposal: Proposal) -> list[Condition]:
    """The conditions that the fenced nodes of a proposal do not run."""
    group = None if proposal.read is None else group_of(proposal.read)
    if proposal.fence is None or group is None:
        return []
    return [NodeIs(node, 0) for node in sorted(proposal.fence(group))]
