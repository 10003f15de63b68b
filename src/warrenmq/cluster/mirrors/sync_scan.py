"""What a master finds out about the copy of a mirror, before it sends anything.

A seq id means the same message at every copy for ever (`ring_feed.py`), so two copies differ by
their seq ids only. What the mirror has and the master has not is settled there: the master settled
it while the mirror was away, or the mirror was a master itself and published what nobody else got
(the divergent tail). What the mirror lacks is missing. A copy grows at its end only, so the mirror
can take what is missing from its next seq id on. If it lacks anything below, it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.cluster.mirrors.sync_records import LevelRuns
from warrenmq.queues.mirror_snapshot import LiveScan, count_of
from warrenmq.queues.paged_queue import PagedQueue
from warrenmq.queues.queue import Queue
from warrenmq.store.runs import Runs, merge_runs, overlapping, subtract


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


def compare(mine: Runs, theirs: Runs, next_seq: int) -> tuple[Runs, Runs]:
    """The seq ids that only the mirror has, and those that only the master has below `next_seq`.

    `mine` are those of the master, `theirs` those of the mirror, which are all below `next_seq`.
    """
    only_theirs: Runs = []
    for first, last in theirs:
        only_theirs.extend(subtract(first, last, mine))
    only_mine: Runs = []
    for first, last in overlapping(mine, 0, next_seq - 1):
        only_mine.extend(subtract(first, min(last, next_seq - 1), theirs))
    return only_theirs, only_mine


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
        if not backing.has_live(0, offered.next_seq):
            self._add(backing, offered, [])
            return

        def on_scanned(runs: Runs) -> None:
            self._add(backing, offered, runs)

        LiveScan(backing, on_scanned).start()

    def _add(self, backing: PagedQueue, offered: LevelRuns, mine: Runs) -> None:
        settled, lacking = compare(mine, offered.runs, offered.next_seq)
        common = int(count_of(offered.runs) - count_of(settled))
        end = int(backing.ledger.next_seq)
        if offered.known_from > 0:
            end = min(end, offered.known_from)
        self._found.append(
            LevelDifference(
                offered.level,
                settled,
                len(lacking) > 0,
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


def join_pieces(pieces: list[LevelRuns]) -> list[LevelRuns]:
    """The levels of an OFFER or ANSWER that came in pieces, each level once."""
    levels: dict[int, LevelRuns] = {}
    for piece in pieces:
        known = levels.get(piece.level)
        if known is None:
            levels[piece.level] = piece
        else:
            known.runs.extend(piece.runs)
    return [
        LevelRuns(level.level, level.next_seq, level.known_from, merge_runs(level.runs))
        for level in levels.values()
    ]
