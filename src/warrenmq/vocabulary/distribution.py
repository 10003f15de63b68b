"""How often values of each size have occurred: counts between fixed bounds, as Prometheus has them.

Adding a value costs a search through some ten bounds, so callers add one value for a batch.
"""

from typing import Final, final

from mypy_extensions import i64

# Bounds of durations in ns, from 100 us to a minute.
DURATION_BOUNDS_NS: Final = (
    *(100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
    *(100_000_000, 250_000_000, 500_000_000),
    *(1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000, 30_000_000_000, 60_000_000_000),
)
# Bounds of sizes in bytes, from 256 B to 16 MiB.
SIZE_BOUNDS: Final = (256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)


@final
class Distribution:
    """Values of one kind; `bounds` ascend, and a value that equals a bound is below it."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds: tuple[int, ...] = bounds
        # Values up to each bound and above the bound before it; the last one: above all bounds.
        self.counts: list[int] = [0] * (len(bounds) + 1)
        # Sum of all values.
        self.total: i64 = 0

    def add(self, value: i64, count: i64 = 1) -> None:
        """Add `value`, which has occurred `count` times; a negative one counts as 0."""
        value = max(value, 0)
        place = 0
        for bound in self.bounds:
            if value <= bound:
                break
            place += 1
        self.counts[place] += count
        self.total += value * count
