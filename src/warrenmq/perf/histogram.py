"""Latency histogram with a bounded relative error, cheap to record into and to merge.

A value (nanoseconds) falls into one of 128 equal buckets of its power of two, so a percentile is
off by less than 0.8 %; values under 128 are exact. Counts live in one list. Many messages of one
received chunk share a timestamp, so callers record them together: `record(value, count)` once per
run of equal timestamps, not per message.
"""

from typing import Final, final

from mypy_extensions import i64

SUB_BUCKET_BITS: Final = 7
SUB_BUCKETS: Final = 128
# 2**42 ns is 73 minutes. No latency of a run is longer, and a body without our timestamp gives a
# value far beyond it.
VALUE_BITS: Final = 42
VALUE_LIMIT: Final = 1 << VALUE_BITS
BUCKET_COUNT: Final = SUB_BUCKETS * (VALUE_BITS - SUB_BUCKET_BITS + 1)


def bucket_index(value: i64) -> i64:
    """The bucket of `value`, which must be at least 0 and below VALUE_LIMIT."""
    shift: i64 = 0
    rest: i64 = value >> SUB_BUCKET_BITS
    while rest > 1:
        rest >>= 1
        shift += 1
    if value < SUB_BUCKETS:
        return value
    return (shift << SUB_BUCKET_BITS) + (value >> shift)


def bucket_middle(index: i64) -> float:
    """The value in the middle of a bucket, which stands for all values in it."""
    if index < 2 * SUB_BUCKETS:
        return float(index)
    shift: i64 = (index >> SUB_BUCKET_BITS) - 1
    place: i64 = index - (shift << SUB_BUCKET_BITS)
    lowest: i64 = place << shift
    # Avoid `1 << shift`: mypyc shifts a literal on the left as a 32-bit number.
    highest: i64 = ((place + 1) << shift) - 1
    return (float(lowest) + float(highest)) / 2


@final
class Histogram:
    """Counts by bucket, with exact count, sum, minimum and maximum.

    Values outside the range only count in `out_of_range`.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.sum: i64 = 0
        self.minimum: i64 = VALUE_LIMIT
        self.maximum: i64 = 0
        self.out_of_range: i64 = 0
        self._counts: list[int] = [0] * BUCKET_COUNT

    def record(self, value: i64, count: i64) -> None:
        """Add `count` observations of `value`."""
        if value < 0 or value >= VALUE_LIMIT:
            self.out_of_range += count
            return
        self._counts[bucket_index(value)] += count
        self.count += count
        self.sum += value * count
        if value < self.minimum:
            self.minimum = value
        if value > self.maximum:
            self.maximum = value

    def merge(self, other: "Histogram") -> None:
        """Add all that `other` has recorded."""
        if other.count:
            for index, count in enumerate(other._counts):
                if count:
                    self._counts[index] += count
            self.count += other.count
            self.sum += other.sum
            self.minimum = min(self.minimum, other.minimum)
            self.maximum = max(self.maximum, other.maximum)
        self.out_of_range += other.out_of_range

    def take(self, other: "Histogram") -> None:
        """Merge `other` and empty it, so that it can gather the next interval."""
        if other.count == 0 and other.out_of_range == 0:
            return
        self.merge(other)
        other._counts = [0] * BUCKET_COUNT
        other.count = 0
        other.sum = 0
        other.minimum = VALUE_LIMIT
        other.maximum = 0
        other.out_of_range = 0

    def percentile(self, percent: float) -> float:
        """The smallest value that `percent` of the observations do not exceed; 0.0 if none."""
        if self.count == 0:
            return 0.0
        wanted: float = float(self.count) * percent / 100.0
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                # The extremes are known exactly, and the middle of their bucket may lie outside of
                # them.
                return min(max(bucket_middle(index), float(self.minimum)), float(self.maximum))
        return float(self.maximum)

    def mean(self) -> float:
        return float(self.sum) / float(self.count) if self.count else 0.0

    def encode(self) -> list[int]:
        """A flat list for JSON: the totals, then (bucket, count) pairs of the used buckets."""
        flat = [
            int(self.count),
            int(self.sum),
            int(self.minimum),
            int(self.maximum),
            int(self.out_of_range),
        ]
        for index, count in enumerate(self._counts):
            if count:
                flat.append(index)
                flat.append(count)
        return flat


def decode_histogram(flat: list[int]) -> Histogram:
    """The histogram that `Histogram.encode` wrote."""
    histogram = Histogram()
    histogram.count = flat[0]
    histogram.sum = flat[1]
    histogram.minimum = flat[2]
    histogram.maximum = flat[3]
    histogram.out_of_range = flat[4]
    for position in range(5, len(flat), 2):
        histogram._counts[flat[position]] = flat[position + 1]
    return histogram
