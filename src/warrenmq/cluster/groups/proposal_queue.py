"""The order in which proposals of groups become due: by rank, one of each queue at a time."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Final

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group import Group

# Ranks of proposals. URGENT: somebody waits for a change of this very queue. USUAL: the queue is
# to be served, or to have its copies. LATER: the change only tidies the record of the group.
URGENT: Final = 0
USUAL: Final = 1
LATER: Final = 2
RANKS: Final = (URGENT, USUAL, LATER)
_NOT_DUE: Final = -1

# A queue, in one life: vhost, name, birth.
QueueKey = tuple[bytes, bytes, int]
Done = Callable[[int], None]
# Changes the definition of a queue as a proposal wants; None: the proposal is refused.
Edit = Callable[[PutQueue], PutQueue | None]
# Nodes that must not run for a change that was made from this group.
Fence = Callable[[Group], Collection[bytes]]


class Proposal:
    """A change of one queue; up to `queues_max` queues may share its first transaction.

    `fence`: see `GroupProposer.propose`.
    """

    def __init__(
        self,
        key: QueueKey,
        edit: Edit,
        done: Done,
        queues_max: int,
        fence: Fence | None = None,
        rank: int = USUAL,
    ) -> None:
        self.key = key
        self.edit = edit
        self.done = done
        self.fence = fence
        self.rank = rank
        # When the proposal fails unless it is decided (ms); 0 before the first attempt.
        self.deadline_ms = 0
        # Queues that its next transaction may have.
        self.queues_max = queues_max
        # The definition that the last attempt has read, and the change that it has proposed.
        self.read: PutQueue | None = None
        self.change: PutQueue | None = None
        # Among which proposals it waits for an attempt; _NOT_DUE: it does not.
        self.due_rank = _NOT_DUE


class ProposalQueue:
    """Proposals that wait for an attempt, oldest first in each rank.

    The first proposal of a queue is due, or an attempt at it is under way; the others wait behind
    it. A proposal is due in the highest rank of those behind it, so that none of them waits longer
    than its own rank would have it.
    """

    def __init__(self) -> None:
        self._chains: dict[QueueKey, deque[Proposal]] = {}
        self._due: tuple[OrderedDict[Proposal, None], ...] = tuple(OrderedDict() for _ in RANKS)

    def add(self, proposal: Proposal) -> bool:
        """Take in a new proposal; returns whether that has made one due, or due earlier."""
        chain = self._chains.get(proposal.key)
        if chain is None:
            chain = self._chains[proposal.key] = deque()
        chain.append(proposal)
        is_under_way = len(chain) > 1 and chain[0].due_rank == _NOT_DUE
        return not is_under_way and self._enter(chain)

    def hurry(self, key: QueueKey) -> bool:
        """Let all proposals of a queue be urgent; returns whether one is due earlier by that."""
        chain = self._chains.get(key)
        if chain is None:
            return False
        for proposal in chain:
            proposal.rank = URGENT
        return chain[0].due_rank != _NOT_DUE and self._enter(chain)

    def first(self, rank: int) -> Proposal | None:
        """The proposal whose turn is next in a rank."""
        return next(iter(self._due[rank]), None)

    def count(self, rank: int) -> int:
        """How many proposals are due in a rank."""
        return len(self._due[rank])

    def take(self, proposal: Proposal) -> None:
        """Begin an attempt at a proposal that was due."""
        del self._due[proposal.due_rank][proposal]
        proposal.due_rank = _NOT_DUE

    def again(self, proposal: Proposal) -> None:
        """Let a proposal be due once more: the attempt at it had no success."""
        self._enter(self._chains[proposal.key])

    def end(self, proposal: Proposal) -> bool:
        """Forget a proposal that is not due; returns whether the next one of its queue is now."""
        chain = self._chains[proposal.key]
        chain.popleft()
        if chain:
            return self._enter(chain)
        del self._chains[proposal.key]
        return False

    def is_busy(self, key: QueueKey) -> bool:
        """Whether a queue has a proposal, due or not."""
        return key in self._chains

    def _enter(self, chain: deque[Proposal]) -> bool:
        first = chain[0]
        rank = min(proposal.rank for proposal in chain)
        if first.due_rank == rank:
            return False
        if first.due_rank != _NOT_DUE:
            self.take(first)
        self._due[rank][first] = None
        first.due_rank = rank
        return True
