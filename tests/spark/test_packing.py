"""Tests the grouping into tasks: neighbours together, evenly, and always in the same way."""

import pytest

pytest.importorskip("pyspark")

from hypothesis import example, given
from hypothesis import strategies as st

from warrenmq.spark.fetching import pack, share_out


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 20))
def test_all_pieces_are_there_in_order_and_no_group_is_much_too_heavy(
    weights: list[int], count: int
) -> None:
    """Groups keep all pieces in order; few pieces make a group each."""
    pieces = list(range(len(weights)))
    groups = pack(pieces, weights, count, 1)
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) <= max(2 * count, 1)
    if len(pieces) <= count:
        assert len(groups) == len(pieces)
    share = -(-sum(weights) // count)
    assert all(
        len(group) == 1 or sum(weights[piece] for piece in group) <= share for group in groups
    )


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_there_are_as_many_groups_as_must_be(
    weights: list[int], count: int, count_min: int
) -> None:
    """There are at least `count_min` groups, however uneven the pieces are."""
    pieces = list(range(len(weights)))
    groups = pack(pieces, weights, max(count, count_min), count_min)
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) >= min(len(pieces), count_min) and all(groups)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20))
@example([1, 0], 1)
def test_shares_are_few_and_about_alike(weights: list[int], count: int) -> None:
    """No group is heavier than its share of the whole plus one piece."""
    pieces = list(range(len(weights)))
    groups = share_out(pieces, weights, count)
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) <= count
    most = sum(weights) / count + max(weights, default=0)
    assert all(sum(weights[piece] for piece in group) <= most for group in groups)
