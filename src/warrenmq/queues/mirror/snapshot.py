"""The seq ids of the messages that a node has of a queue, which two copies compare.

No content is read for that. Messages in memory are known. Of those on disk only, a queue knows the
range and the count, and which seq ids of the range are settled. The seq ids that are not settled
are the messages, if they are as many as the queue has there. They are more after a restart that has
lost transient messages, as nothing in memory tells which ones these were: then the positions are
read from the index (`LiveScan`).

A queue may have its messages in a great many runs, so it is looked through in slices
(`sliced_work.py`), and may change between two of them. Every message that it has all the while is
found, and none that it did not have at the beginning. What is on disk is found as it was then;
memory is looked through from the oldest message on. A message that goes to the disk before it is
its turn would be missed: then the search begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.backing.entry_deque import EntryDeque
from warrenmq.queues.backing.loader import Load
from warrenmq.queues.backing.variable_queue import VariableQueue
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.mirror.sliced_runs import merged, subtracted
from warrenmq.queues.mirror.sliced_work import SlicedWork
from warrenmq.queues.turn import SLICE_MESSAGES
from warrenmq.store.model.epochs import Epochs
from warrenmq.store.model.message import Position
from warrenmq.store.model.runs import Runs, add_run, contains, index_of_run

# Runs of messages in memory that are found in one piece of work. Each takes a binary search.
_PIECE_RUNS: Final = 64
# Steps that such a run takes.
_STEPS_A_RUN: Final = 4
# Runs of a list that are copied in a step.
_COPIED_A_STEP: Final = 256


class LevelCopy:
    """The messages that a node has of one level of a queue."""

    def __init__(self, level: i64, next_seq: i64, epochs: Epochs, runs: Runs) -> None:
        # The priority of the level.
        self.level: i64 = level
        # A mirror takes messages from this seq id on only, in order (`MirrorBacking.fill`).
        self.next_seq: i64 = next_seq
        # Rows (epoch, first seq id). They say less than `runs`, as seq ids are never used twice.
        self.epochs: Epochs = epochs
        # Seq ids of the messages, all below `next_seq`.
        self.runs: Runs = runs


def describe_copy(queue: LeveledQueue, done: Callable[[list[LevelCopy]], None]) -> None:
    """Pass to `done`, at once or later, what this node has of each level of a mirrored queue.

    The node is a mirror, which gets no message below the next seq id meanwhile. A message that may
    be unreadable counts as missing.
    """
    SlicedWork(queue.backing.host, _describe(queue, done)).start()


def _describe(queue: LeveledQueue, done: Callable[[list[LevelCopy]], None]) -> Iterator[int]:
    copies: list[LevelCopy] = []
    for backing in queue.backings():
        ledger = backing.ledger
        next_seq = ledger.next_seq
        search = LiveSearch(backing, next_seq)
        yield from search.pieces()
        if not search.is_exact:
            search = LiveSearch(backing, next_seq, [], 0, next_seq)
            yield from search.pieces()
        level = queue.level_of(ledger)
        copies.append(LevelCopy(level, next_seq, list(ledger.epochs), search.runs))
    done(copies)


class LiveSearch:
    """Finds the seq ids below `end` of all messages of `contents`, ready and unacked.

    `pieces` does it, piece by piece. `found`: seq ids in the index, of which some are settled, if
    the index had to be read; they are all in [`start`, `stop`). None: memory may know enough.
    """

    def __init__(
        self,
        contents: QueueContents,
        end: i64,
        found: Runs | None = None,
        start: i64 = 0,
        stop: i64 = 0,
    ) -> None:
        # The result.
        self.runs: Runs = []
        # Whether memory knows which messages are on disk; if not, nothing is searched for.
        self.is_exact: bool = True
        self._contents: QueueContents = contents
        self._end: i64 = end
        self._found: Runs | None = found
        # Delta was in [start, stop) when the search began; empty: there was none.
        self._start: i64 = start
        self._stop: i64 = stop
        # Messages on disk, and in memory.
        self._on_disk: Runs = []
        self._in_memory: Runs = []

    def pieces(self) -> Iterator[int]:
        """Search; see `sliced_work.py`. A queue that is deleted meanwhile has no messages."""
        contents = self._contents
        while not contents.is_deleted:
            yield from self._read_disk()
            if not self.is_exact:
                return
            cursor: i64 = 0
            self._in_memory = []
            while cursor < self._end and not self._has_grown(cursor):
                before = len(self._in_memory)
                cursor = self._read_memory(cursor)
                yield 1 + _STEPS_A_RUN * (len(self._in_memory) - before)
            if cursor >= self._end:
                break
            if self._found is not None:
                # The index has to be read again.
                self.is_exact = False
                return
        if not contents.is_deleted:
            yield from merged(self._on_disk, self._in_memory, self.runs)

    def _read_disk(self) -> Iterator[int]:
        """Find what is in delta at this moment, the unacked messages in its range among it."""
        contents = self._contents
        delta = contents.ready.delta
        base = self._found
        self._on_disk = []
        if base is None:
            self._start = self._stop = 0
            if delta.count == 0:
                return
            if delta.is_uncertain:
                self.is_exact = False
                return
            self._start = delta.start
            self._stop = delta.end
            base = [(delta.start, delta.end - 1)]
        if len(base) == 0:
            return
        count = delta.count
        unacked: list[int] = []
        if self._found is None and contents.unacked.count > 0:
            for entry in contents.find_unacked(self._start, self._stop):
                unacked.append(entry.seq)
            unacked.sort()
        settled = _settled_runs(contents, base[0][0], base[-1][1])
        yield 1 + sum([len(runs) for runs in settled]) // _COPIED_A_STEP
        on_disk = self._on_disk
        place: i64 = 0
        for steps in subtracted(base, settled, on_disk):
            count -= count_of(on_disk[place:])
            place = len(on_disk)
            yield steps
        if self._found is None:
            count -= count_of(on_disk[place:])
            for seq in unacked:
                if contains(on_disk, seq):
                    count += 1
            self.is_exact = count == 0

    def _read_memory(self, cursor: i64) -> i64:
        """Find the next messages in memory from `cursor` on; returns what follows `cursor`."""
        contents = self._contents
        runs: Runs = []
        end = _ready_runs(contents.ready, cursor, self._end, runs)
        account = contents.unacked
        if account.count > 0 and cursor <= account.highest_seq:
            seqs: list[int] = []
            for entry in contents.find_unacked(cursor, end):
                seqs.append(entry.seq)
            seqs.sort()
            for seq in seqs:
                add_run(runs, seq, seq)
        self._in_memory.extend(runs)
        return end

    def _has_grown(self, cursor: i64) -> bool:
        """Whether messages from `cursor` on have gone to the disk since it was read."""
        delta = self._contents.ready.delta
        if delta.count == 0:
            return False
        if delta.start < self._start and cursor < min(self._start, delta.end):
            return True
        return max(self._stop, cursor, delta.start) < min(delta.end, self._end)


class LiveScan(Load):
    """Finds the messages of `contents` below the seq id `end`; -1: all.

    Calls `done` with their seq ids, at once or later. A deleted queue has no messages.
    """

    def __init__(
        self, contents: QueueContents, done: Callable[[Runs], None], end: i64 = -1
    ) -> None:
        super().__init__()
        self._contents: QueueContents = contents
        self._done: Callable[[Runs], None] = done
        self._end: i64 = contents.ledger.next_seq if end < 0 else end
        self._found: Runs = []
        # The scan has read the index in [first, next).
        self._first: i64 = 0
        self._next: i64 = 0

    def start(self) -> None:
        """Begin the scan."""
        self._search(LiveSearch(self._contents, self._end))

    def begin(self) -> bool:
        contents = self._contents
        end = contents.ready.delta.end
        if contents.is_deleted or self._next >= end:
            search = LiveSearch(contents, self._end, self._found, self._first, self._next)
            self._search(search)
            return False
        contents.store.load_positions(self._next, end, SLICE_MESSAGES, self)
        return True

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        contents = self._contents
        contents.loader.end(self)
        for position in positions:
            add_run(self._found, position.seq, position.seq)
        self._next = next_seq
        delta = contents.ready.delta
        if delta.count > 0 and delta.start < self._first:
            # Older messages have left memory.
            self._restart()
        else:
            contents.loader.submit(self)
        contents.loader.start_next()
        contents.serve_demand()

    def _restart(self) -> None:
        self._found = []
        self._first = self._contents.ready.delta.start
        self._next = self._first
        self._contents.loader.submit(self)

    def _search(self, search: LiveSearch) -> None:
        SlicedWork(self._contents.host, self._pieces(search)).start()

    def _pieces(self, search: LiveSearch) -> Iterator[int]:
        yield from search.pieces()
        if search.is_exact:
            self._done(search.runs)
        else:
            self._restart()


def count_of(runs: Runs) -> i64:
    """How many seq ids `runs` have together."""
    count: i64 = 0
    for first, last in runs:
        count += last - first + 1
    return count


def _settled_runs(contents: QueueContents, first: i64, last: i64) -> list[Runs]:
    """Seq ids in the index that are settled, as far as memory knows: lists for [first, last]."""
    ledger = contents.ledger
    known = [contents.loader.dropped]
    index = ledger.index
    if index is not None:
        known += [index.settled, index.settled_transient, ledger.indexed.gathered()]
    # Copies: the lists change between two pieces of work.
    return [runs[index_of_run(runs, first) : index_of_run(runs, last) + 1] for runs in known]


def _ready_runs(ready: VariableQueue, first: i64, end: i64, runs: Runs) -> i64:
    """Append the seq ids of the next entries in [first, end) to `runs`, which is empty.

    Returns the seq id up to which that is all of them.
    """
    for part in (ready.q4, ready.q3, ready.q2, ready.q1):
        place = part.index_of_seq(first)
        while place < part.count:
            seq = part.at(place).seq
            if seq >= end:
                return end
            if len(runs) == _PIECE_RUNS:
                return seq
            stop = _end_of_run(part, place, seq - place)
            last: i64 = min(seq + stop - place, end) - 1
            if len(runs) > 0 and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], last)
            else:
                runs.append((seq, last))
            place = stop
    return end


def _end_of_run(part: EntryDeque, place: i64, offset: i64) -> i64:
    """The place behind the run of seq ids that begins at `place`, `offset` above their places.

    It is searched for, as a queue of a million messages has few runs.
    """
    # A place of the run, and `end` below one that is not.
    inside = place
    step: i64 = 1
    while inside + step < part.count and part.at(inside + step).seq - inside - step == offset:
        inside += step
        step *= 2
    end = min(inside + step, part.count)
    while end - inside > 1:
        middle = (inside + end) >> 1
        if part.at(middle).seq - middle == offset:
            inside = middle
        else:
            end = middle
    return end
