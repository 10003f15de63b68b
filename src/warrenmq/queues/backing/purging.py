"""A purge under way: messages that have left their queue and are settled a slice at a time (W19).

A purge takes its messages, and their count, out of the queue at once; settling them takes time.
Messages in memory are settled one by one. Whole segments of delta are settled at once where no
message is unacked and no content store holds anything of them (the store knows). For the rest of
delta the positions are read from the index, without contents, and settled one by one. When the
purge is answered, all messages are settled and the acks are on their way into the journal: after a
crash a purged message returns no more than an acked one.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.queues.backing.contents import QueueContents, runs_between
from warrenmq.queues.backing.entry_deque import EntryDeque
from warrenmq.queues.backing.loader import Load
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import PURGED
from warrenmq.queues.turn import DONE, SLICE_MESSAGES, TurnShare, TurnShares
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.store.model.message import INDEXED, Position
from warrenmq.store.model.runs import Runs, add_run


class Purge:
    """One purge of `count` messages; `parts` and `ranges` of seq ids (`_cut`) are left to settle.

    `out`: the messages that are unacked at the beginning, which the purge spares. `is_end`: the
    queue is deleted. Its index is then deleted as a whole, so only messages that are not in the
    index have to be settled.
    """

    def __init__(
        self,
        contents: QueueContents,
        count: i64,
        parts: list[EntryDeque],
        ranges: list[tuple[i64, i64, bool]],
        out: list[Entry],
        is_end: bool,
    ) -> None:
        self.contents: QueueContents = contents
        self.count: i64 = count
        self.is_done: bool = False
        # Called once with the time, when all messages are settled.
        self.when_done: Callable[[int], None] | None = None
        self.is_loading: bool = False
        self.is_end: bool = is_end
        self.out: set[int] = set()
        for entry in out:
            self.out.add(entry.seq)
        self._parts: list[EntryDeque] = parts
        # Positions of the last read from the index, of which `_place` are settled.
        self._loaded: list[Position] = []
        self._place: i64 = 0
        self._ranges: list[tuple[i64, i64, bool]] = ranges

    def settle_slice(self, limit: i64, now_ms: i64) -> i64:
        """Settle at most `limit` messages or ranges; returns the number."""
        handled: i64 = 0
        while handled < limit and len(self._parts) > 0:
            part = self._parts[-1]
            if part.count == 0:
                self._parts.pop()
                continue
            entry = part.pop_left()
            handled += 1
            if not self.is_end or entry.journal_state != INDEXED:
                self.contents.store.settle(entry, now_ms)
        handled += self._settle_loaded(limit - handled, now_ms)
        while (
            handled < limit
            and not self.is_loading
            and not self._is_memory_left()
            and len(self._ranges) > 0
        ):
            handled += 1
            self._settle_range(now_ms)
        is_left = self._is_memory_left() or len(self._ranges) > 0 or self.is_loading
        if not is_left and not self.is_done:
            self._finish(now_ms)
        return handled

    def on_loaded(self, positions: list[Position], next_seq: i64, end: i64) -> None:
        """Take positions that have to be settled one by one."""
        self.is_loading = False
        self._loaded = positions
        self._place = 0
        if next_seq < end:
            self._ranges.append((next_seq, end, False))

    def _is_memory_left(self) -> bool:
        return len(self._parts) > 0 or len(self._loaded) > 0

    def _settle_loaded(self, limit: i64, now_ms: i64) -> i64:
        place = self._place
        end: i64 = min(place + limit, len(self._loaded))
        while self._place < end:
            position = self._loaded[self._place]
            self._place += 1
            if len(self.out) == 0 or position.seq not in self.out:
                self.contents.store.settle(position, now_ms)
        if end == len(self._loaded):
            self._loaded = []
            self._place = 0
        return end - place

    def _settle_range(self, now_ms: i64) -> None:
        first, end, is_whole = self._ranges.pop()
        if is_whole:
            end = self.contents.store.settle_range(first, end, now_ms)
        if first < end:
            self.is_loading = True
            self.contents.loader.submit(_PurgeLoad(self, first, end))

    def _finish(self, now_ms: i64) -> None:
        self.is_done = True
        if self.is_end:
            self.contents.store.delete()
            self.contents.loader.unlink()
        done = self.when_done
        self.when_done = None
        if done is not None:
            done(now_ms)


class QueuePurge(ConfirmWaiter):
    """The purges of all levels of one queue, as one: `count` messages.

    `copies`: the party of a queue with copies on other nodes. The purge is done when they have
    dropped the messages, too: a copy that takes over would bring them back.
    """

    def __init__(self, purges: list[Purge], copies: ConfirmParty | None = None) -> None:
        self.count: i64 = 0
        # Called once with the time, when all messages are settled.
        self.when_done: Callable[[int], None] | None = None
        # Copies may have the messages still: one has taken over, or too few are in sync, or one has
        # not answered for long.
        self.has_failed: bool = False
        self._left: i64 = 0
        self._turns: TurnShares = purges[0].contents.host
        for purge in purges:
            self.count += purge.count
            if not purge.is_done:
                self._left += 1
                purge.when_done = self.on_part_done
        if copies is not None and self.count > 0:
            self._left += 1
            copies.runs.append(ConfirmRun(self, 1, 1))

    @property
    def is_done(self) -> bool:
        """Whether all messages are settled."""
        return self._left == 0

    def on_decided(self, run: ConfirmRun) -> None:
        self.has_failed = not run.ok
        _CopiesDecided(self, self._turns).ask_for_turn()

    def on_part_done(self, now_ms: int) -> None:
        """Note that the messages of a level, or those of the copies, are settled."""
        self._left -= 1
        done = self.when_done
        if self._left == 0 and done is not None:
            self.when_done = None
            done(now_ms)


class _CopiesDecided(TurnShare):
    """Tells `purge` about its copies in a turn, which knows the time."""

    def __init__(self, purge: QueuePurge, turns: TurnShares) -> None:
        super().__init__(turns)
        self._purge: QueuePurge = purge

    def run_slice(self, now_ms: i64) -> i64:
        self.is_listed = False
        self._purge.on_part_done(now_ms)
        return DONE

    def is_wanted(self) -> bool:
        return False


class Purges:
    """The purges of one queue, the oldest first; they are settled one after the other."""

    def __init__(self) -> None:
        self.waiting: list[Purge] = []
        # Inclusive runs of seq ids that left delta one run at a time, gathered for the next purge.
        self._runs: Runs = []

    def is_empty(self) -> bool:
        """Whether nothing is left to settle."""
        return len(self.waiting) == 0 and len(self._runs) == 0

    def add_range(self, contents: QueueContents, first: i64, end: i64) -> None:
        """Settle [first, end) in later turns: messages that have left delta and are not unacked.

        Ranges that gather while a purge is under way become one, so that neighbours are read
        together.
        """
        add_run(self._runs, first, end - 1)
        contents.ask_for_turn()

    def begin(self, contents: QueueContents, is_end: bool, now_ms: i64) -> Purge:
        """Take every ready message out of `contents` and settle a first slice of them at once."""
        ready = contents.ready
        delta = ready.delta
        first = delta.start
        end = delta.end
        out: list[Entry] = []
        if (
            delta.count > 0
            and contents.unacked.count > 0
            and first <= contents.unacked.highest_seq
            and not is_end
        ):
            out = contents.find_unacked(first, end)
        feed = contents.feed
        if is_end:
            self._runs = []
        elif feed is not None:
            feed.settled_runs(_ready_runs(contents, out), PURGED)
        contents.loader.make_stale(ready)
        count = ready.count
        ranges: list[tuple[i64, i64, bool]] = []
        if not is_end:
            ranges = _cut(first, end, out, contents.host.segment_entries)
        purge = Purge(contents, count, ready.take_all(), ranges, out, is_end)
        if not is_end:
            contents.recount_transient()
        if len(self.waiting) == 0:
            purge.settle_slice(SLICE_MESSAGES, now_ms)
        if not purge.is_done:
            self.waiting.append(purge)
            if not purge.is_loading:
                contents.ask_for_turn()
        return purge

    def settle_slice(self, contents: QueueContents, now_ms: i64) -> bool:
        """Settle one slice; True when more can be done without waiting for a load."""
        waiting = self.waiting
        if len(waiting) == 0:
            if len(self._runs) == 0:
                return False
            waiting.append(self._purge_of_runs(contents))
        purge = waiting[0]
        contents.steps_used += purge.settle_slice(SLICE_MESSAGES, now_ms)
        if purge.is_done:
            waiting.pop(0)
        if len(waiting) == 0:
            return len(self._runs) > 0
        return not waiting[0].is_loading

    def _purge_of_runs(self, contents: QueueContents) -> Purge:
        ranges: list[tuple[i64, i64, bool]] = []
        count: i64 = 0
        for first, last in reversed(self._runs):
            count += last - first + 1
            ranges.extend(_cut(first, last + 1, [], contents.host.segment_entries))
        self._runs = []
        return Purge(contents, count, [], ranges, [], False)


class _PurgeLoad(Load):
    def __init__(self, purge: Purge, first: i64, end: i64) -> None:
        super().__init__()
        self._purge: Purge = purge
        self._first: i64 = first
        self._end: i64 = end

    def begin(self) -> bool:
        self._purge.contents.store.load_positions(self._first, self._end, SLICE_MESSAGES, self)
        return True

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        # `Purge.out` spares positions that are unacked or were settled meanwhile. None of the
        # positions enters the queue.
        contents = self._purge.contents
        contents.loader.end(self)
        self._purge.on_loaded(positions, next_seq, self._end)
        contents.ask_for_turn()
        contents.loader.start_next()
        contents.serve_demand()


def _ready_runs(contents: QueueContents, out: list[Entry]) -> Runs:
    """The ready messages as runs: entries in memory, and delta without its unacked ones, `out`."""
    ready = contents.ready
    runs: Runs = []
    for place in range(ready.entry_count):
        add_run(runs, ready.at(place).seq, ready.at(place).seq)
    if ready.delta.count > 0:
        out.sort()
        for first, last in runs_between(ready.delta.start, ready.delta.end, out):
            add_run(runs, first, last)
    return runs


def _cut(
    first: i64, end: i64, out: list[Entry], segment_entries: i64
) -> list[tuple[i64, i64, bool]]:
    """[first, end) cut into parts, the last one first.

    True: whole segments without unacked messages; False: the parts between.
    """
    blocked: set[int] = set()
    for entry in out:
        blocked.add(entry.seq // segment_entries)
    parts: list[tuple[i64, i64, bool]] = []
    start = first
    while start < end:
        number = start // segment_entries
        stop: i64 = min(end, (number + 1) * segment_entries)
        is_whole = (
            start == number * segment_entries
            and stop - start == segment_entries
            and number not in blocked
        )
        if len(parts) > 0 and parts[-1][2] == is_whole and parts[-1][1] == start:
            parts[-1] = (parts[-1][0], stop, is_whole)
        else:
            parts.append((start, stop, is_whole))
        start = stop
    parts.reverse()
    return parts
