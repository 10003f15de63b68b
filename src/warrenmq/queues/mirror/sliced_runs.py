"""Operations on long lists of runs of seq ids (`model/runs.py`) in pieces, for `sliced_work.py`.

Each is a generator that appends its result to `found`. The lists that it reads must not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from warrenmq.queues.mirror.sliced_work import PIECE_STEPS, RUN_STEPS
from warrenmq.store.model.runs import Runs, index_of_run


def subtracted(runs: Runs, others: list[Runs], found: Runs) -> Iterator[int]:
    """Find the seq ids of `runs` that none of `others` has."""
    places: list[int] = [0] * len(others)
    steps: i64 = 0
    for first, last in runs:
        seq = first
        while seq <= last:
            # The first seq id from `seq` on that one of `others` has.
            end = last + 1
            gone = seq
            for number in range(len(others)):
                other = others[number]
                place = _advance(other, places[number], seq)
                places[number] = place
                if place < len(other) and other[place][0] <= seq:
                    gone = other[place][1] + 1
                    break
                if place < len(other) and other[place][0] < end:
                    end = other[place][0]
            if gone > seq:
                seq = gone
            else:
                found.append((seq, end - 1))
                seq = end
            steps += RUN_STEPS
            if steps >= PIECE_STEPS:
                yield steps
                steps = 0


def _advance(runs: Runs, place: i64, seq: i64) -> i64:
    """Index of the first run from `place` on that ends at or behind `seq`."""
    if place < len(runs) and runs[place][1] < seq:
        place += 1
        if place < len(runs) and runs[place][1] < seq:
            return index_of_run(runs, seq)
    return place


def merged(runs: Runs, others: Runs, found: Runs) -> Iterator[int]:
    """Find the seq ids of both lists; runs of either that touch are joined."""
    place: i64 = 0
    other: i64 = 0
    steps: i64 = 0
    while place < len(runs) or other < len(others):
        if other == len(others) or (place < len(runs) and runs[place] < others[other]):
            first, last = runs[place]
            place += 1
        else:
            first, last = others[other]
            other += 1
        if len(found) > 0 and found[-1][1] >= first - 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
        steps += RUN_STEPS
        if steps >= PIECE_STEPS:
            yield steps
            steps = 0
