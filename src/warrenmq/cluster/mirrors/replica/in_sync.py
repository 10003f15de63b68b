"""Which publishes of a mirrored queue may be confirmed: those that all copies in sync have.

It also tells which copies lack an operation, whether a publish waits for it or not: a copy that
misses what consumers have acked would bring it back if it took over.

A confirm waits for the master's journal and for every mirror in the recorded set of copies in sync
(I1). Only a recorded change of the group takes a mirror out of the set (I2): a master that cannot
record the change cannot confirm without the mirror. A mirror counts before it is recorded, from
`admit` on, so that nothing is confirmed without it while the decision is on its way (I3).

A copy that cannot be left out, because the cluster decides nothing, keeps confirms waiting for
HELD_MS. After that time publishes are refused, also later ones, until the copies have those that
were refused: these are in the queue all the same.

The publishes of a turn share a party. At the end of the turn they become ring messages, and the
party waits until each mirror that counts has reported the last of these as durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from warrenmq.cluster.mirrors.replica.mirror_lag import SentLog
from warrenmq.cluster.mirrors.silences import SILENT_MS
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.store.journal.confirm_run import ConfirmParty, finish_together
from warrenmq.store.journal.journal import Journal

# Bytes of operations that mirrors lack from which on publishers have to wait.
ROOM_BYTES: Final = 8 * 1024 * 1024

# A mirror that reports now and then, but is this far behind, is late (F22).
BEHIND_MS: Final = 8000
# The master's own journal hangs when it has kept a confirm waiting for this time.
HANGING_MS: Final = 5000
# Publishes that have waited for their confirm for this time are refused.
HELD_MS: Final = 30_000


class MirrorParty:
    """The publishes of a turn; `confirms` is what they wait for.

    `first_batch`: number of the journal batch that gathered at the first of them.
    """

    def __init__(self, first_batch: int) -> None:
        self.confirms: ConfirmParty = ConfirmParty()
        self.first_batch: int = first_batch
        # The last ring message with something of the turn; -1 while the turn lasts.
        self.number: int = -1
        self.sealed_ms: int = 0
        # The master's own journal has everything of the turn.
        self.is_durable_here: bool = False
        # It was finished before its mirrors were, because the master's journal has failed.
        self.is_failed: bool = False
        # Its publishes were refused, as it took too long; the copies may still lack them.
        self.is_overdue: bool = False


class InSync(ConfirmSource):
    """The copies in sync of one master in its `epoch`. Nodes are names; times in ms.

    `min_sync`: publishes are refused while fewer copies, the master's included, are in sync.
    """

    def __init__(self, epoch: int, members: Iterable[bytes], min_sync: int = 1) -> None:
        super().__init__()
        # Whether no other copy can have taken over; nothing is confirmed otherwise (F3). None:
        # there is no other copy.
        self.is_master: Callable[[], bool] | None = None
        # The journal of the queue's vhost on this node; None: the queue is transient.
        self.journal: Journal | None = None
        self.epoch: int = epoch
        self.min_sync: int = min_sync
        # The mirrors in the recorded set.
        self._recorded: set[bytes] = set(members)
        # Mirrors that count although the record does not have them yet.
        self._admitted: set[bytes] = set()
        # The ring message up to which each mirror is durable, and when it last reported progress.
        self._marks: dict[bytes, int] = {}
        self._reported_ms: dict[bytes, int] = {}
        # The last mark of each copy that has left the ring.
        self._left_marks: dict[bytes, int] = {}
        # The ring messages that some copy may lack.
        self.sent: SentLog = SentLog()
        # The party of this turn, if something waits for it.
        self._gathering: MirrorParty | None = None
        # Sealed parties, oldest first.
        self._waiting: deque[MirrorParty] = deque()
        # Everything up to this ring message may have been confirmed.
        self.confirmed_upto: int = 0
        # Bytes of operations that were not sent, or have not gone round the ring.
        self.buffered_bytes: int = 0
        # This node is no master any more: nothing is confirmed.
        self.is_lost: bool = False

    # -- publishes ---------------------------------------------------------------------------------

    def party(self) -> ConfirmParty:
        """See ConfirmSource."""
        party = self._gathering
        if party is None:
            journal = self.journal
            first_batch = 0 if journal is None else int(journal.batch.number)
            party = self._gathering = MirrorParty(first_batch)
        return party.confirms

    def has_room(self) -> bool:
        """See ConfirmSource."""
        return self.is_lost or self.buffered_bytes <= ROOM_BYTES

    def is_drained(self) -> bool:
        """See ConfirmSource."""
        return self.is_lost or 2 * self.buffered_bytes <= ROOM_BYTES

    @property
    def is_waiting(self) -> bool:
        """Whether a turn that has ended waits for a copy."""
        return bool(self._waiting)

    def refuses(self) -> bool:
        """Whether publishes are refused: mastership is lost, or too few copies take them."""
        waiting = self._waiting
        is_overdue = bool(waiting) and waiting[0].is_overdue
        return self.is_lost or is_overdue or 1 + len(self._recorded) < self.min_sync

    def seal(self, number: int, now_ms: int) -> MirrorParty | None:
        """End a turn, whose last ring message was `number`; the party that waits for it, if any.

        The caller reports by `durable_here` when the master's journal has the turn.
        """
        party = self._gathering
        self._gathering = None
        if party is None:
            return None
        if self.refuses():
            party.confirms.finish(False)
            return None
        party.number = number
        party.sealed_ms = now_ms
        self._waiting.append(party)
        return party

    # -- what is durable ---------------------------------------------------------------------------

    def durable_here(self, party: MirrorParty, ok: bool) -> None:
        """The master's journal has everything up to the turn of `party`, or has failed."""
        if party.is_failed or party.is_durable_here:
            return
        if ok:
            party.is_durable_here = True
            self.finish_ready()
        else:
            party.is_failed = True
            party.confirms.finish(False)

    def refuse_overdue(self, now_ms: int) -> None:
        """Refuse the publishes that have waited for too long; their parties go on waiting."""
        overdue: list[ConfirmParty] = []
        for party in self._waiting:
            if now_ms - party.sealed_ms < HELD_MS:
                break
            if not party.is_overdue:
                party.is_overdue = True
                overdue.append(party.confirms)
        finish_together(overdue, False)

    def is_hanging_here(self, now_ms: int) -> bool:
        """Whether the master's journal has kept a confirm waiting for too long."""
        for party in self._waiting:
            if not party.is_durable_here and not party.is_failed:
                return now_ms - party.sealed_ms >= HANGING_MS
        return False

    def mark(self, node: bytes, upto: int, now_ms: int) -> None:
        """The copy of `node` has all ring messages up to `upto`. A lower mark changes nothing."""
        if upto <= self._marks.get(node, 0):
            return
        self._marks[node] = upto
        self._reported_ms[node] = now_ms
        self.finish_ready()

    def mark_of(self, node: bytes) -> int:
        """The ring message up to which the copy of `node` is known to be durable."""
        return self._marks.get(node, 0)

    def durable_upto(self, sent_upto: int) -> int:
        """The ring message that all mirrors that count have; `sent_upto` if none counts."""
        return min((self._marks.get(node, 0) for node in self.members), default=sent_upto)

    def forget(self, node: bytes) -> None:
        """The copy of `node` is another one from now on: what was reported of it is void."""
        self._marks.pop(node, None)
        self._left_marks.pop(node, None)
        self._reported_ms.pop(node, None)

    def left(self, node: bytes) -> None:
        """The copy of `node` has left the ring: it reports anew, and has what it had."""
        mark = self._marks.get(node, 0)
        self.forget(node)
        self._left_marks[node] = mark

    def lacks(self, node: bytes) -> bool:
        """Whether the copy of `node` is not known to have all that it must have."""
        return self.lacking_since_ms(node) >= 0

    @property
    def is_behind(self) -> bool:
        """Whether some copy that counts lacks something, as far as is known."""
        return any(self.lacks(node) for node in self.members)

    def lacking_since_ms(self, node: bytes) -> int:
        """Since when the copy lacks something, or keeps a confirm waiting (ms); -1: it does not."""
        mark = self._marks.get(node, 0)
        waiting = self._waiting
        if waiting and waiting[-1].number > mark and node in self.members:
            return next(each.sealed_ms for each in waiting if each.number > mark)
        return self.sent.lacking_since_ms(max(mark, self._left_marks.get(node, 0)))

    # -- members -----------------------------------------------------------------------------------

    @property
    def members(self) -> set[bytes]:
        """The mirrors that count."""
        return self._recorded | self._admitted

    def set_members(self, nodes: Iterable[bytes]) -> None:
        """Let the mirrors of a recorded decision count; those that it admits need `admit` no more.

        Parties that waited for nobody else are finished.
        """
        self._recorded = set(nodes)
        self._admitted -= self._recorded
        self.finish_ready()

    def admit(self, node: bytes) -> bool:
        """Let a mirror count before it is recorded; False: something is confirmed that it lacks."""
        if self.is_lost or self._marks.get(node, 0) < self.confirmed_upto:
            return False
        if node not in self._recorded:
            self._admitted.add(node)
        return True

    def release(self, node: bytes) -> None:
        """The decision to record an admitted mirror has failed for good."""
        self._admitted.discard(node)
        self.finish_ready()

    def count_no_mirrors(self) -> None:
        """Let nothing count but the master's own copy: the queue is mirrored no more."""
        self.is_master = None
        self.min_sync = 1
        self._admitted.clear()
        self.set_members(())

    def late(self, now_ms: int, changed_ms: int = 0) -> set[bytes]:
        """Mirrors that have lacked an operation, or kept a confirm waiting, for too long.

        `changed_ms`: when the ring last changed. A member that was cut off by another one gets all
        its time from then on.
        """
        found = set()
        for node in self.members:
            since_ms = self.lacking_since_ms(node)
            if since_ms < 0:
                continue
            since_ms = max(since_ms, changed_ms)
            silent_ms = now_ms - max(since_ms, self._reported_ms.get(node, 0))
            if silent_ms >= SILENT_MS or now_ms - since_ms >= BEHIND_MS:
                found.add(node)
        return found

    # -- ends --------------------------------------------------------------------------------------

    def fail(self) -> None:
        """Refuse all publishes that wait, and all later ones: this node is no master any more."""
        self.is_lost = True
        self._finish_all(False)

    def end(self) -> None:
        """Confirm all publishes that wait: the queue is deleted, so no copy needs them."""
        self._finish_all(True)

    def _finish_all(self, ok: bool) -> None:
        parties = [party.confirms for party in self._waiting]
        if self._gathering is not None:
            parties.append(self._gathering.confirms)
        self._waiting.clear()
        self._gathering = None
        finish_together(parties, ok)

    def finish_ready(self) -> None:
        """Confirm what may be confirmed: called several times a second, as gates open again."""
        if self.is_master is not None and not self.is_master():
            return
        upto = min((self._marks.get(node, 0) for node in self.members), default=None)
        waiting = self._waiting
        ready: list[ConfirmParty] = []
        while waiting and (
            waiting[0].is_failed
            or (waiting[0].is_durable_here and (upto is None or waiting[0].number <= upto))
        ):
            party = waiting.popleft()
            if not party.is_failed:
                self.confirmed_upto = party.number
                ready.append(party.confirms)
        if ready:
            finish_together(ready, not self.refuses())

    def check(self) -> None:
        """Assert the invariants that hold between two operations, for tests."""
        number = 0
        for party in self._waiting:
            assert number <= party.number
            number = party.number
        assert not self._recorded & self._admitted
