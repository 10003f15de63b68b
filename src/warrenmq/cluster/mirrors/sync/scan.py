"""Compares the copy of a mirror with the master's, before the master sends anything.

A seq id means the same message at every copy for ever (`queues/mirror/ring_feed.py`), so two copies
differ by their seq ids only. What the mirror has and the master has not is settled there: the
master settled it while the mirror was away, or the mirror was a master itself and published what
nobody else got (the divergent tail). What the mirror lacks is missing. A copy grows at its end
only, so the mirror can take what is missing from its next seq id on. If it lacks anything below, it
begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warrenmq.cluster.mirrors.records import MalformedMirrorRecord
from warrenmq.cluster.mirrors.sync.records import LevelRuns, Levels
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.mirror.sliced_runs import subtracted
from warrenmq.queues.mirror.sliced_work import SlicedWork
from warrenmq.queues.mirror.snapshot import LiveScan, count_of
from warrenmq.queues.queue import Queue
from warrenmq.store.model.runs import Runs


class LevelDifference:
    """How one level of a mirror differs from the master's.

    `settled`: seq ids that the mirror must drop. `is_anew`: it lacks messages that it cannot take.
    `common`: how many of the master's messages it has. [`first`, `end`): seq ids of the messages to
    send, as far as they are alive.
    """

    def __init__(
        self, level: int, settled: Runs, is_anew: bool, common: int, first: int, end: int
    ) -> None:
        self.level: int = level
        self.settled: Runs = settled
        self.is_anew: bool = is_anew
        self.common: int = common
        self.first: int = first
        self.end: int = end


class Comparison:
    """The differences between two copies of a level.

    `mine` are the seq ids of the master, `theirs` those of the mirror, all below `next_seq`.
    """

    def __init__(self, mine: Runs, theirs: Runs, next_seq: int) -> None:
        # Seq ids that only the mirror has, and those below `next_seq` that only the master has.
        self.only_theirs: Runs = []
        self.only_mine: Runs = []
        self._mine: Runs = mine
        self._theirs: Runs = theirs
        self._next_seq: int = next_seq

    def pieces(self) -> Iterator[int]:
        """Compare the lists, yielding the steps of each piece (`queues/mirror/sliced_work.py`)."""
        yield from subtracted(self._theirs, [self._mine], self.only_theirs)
        above = [(self._next_seq, max(self._next_seq, self._mine[-1][1]))] if self._mine else []
        yield from subtracted(self._mine, [self._theirs, above], self.only_mine)


class OfferScan:
    """Compares an offer with the master's `queue`, level by level; `done` gets the differences.

    It gets them at once or later, those of the highest level first. A queue that changes meanwhile
    does no harm, as the mirror gets the operations of that time from the ring.
    """

    def __init__(
        self,
        queue: Queue,
        offer: list[LevelRuns],
        done: Callable[[list[LevelDifference]], None],
    ) -> None:
        self._queue: Queue = queue
        self._done: Callable[[list[LevelDifference]], None] = done
        self._offered: dict[int, LevelRuns] = {level.level: level for level in offer}
        # Levels that are not compared yet, the lowest first.
        self._left: list[PagedQueue] = list(reversed(queue.backings()))
        self._found: list[LevelDifference] = []
        self._is_running: bool = False
        self._has_result: bool = False

    def start(self) -> None:
        """Begin."""
        self._run()

    def _run(self) -> None:
        # A scan that ends at once must not nest another one in itself for each level.
        if self._is_running:
            self._has_result = True
            return
        self._is_running = True
        self._has_result = True
        while self._has_result and len(self._left) > 0:
            self._has_result = False
            self._compare(self._left.pop())
        self._is_running = False
        if self._has_result and len(self._left) == 0:
            self._finish()

    def _compare(self, backing: PagedQueue) -> None:
        level = int(self._queue.level_of(backing.ledger))
        offered = self._offered.pop(level, None)
        if offered is None:
            offered = LevelRuns(level, 1, 0, [])

        def on_scanned(runs: Runs) -> None:
            comparison = Comparison(runs, offered.runs, offered.next_seq)
            SlicedWork(backing.host, self._add(backing, offered, comparison)).start()

        if not backing.has_live(0, offered.next_seq):
            on_scanned([])
            return

        LiveScan(backing, on_scanned, offered.next_seq).start()

    def _add(
        self, backing: PagedQueue, offered: LevelRuns, comparison: Comparison
    ) -> Iterator[int]:
        yield from comparison.pieces()
        settled = comparison.only_theirs
        common = int(count_of(offered.runs) - count_of(settled))
        end = int(backing.ledger.next_seq)
        # A mirror with a higher next seq id than its master would drop the master's next messages:
        # it would take their lower seq ids for messages that it has had.
        is_ahead = offered.next_seq > end
        if offered.known_from > 0:
            end = min(end, offered.known_from)
        self._found.append(
            LevelDifference(
                offered.level,
                settled,
                is_ahead or len(comparison.only_mine) > 0,
                common,
                offered.next_seq,
                max(end, offered.next_seq),
            )
        )
        self._run()

    def _finish(self) -> None:
        for offered in self._offered.values():
            # The master has no such level: its last message there is gone.
            self._found.append(
                LevelDifference(
                    offered.level, offered.runs, False, 0, offered.next_seq, offered.next_seq
                )
            )
        self._offered = {}
        self._done(self._found)


class Pieces:
    """Joins the pieces in which an OFFER or ANSWER comes."""

    def __init__(self) -> None:
        self._levels: dict[int, LevelRuns] = {}

    def forget(self) -> None:
        """Forget the pieces of an offer or answer that is not complete."""
        self._levels = {}

    def take(self, piece: Levels) -> list[LevelRuns] | None:
        """Take the next piece; with the last one, the levels of all, each once.

        Raises MalformedMirrorRecord if the runs of a level do not ascend over its pieces.
        """
        levels = self._levels
        for level in piece.levels:
            known = levels.get(level.level)
            if known is None:
                levels[level.level] = level
            elif level.next_seq != known.next_seq or (
                known.runs and level.runs and level.runs[0][0] <= known.runs[-1][1] + 1
            ):
                raise MalformedMirrorRecord("the pieces of a level do not follow each other")
            else:
                known.runs.extend(level.runs)
        if not piece.is_last:
            return None
        self.forget()
        return list(levels.values())
