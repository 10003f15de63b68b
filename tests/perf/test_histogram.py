"""The histogram's percentiles equal those of the sorted values, within its stated error."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.perf.histogram import (
    BUCKET_COUNT,
    VALUE_LIMIT,
    Histogram,
    bucket_index,
    bucket_middle,
    decode_histogram,
)

values = st.integers(0, VALUE_LIMIT - 1) | st.integers(0, 300) | st.integers(1_000, 10_000_000)


@given(values)
def test_the_middle_of_a_bucket_is_within_the_error(value: int) -> None:
    index = bucket_index(value)
    assert 0 <= index < BUCKET_COUNT
    assert abs(bucket_middle(index) - value) <= value * 0.004


def test_the_last_bucket_is_used() -> None:
    assert bucket_index(VALUE_LIMIT - 1) == BUCKET_COUNT - 1


@given(
    st.lists(values, min_size=1, max_size=200),
    st.sampled_from([0.0, 50.0, 75.0, 95.0, 99.0, 99.9, 100.0]),
)
def test_percentiles_are_those_of_the_sorted_values(recorded: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in recorded:
        histogram.record(value, 1)
    rank = max(math.ceil(len(recorded) * percent / 100.0), 1)
    expected = sorted(recorded)[rank - 1]
    assert abs(histogram.percentile(percent) - expected) <= expected * 0.008 + 0.5


@given(st.lists(st.tuples(values, st.integers(1, 5)), max_size=50), st.lists(values, max_size=50))
def test_merging_is_recording_together(first: list[tuple[int, int]], second: list[int]) -> None:
    one, other, together = Histogram(), Histogram(), Histogram()
    for value, count in first:
        one.record(value, count)
        together.record(value, count)
    for value in second:
        other.record(value, 1)
        together.record(value, 1)
    one.merge(other)
    assert one.encode() == together.encode()


@given(st.lists(values, max_size=50))
def test_encoding_keeps_everything(recorded: list[int]) -> None:
    histogram = Histogram()
    for value in recorded:
        histogram.record(value, 2)
    assert (
        decode_histogram(json.loads(json.dumps(histogram.encode()))).encode() == histogram.encode()
    )


def test_take_moves_and_empties() -> None:
    total, interval = Histogram(), Histogram()
    interval.record(1000, 3)
    interval.record(-5, 1)
    total.take(interval)
    total.take(interval)
    assert (total.count, total.minimum, total.maximum, total.out_of_range) == (3, 1000, 1000, 1)
    assert interval.encode() == Histogram().encode()


def test_what_is_no_latency_is_only_counted() -> None:
    histogram = Histogram()
    histogram.record(-1, 2)
    histogram.record(VALUE_LIMIT, 3)
    assert (
        histogram.count,
        histogram.out_of_range,
        histogram.percentile(99.0),
        histogram.mean(),
    ) == (
        0,
        5,
        0.0,
        0.0,
    )
