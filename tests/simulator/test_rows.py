"""The rows of a reader group: what the simulator demands of ranges that are read again."""

from __future__ import annotations

import pytest

from simulator.cluster.spark.rows import Row, Rows
from simulator.models.messages import Violation

ONE, TWO, THREE, GONE = Row("m1", 1), Row("m2", 2), Row("m3", 3), Row("m4", 4)


@pytest.fixture
def rows() -> Rows:
    """Rows that were read once, at 4 and 6 of the range [4, 8)."""
    rows = Rows("g", 4, lambda message: message == "m3", lambda message: message == "m4")
    assert rows.take(4, ONE) and rows.take(6, TWO)
    rows.end(4, 8, [4, 6])
    return rows


def test_a_range_may_be_read_again(rows: Rows) -> None:
    assert not rows.take(4, ONE) and not rows.take(6, TWO)
    rows.end(4, 8, [4, 6])
    assert rows.take(9, THREE)
    rows.end(8, 10, [9])
    assert rows.batches == [(4, 8), (8, 10)]
    rows.forget(8)
    assert rows.batches == [(8, 10)]


@pytest.mark.parametrize(("seq", "row"), [(5, THREE), (6, THREE), (6, Row("m2", 7)), (8, ONE)])
def test_other_rows_are_found(rows: Rows, seq: int, row: Row) -> None:
    """A new one in a range that was read, another one in a place, other bytes, one that repeats."""
    with pytest.raises(Violation):
        rows.take(seq, row)


@pytest.mark.parametrize("seqs", [[4], [6], [6, 4], [4, 4, 6]])
def test_missing_rows_and_another_order_are_found(rows: Rows, seqs: list[int]) -> None:
    with pytest.raises(Violation):
        rows.end(4, 8, seqs)


def test_what_a_death_may_double_may_come_twice(rows: Rows) -> None:
    assert rows.take(8, THREE) and rows.take(9, THREE)


def test_what_a_crash_may_take_leaves_a_batch(rows: Rows) -> None:
    """Only that: not its neighbours."""
    assert rows.take(8, GONE) and rows.take(9, THREE)
    rows.end(8, 10, [8, 9])
    rows.end(8, 10, [9])
    rows.end(8, 10, [8, 9])
    with pytest.raises(Violation):
        rows.end(8, 10, [8])
