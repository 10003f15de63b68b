"""Cuts the seq ids of a queue's levels into stretches; a task compares all copies on some of them.

Copies number messages alike, so each stretch can be compared by itself: nothing is sorted or sent
between machines. Stretches begin where files of a copy begin, for most files are read by one task.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from warrenmq.pipeline.mirrors.copies import SEQ_END, LevelCopy, QueueCopy
from warrenmq.tables.file_scan import Array
from warrenmq.tables.parts import INDEX, Partition, no_runs

# Approximate bytes of files that one task reads, of all copies.
TASK_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True)
class Side:
    """A stretch of one level in one copy. `partition` reads it, and is None without messages.

    `until`: the copy and the reference can be compared below it; the fields of LevelCopy say what
    else the copy knows. `settled` has the runs of this stretch only. Of a copy that is not
    `is_complete`, only the messages count that it has.
    """

    partition: Partition | None
    until: int
    indexed_upto: int
    first_indexed: int
    settled: Array
    is_journal_whole: bool
    is_complete: bool


@dataclass(frozen=True)
class Stretch:
    """The seq ids [seq_from, seq_to) of one level. `sides` has the reference first."""

    priority: int
    seq_from: int
    seq_to: int
    sides: tuple[Side, ...]


# By priority, ranges [from, to) of seq ids.
Windows = dict[int, tuple[int, int]]


def tasks_of(
    reference: QueueCopy,
    others: Sequence[QueueCopy],
    complete: Sequence[bool],
    is_live: bool,
    windows: Windows | None = None,
) -> Iterator[tuple[Stretch, ...]]:
    """The stretches of all levels, packed for tasks; with `windows`, only what overlaps them.

    `complete` says of each of `others` whether it should have all that the reference has. When
    `is_live`, complete copies have got all that the reference had; otherwise they may have ended
    earlier.
    """
    copies = (reference, *others)
    gathered: list[Stretch] = []
    size = 0
    for priority in sorted({number for copy in copies for number in copy.levels}):
        window = (0, SEQ_END) if windows is None else windows.get(priority)
        if window is None:
            continue
        levels = [copy.levels.get(priority) for copy in copies]
        untils = [_until(levels[0], level, is_live) for level in levels]
        for first, end, weight in _ranges(levels):
            if first >= window[1] or end <= window[0]:
                continue
            sides = tuple(
                _side(copy, level, first, end, until, is_complete)
                for copy, level, until, is_complete in zip(
                    copies, levels, untils, (True, *complete), strict=True
                )
            )
            if gathered and size + weight > TASK_BYTES:
                yield tuple(gathered)
                gathered, size = [], 0
            gathered.append(Stretch(priority, first, end, sides))
            size += weight
    if gathered:
        yield tuple(gathered)


def _until(reference: LevelCopy | None, level: LevelCopy | None, is_live: bool) -> int:
    """The seq id below which a copy of a level and the reference can be compared."""
    end = 1 if reference is None else reference.next_seq
    if is_live:
        return end
    if reference is None or level is None:
        return 1
    end = min(end, level.next_seq)
    last = level.epochs[-1][0] if level.epochs else 0
    # Above the start of an epoch that the copy has not heard of, it may have messages that the
    # master of this epoch never had: nobody has confirmed them.
    return min([end, *(first for epoch, first in reference.epochs if epoch > last)])


def _ranges(levels: Sequence[LevelCopy | None]) -> Iterator[tuple[int, int, int]]:
    """Ranges [from, to) that cover all seq ids, each with the bytes of its files."""
    starts: dict[int, int] = {}
    for level in levels:
        for part in level.parts if level is not None else ():
            starts[part.seq_from] = starts.get(part.seq_from, 0) + part.weight
    first = 0
    weight = 0
    for start in sorted(starts):
        if weight and weight + starts[start] > TASK_BYTES:
            yield first, start, weight
            first, weight = start, 0
        weight += starts[start]
    if weight:
        yield first, SEQ_END, weight


def _side(
    copy: QueueCopy,
    level: LevelCopy | None,
    first: int,
    end: int,
    until: int,
    is_complete: bool,
) -> Side:
    if level is None:
        # The store has nothing of this level, so its copy has settled no message.
        return Side(None, until, 1, 1, no_runs(), False, is_complete)
    parts = []
    for each in level.parts:
        if each.seq_from < end and each.seq_to > first:
            (queue,) = each.part.queues
            if each.part.kind != INDEX:
                seqs = queue.seqs[(queue.seqs >= first) & (queue.seqs < end)]
                if not len(seqs):
                    continue
                queue = dataclasses.replace(queue, seqs=seqs)
            parts.append(dataclasses.replace(each.part, queues=(queue,)))
    settled = level.settled
    partition = None
    if parts:
        options = dataclasses.replace(copy.frame.options, seq_from=first, seq_to=end)
        partition = dataclasses.replace(copy.frame, options=options, parts=tuple(parts))
    return Side(
        partition,
        until,
        level.indexed_upto,
        level.first_indexed,
        settled[(settled[:, 1] >= first) & (settled[:, 0] < end)],
        level.is_journal_whole,
        is_complete,
    )
