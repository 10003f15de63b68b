"""What the HTTP API says about a figure beside its value: its rate, and samples with averages.

RabbitMQ has the same fields. `rate` is that of the last tick. Samples come newest first, with times
in ms since 1970; `avg` and `avg_rate` are taken over them. Only closed intervals have samples, as
the value of an open one would look like a fall; and an interval in which no tick came has none.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from warrenmq.management.rows import Row
from warrenmq.management.statistics.figures import FIRST_LEVEL, Figures
from warrenmq.management.statistics.samples import NO_SLOT

# The most samples that a request may ask for (RabbitMQ's limit).
SAMPLES_MAX: Final = 500


class Range(NamedTuple):
    """Samples of the last `age_s` seconds, one every `step_s` seconds."""

    age_s: int
    step_s: int


class Part(NamedTuple):
    """A figure of an object; the parts of a sum may be of several figures, objects and nodes."""

    figures: Figures
    place: int


def value_of(parts: Sequence[Part]) -> int:
    """The sum of the newest values."""
    return sum([figures.value(place) for figures, place in parts])


def history_of(parts: Sequence[Part], now_ms: int, asked: Range) -> Row:
    """`samples`, `avg` and `avg_rate` of a sum."""
    samples = samples_of(parts, now_ms, asked)
    values = [each["sample"] for each in samples]
    average = sum(values) / len(values) if values else 0.0
    average_rate = 0.0
    if len(samples) > 1:
        passed_ms = samples[0]["timestamp"] - samples[-1]["timestamp"]
        average_rate = (values[0] - values[-1]) * 1000 / passed_ms
    return {"samples": samples, "avg": average, "avg_rate": average_rate}


def samples_of(parts: Sequence[Part], now_ms: int, asked: Range) -> list[Row]:
    """The values of a sum with their times, newest first."""
    step_ms = asked.step_s * 1000
    newest_ms = now_ms - now_ms % step_ms
    times = range(newest_ms, newest_ms - asked.age_s * 1000 - 1, -step_ms)
    values = [0.0] * len(times)
    is_known = [False] * len(times)
    for part in parts:
        _add_values(part, asked, times, values, is_known)
    return [
        {"sample": round(value), "timestamp": time_ms}
        for time_ms, value, known in zip(times, values, is_known, strict=True)
        if known
    ]


def _add_values(
    part: Part, asked: Range, times: range, values: list[float], is_known: list[bool]
) -> None:
    """Add the values that one figure had at `times`, of which the newest is the first."""
    figures, place = part
    samples = figures.samples
    slot = figures.slot(place)
    since_ms = samples.since_ms[slot] if slot != NO_SLOT else 0
    ring = samples.ring_for(asked.age_s * 1000, asked.step_s * 1000)
    interval_ms, kept = ring.resolution
    number, oldest = ring.newest, ring.newest - kept
    value: float = figures.value(place)
    is_level = place >= FIRST_LEVEL[figures.kind]
    for position, time_ms in enumerate(times):
        # The interval that had ended by then.
        ended = time_ms // interval_ms - 1
        while slot != NO_SLOT and number > max(ended, oldest):
            value -= ring.difference(number, slot, since_ms)
            number -= 1
        if is_level and ended > ring.newest + 1:
            # The node has been silent since: nothing is known to be in it.
            continue
        values[position] += value
        if ring.tick_ms(ended):
            is_known[position] = True
