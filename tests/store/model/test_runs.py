"""Sets of seq ids as runs behave as Python's sets."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.store.model.runs import (
    add_run,
    add_runs,
    contains,
    covers,
    merge_runs,
    overlapping,
    remove_run,
    subtract,
)

seqs = st.integers(0, 40)


def runs_of(members: set[int]) -> list[tuple[int, int]]:
    return merge_runs([(seq, seq) for seq in members])


def members_of(runs: list[tuple[int, int]]) -> set[int]:
    for before, after in itertools.pairwise(runs):
        assert before[1] + 1 < after[0], "ascending, with gaps between them"
    return {seq for first, last in runs for seq in range(first, last + 1)}


@given(st.sets(seqs), seqs, st.integers(0, 12))
def test_runs_are_sets(members: set[int], first: int, length: int) -> None:
    runs = runs_of(members)
    last = first + length
    wanted = set(range(first, last + 1))
    assert members_of(runs) == members
    assert covers(runs, first, last) == (wanted <= members)
    assert contains(runs, first) == (first in members)
    assert members_of(subtract(first, last, runs)) == wanted - members
    found = overlapping(runs, first, last)
    assert found == [run for run in runs if run[0] <= last and run[1] >= first]
    added = list(runs)
    add_run(added, first, last)
    assert members_of(added) == members | wanted
    remove_run(runs, first, last)
    assert members_of(runs) == members - wanted


@given(st.sets(seqs), st.sets(seqs), st.booleans())
def test_many_runs_are_added_as_one_by_one(
    members: set[int], others: set[int], is_long: bool
) -> None:
    # Where many runs are higher, those that are added enter one by one.
    higher = set(range(100, 6000, 2)) if is_long else set()
    runs = runs_of(members | higher)
    add_runs(runs, runs_of(others))
    assert members_of(runs) == members | others | higher
