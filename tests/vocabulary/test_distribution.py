"""Values are counted by the first bound that they do not exceed."""

import bisect

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.vocabulary.distribution import SIZE_BOUNDS, Distribution


def test_a_value_belongs_to_the_first_bound_that_it_does_not_exceed() -> None:
    spread = Distribution((10, 100))
    for value in (-5, 0, 10, 11, 100, 101):
        spread.add(value)
    assert spread.counts == [3, 2, 1]
    assert spread.total == 0 + 0 + 10 + 11 + 100 + 101


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 9))))
def test_counts_and_total_are_those_of_all_values(values: list[tuple[int, int]]) -> None:
    spread = Distribution(SIZE_BOUNDS)
    expected = [0] * (len(SIZE_BOUNDS) + 1)
    for value, count in values:
        spread.add(value, count)
        expected[bisect.bisect_left(SIZE_BOUNDS, value)] += count
    assert spread.counts == expected
    assert spread.total == sum(value * count for value, count in values)
