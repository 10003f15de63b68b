"""For how long samples are kept, and at which intervals: RabbitMQ's retention, and seven days.

RabbitMQ keeps the figures of the cluster for a day (10 minutes at 5 s, 1 hour at 60 s, 8 hours at
600 s, 1 day at 1800 s) and those of single objects for an hour (the first two).
"""

from typing import Final, NamedTuple

# Interval between two ticks of the feed (ms), unless `collect_statistics_interval` says otherwise.
TICK_MS: Final = 5_000


class Resolution(NamedTuple):
    """Keep the last `kept` intervals of `interval_ms` each, the open one included."""

    interval_ms: int
    kept: int

    @property
    def span_ms(self) -> int:
        """For how long back closed intervals reach at any time."""
        return self.interval_ms * (self.kept - 1)


class Retention(NamedTuple):
    """The resolutions of a group of figures, finest first, and how they are kept.

    `typecode` is that of `array`: "f" is exact for differences below 2**24 in an interval, and to
    seven digits beyond; "d" is exact. `slots_max`: how many figures have samples at a time.
    """

    resolutions: tuple[Resolution, ...]
    typecode: str
    slots_max: int

    @property
    def span_ms(self) -> int:
        """For how long back the coarsest resolution reaches."""
        return self.resolutions[-1].span_ms


_MINUTE_MS: Final = 60_000
_TEN_MINUTES: Final = (600_000, TICK_MS)
_HOUR: Final = (60 * _MINUTE_MS, _MINUTE_MS)
_EIGHT_HOURS: Final = (480 * _MINUTE_MS, 10 * _MINUTE_MS)
_SEVEN_DAYS: Final = (7 * 1440 * _MINUTE_MS, 30 * _MINUTE_MS)
_LONG: Final = (_TEN_MINUTES, _HOUR, _EIGHT_HOURS, _SEVEN_DAYS)
_SHORT: Final = (_TEN_MINUTES, _HOUR)
# For how long back the samples of each resolution reach (s), finest first.
LONG_SPANS_S: Final = tuple(span_ms // 1000 for span_ms, _interval_ms in _LONG)
SHORT_SPANS_S: Final = tuple(span_ms // 1000 for span_ms, _interval_ms in _SHORT)
# Figures of nodes and vhosts that have samples at a time: 9 MB at most, once they are a week old.
_LONG_SLOTS: Final = 2_000
# Figures of single objects that have samples at a time: 37 MB at most. A queue whose clients do
# everything has 10, a connection 2.
_SHORT_SLOTS: Final = 50_000


def long_retention(tick_ms: int) -> Retention:
    """That of figures of the cluster, of nodes and of vhosts."""
    return Retention(_resolutions(_LONG, tick_ms), "d", _LONG_SLOTS)


def short_retention(tick_ms: int) -> Retention:
    """That of single queues, exchanges, channels and connections."""
    return Retention(_resolutions(_SHORT, tick_ms), "f", _SHORT_SLOTS)


def _resolutions(spans: tuple[tuple[int, int], ...], tick_ms: int) -> tuple[Resolution, ...]:
    """No interval is shorter than that of ticks: every second one would be without a tick."""
    found = []
    for span_ms, interval_ms in spans:
        chosen_ms = max(interval_ms, tick_ms)
        # One interval more for the open one, and one for a span that begins within an interval.
        found.append(Resolution(chosen_ms, span_ms // chosen_ms + 2))
    return tuple(found)
