"""Which messages a node has of a queue, as seq ids: what two copies of it compare.

No content is read for that. Messages in memory are known. Of those on disk only, a queue knows the
range and the count, and which seq ids of the range are settled. The seq ids that are not settled
are the messages, if they are as many as the queue has there. They are more after a restart that has
lost transient messages, as nothing in memory tells which ones these were: then the positions are
read from the index (`LiveScan`).
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.queues.contents import QueueContents
from warrenmq.queues.entry_ring import EntryRing
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.loader import Load
from warrenmq.queues.turn import SLICE_MESSAGES
from warrenmq.store.epochs import Epochs
from warrenmq.store.message import Position
from warrenmq.store.runs import Runs, add_run, merge_runs, subtract


class LevelCopy:
    """What a node has of one level of a queue."""

    def __init__(self, level: i64, next_seq: i64, epochs: Epochs, runs: Runs) -> None:
        # The priority of the level.
        self.level: i64 = level
        # A mirror takes messages from this seq id on only, in order (`MirrorBacking.fill`).
        self.next_seq: i64 = next_seq
        # Rows (epoch, first seq id). They say less than `runs`, as seq ids are never used twice.
        self.epochs: Epochs = epochs
        # Seq ids of the messages, all below `next_seq`.
        self.runs: Runs = runs


def describe_copy(queue: LeveledQueue) -> list[LevelCopy]:
    """What this node has of each level of a mirrored queue, as a mirror.

    A message that may be unreadable counts as missing.
    """
    copies: list[LevelCopy] = []
    for backing in queue.backings():
        ledger = backing.ledger
        runs = live_runs(backing)
        if runs is None:
            runs = _in_memory(backing)
        copies.append(LevelCopy(queue.level_of(ledger), ledger.next_seq, list(ledger.epochs), runs))
    return copies


def live_runs(contents: QueueContents) -> Runs | None:
    """Seq ids of all messages, ready and unacked; None: only a scan of the index could tell."""
    delta = contents.ready.delta
    if delta.count == 0:
        return _in_memory(contents)
    if delta.is_uncertain:
        return None
    on_disk = _without_settled(contents, [(delta.start, delta.end - 1)])
    known = _in_memory(contents)
    on_disk = _without(on_disk, known)
    if count_of(on_disk) != delta.count:
        return None
    known.extend(on_disk)
    return merge_runs(known)


def count_of(runs: Runs) -> i64:
    """How many seq ids `runs` have together."""
    count: i64 = 0
    for first, last in runs:
        count += last - first + 1
    return count


class LiveScan(Load):
    """Finds the messages of `contents`; calls `done` with their seq ids, at once or later.

    Meanwhile the queue may change. A message that is settled during the scan may be among the
    result, a message that leaves or enters memory is. A deleted queue has no messages.
    """

    def __init__(self, contents: QueueContents, done: Callable[[Runs], None]) -> None:
        super().__init__()
        self._contents: QueueContents = contents
        self._done: Callable[[Runs], None] = done
        self._found: Runs = []
        # The scan has read the index in [first, next).
        self._first: i64 = 0
        self._next: i64 = 0

    def start(self) -> None:
        """Begin the scan."""
        runs = live_runs(self._contents)
        if runs is not None:
            self._done(runs)
            return
        self._restart()

    def begin(self) -> bool:
        contents = self._contents
        end = contents.ready.delta.end
        if contents.is_deleted or self._next >= end:
            self._finish()
            return False
        contents.store.load_positions(self._next, end, SLICE_MESSAGES, self)
        return True

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
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

    def _finish(self) -> None:
        contents = self._contents
        if contents.is_deleted:
            self._done([])
            return
        runs = _without_settled(contents, self._found)
        runs.extend(_in_memory(contents))
        self._done(merge_runs(runs))


def _in_memory(contents: QueueContents) -> Runs:
    """Seq ids of the messages whose positions are in memory."""
    runs: Runs = []
    ready = contents.ready
    for ring in (ready.q4, ready.q3, ready.q2, ready.q1):
        _add_ring(runs, ring)
    if contents.unacked.count > 0:
        for entry in contents.find_unacked(0, contents.ledger.next_seq):
            add_run(runs, entry.seq, entry.seq)
    return runs


def _add_ring(runs: Runs, ring: EntryRing) -> None:
    """Append the seq ids of a ring to `runs`, which end before them."""
    count = ring.count
    place: i64 = 0
    while place < count:
        first = ring.at(place).seq
        end = _end_of_run(ring, place, first - place)
        last = first + end - place - 1
        if len(runs) > 0 and runs[-1][1] == first - 1:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
        place = end


def _end_of_run(ring: EntryRing, place: i64, offset: i64) -> i64:
    """The place behind the run of seq ids that begins at `place`, `offset` above their places.

    It is searched for, as a queue of a million messages has few runs.
    """
    # A place of the run, and `end` below one that is not.
    inside = place
    step: i64 = 1
    while inside + step < ring.count and ring.at(inside + step).seq - inside - step == offset:
        inside += step
        step *= 2
    end = min(inside + step, ring.count)
    while end - inside > 1:
        middle = (inside + end) >> 1
        if ring.at(middle).seq - middle == offset:
            inside = middle
        else:
            end = middle
    return end


def _without_settled(contents: QueueContents, runs: Runs) -> Runs:
    """`runs` of seq ids in the index without those that are settled, as far as memory knows."""
    ledger = contents.ledger
    left = _without(runs, contents.loader.dropped)
    index = ledger.index
    if index is not None:
        left = _without(left, index.settled)
        left = _without(left, index.settled_transient)
        left = _without(left, ledger.indexed.gathered())
    return left


def _without(runs: Runs, others: Runs) -> Runs:
    left: Runs = []
    for first, last in runs:
        left.extend(subtract(first, last, others))
    return left
