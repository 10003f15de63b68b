"""Stretches: which journal files the index of a queue needs, and up to when.

A stretch is a run [first, last] of indexed seq ids, each of which was settled when the stretch came
to it, or is persistent with its content in the stretch's journal file or in the content store. The
file is needed until every position of the stretch is settled. Memory holds one stretch for each
file and queue, however many messages it has.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.model.content_log import ContentLog
from warrenmq.store.model.runs import Runs, overlapping


@mypyc_attr(acyclic=True)
class Stretch:
    """A run of indexed seq ids with contents in `log`."""

    def __init__(self, log: ContentLog, first: i64) -> None:
        self.log: ContentLog = log
        self.first: i64 = first
        self.last: i64 = first - 1
        # Positions that are not settled.
        self.live: i64 = 0


class Stretches:
    """The stretches of one queue, ascending."""

    def __init__(self) -> None:
        self.all: list[Stretch] = []
        # Logs that no stretch of any queue needs any more; `CheckpointNeeds` takes them.
        self.dead_logs: list[ContentLog] = []
        # The last of `all` may grow.
        self._is_open: bool = False

    def last_log(self) -> ContentLog | None:
        """The file of the stretch that may grow; None: none may."""
        return self.all[-1].log if self._is_open else None

    def add(self, seq: i64, log: ContentLog, record_bytes: i64) -> None:
        """Add a position whose content is a record of `log`; seq ids only ascend."""
        log.referred_bytes += record_bytes
        if self.last_log() is not log:
            self.all.append(Stretch(log, seq))
            log.stretches += 1
            self._is_open = True
        self._grow(seq)

    def pass_over(self, seq: i64) -> None:
        """Let the open stretch reach over a persistent position with its content elsewhere."""
        if self._is_open:
            self._grow(seq)

    def end(self) -> None:
        """End the open stretch: the next position may be settled without the index being told."""
        self._is_open = False

    def settle(self, first: i64, last: i64) -> None:
        """Count the positions of [first, last], which are settled now and were not before."""
        stretches = self.all
        start = self._place_of(first)
        place = start
        dead: i64 = 0
        while place < len(stretches) and stretches[place].first <= last:
            stretch = stretches[place]
            count: i64 = min(last, stretch.last) - max(first, stretch.first) + 1
            stretch.live -= count
            stretch.log.live_entries -= count
            if stretch.live <= 0:
                dead += 1
            place += 1
        if dead > 0:
            self._drop_dead(start, place)

    def recount(self, settled: Runs) -> None:
        """Count all positions anew, after `settled` was changed by other means."""
        for stretch in self.all:
            live = _unsettled(stretch, settled)
            stretch.log.live_entries += live - stretch.live
            stretch.live = live
        self._drop_dead(0, len(self.all))

    def emptied(self, first: i64, last: i64) -> list[ContentLog]:
        """The logs to be emptied that hold contents of [first, last]."""
        return [log for log in self.logs_of(first, last) if log.is_emptied]

    def logs_of(self, first: i64, last: i64) -> list[ContentLog]:
        """The logs that hold contents of [first, last]."""
        found: list[ContentLog] = []
        for log, _, _ in self.parts_of(first, last):
            if log not in found:
                found.append(log)
        return found

    def parts_of(self, first: i64, last: i64) -> list[tuple[ContentLog, int, int]]:
        """The parts of stretches that lie in [first, last]: log, first and last seq id."""
        found: list[tuple[ContentLog, int, int]] = []
        place = self._place_of(first)
        while place < len(self.all) and self.all[place].first <= last:
            stretch = self.all[place]
            found.append((stretch.log, max(first, stretch.first), min(last, stretch.last)))
            place += 1
        return found

    def cut(self, first: i64, last: i64, logs: list[ContentLog], settled: Runs) -> None:
        """Take [first, last] out of the stretches of `logs`: its contents are elsewhere now."""
        kept: list[Stretch] = []
        for stretch in self.all:
            if stretch.log not in logs or stretch.last < first or stretch.first > last:
                kept.append(stretch)
                continue
            log = stretch.log
            log.stretches -= 1
            log.live_entries -= stretch.live
            for part_first, part_last in (
                (stretch.first, min(stretch.last, first - 1)),
                (max(stretch.first, last + 1), stretch.last),
            ):
                part = Stretch(log, part_first)
                part.last = part_last
                part.live = _unsettled(part, settled)
                if part.live > 0:
                    log.stretches += 1
                    log.live_entries += part.live
                    kept.append(part)
            if log.stretches == 0:
                self.dead_logs.append(log)
        if len(kept) == 0 or kept[-1] is not self.all[-1]:
            self._is_open = False
        self.all = kept

    def clear(self) -> None:
        """Drop all stretches: nothing of the queue is needed any more."""
        for stretch in self.all:
            stretch.log.live_entries -= stretch.live
            stretch.live = 0
        self._drop_dead(0, len(self.all))

    def restore(
        self, log: ContentLog, first: i64, last: i64, settled: Runs, record_bytes: i64
    ) -> None:
        """Add a stretch of a checkpoint, behind those before it.

        `record_bytes` is the size of a record of the queue in a journal file, on average.
        """
        stretch = Stretch(log, first)
        stretch.last = last
        stretch.live = _unsettled(stretch, settled)
        if stretch.live <= 0:
            return
        log.stretches += 1
        log.entries += stretch.live
        log.live_entries += stretch.live
        log.referred_bytes += stretch.live * record_bytes
        self.all.append(stretch)

    def check(self, settled: Runs) -> None:
        """Assert that the stretches ascend and that their counts are right."""
        before: i64 = -1
        for stretch in self.all:
            assert before < stretch.first <= stretch.last
            assert 0 < stretch.live == _unsettled(stretch, settled)
            assert stretch.log.stretches > 0
            before = stretch.last

    def _grow(self, seq: i64) -> None:
        stretch = self.all[-1]
        stretch.last = seq
        stretch.live += 1
        stretch.log.entries += 1
        stretch.log.live_entries += 1

    def _drop_dead(self, start: i64, end: i64) -> None:
        """Drop the dead ones of `all[start:end]`; the others may be many, and are not looked at."""
        if start == end:
            return
        newest = self.all[-1]
        kept: list[Stretch] = []
        for stretch in self.all[start:end]:
            if stretch.live > 0:
                kept.append(stretch)
                continue
            log = stretch.log
            log.stretches -= 1
            if log.stretches == 0:
                self.dead_logs.append(log)
        self.all[start:end] = kept
        if len(self.all) == 0 or self.all[-1] is not newest:
            self._is_open = False

    def _place_of(self, seq: i64) -> i64:
        """Index of the first stretch that ends at or behind `seq`."""
        low: i64 = 0
        high: i64 = len(self.all)
        while low < high:
            middle = (low + high) >> 1
            if self.all[middle].last < seq:
                low = middle + 1
            else:
                high = middle
        return low


def _unsettled(stretch: Stretch, settled: Runs) -> i64:
    live: i64 = stretch.last - stretch.first + 1
    for first, last in overlapping(settled, stretch.first, stretch.last):
        live -= min(last, stretch.last) - max(first, stretch.first) + 1
    return live
