"""Sets of seq ids as inclusive runs `(first, last)`, ascending and with gaps between them."""

from typing import Final

from mypy_extensions import i64

Runs = list[tuple[i64, i64]]

# Runs that are moved in the time in which one is merged.
_MOVED_RUNS: Final = 64


def merge_runs(runs: Runs) -> Runs:
    """Sort inclusive runs and join those that overlap or touch."""
    if len(runs) < 2:
        return runs
    runs.sort()
    merged: Runs = []
    first, last = runs[0]
    for next_first, next_last in runs[1:]:
        if next_first <= last + 1:
            if next_last > last:
                last = next_last
        else:
            merged.append((first, last))
            first = next_first
            last = next_last
    merged.append((first, last))
    return merged


def check_runs(runs: Runs) -> None:
    """Assert that `runs` ascend and have gaps between them."""
    end: i64 = -1
    for first, last in runs:
        assert end < first <= last
        end = last + 1


def index_of_run(runs: Runs, seq: i64) -> i64:
    """Index of the first run that ends at or behind `seq`, or the number of runs: none."""
    low: i64 = 0
    high: i64 = len(runs)
    while low < high:
        middle = (low + high) >> 1
        if runs[middle][1] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def contains(runs: Runs, seq: i64) -> bool:
    """Whether `seq` is in one of `runs`."""
    place = index_of_run(runs, seq)
    return place < len(runs) and runs[place][0] <= seq


def covers(runs: Runs, first: i64, last: i64) -> bool:
    """Whether all of [first, last] is in `runs`."""
    place = index_of_run(runs, first)
    return place < len(runs) and runs[place][0] <= first and runs[place][1] >= last


def overlapping(runs: Runs, first: i64, last: i64) -> Runs:
    """Copy of the runs that overlap [first, last]."""
    start = index_of_run(runs, first)
    end = start
    while end < len(runs) and runs[end][0] <= last:
        end += 1
    return runs[start:end]


def subtract(first: i64, last: i64, runs: Runs) -> Runs:
    """The parts of [first, last] that no run contains, as runs."""
    left: Runs = []
    place = index_of_run(runs, first)
    while first <= last:
        if place >= len(runs) or runs[place][0] > last:
            left.append((first, last))
            return left
        run_first, run_last = runs[place]
        if run_first > first:
            left.append((first, run_first - 1))
        first = run_last + 1
        place += 1
    return left


def add_run(runs: Runs, first: i64, last: i64) -> None:
    """Add [first, last] in place; takes constant time at the highest seq ids, where acks arrive."""
    # Join [first, last] with the runs that it overlaps or touches.
    start = index_of_run(runs, first - 1)
    end = start
    while end < len(runs) and runs[end][0] <= last + 1:
        if runs[end][0] < first:
            first = runs[end][0]
        if runs[end][1] > last:
            last = runs[end][1]
        end += 1
    runs[start:end] = [(first, last)]


def add_runs(runs: Runs, more: Runs) -> None:
    """Add `more`, which ascends, in place."""
    if len(more) == 0:
        return
    start = index_of_run(runs, more[0][0] - 1)
    if len(more) * _MOVED_RUNS < len(runs) - start:
        for first, last in more:
            add_run(runs, first, last)
    else:
        # One pass costs less than to move all higher runs for each new one.
        runs[start:] = merge_runs(runs[start:] + more)


def remove_run(runs: Runs, first: i64, last: i64) -> None:
    """Remove [first, last] in place, as far as runs contain it."""
    start = index_of_run(runs, first)
    end = start
    left: Runs = []
    while end < len(runs) and runs[end][0] <= last:
        left.extend(subtract(runs[end][0], runs[end][1], [(first, last)]))
        end += 1
    if end > start:
        runs[start:end] = left
