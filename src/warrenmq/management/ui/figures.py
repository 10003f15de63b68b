"""Figures as people read them."""

from datetime import UTC, datetime
from typing import Any, Final

NONE: Final = "–"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: Any) -> str:
    """A number of things: 1234567 is `1,234,567`."""
    return NONE if not isinstance(value, int | float) else f"{value:,.0f}"


def rate(value: Any) -> str:
    """A rate by second: `12.5/s`, without digits that say nothing."""
    if not isinstance(value, int | float):
        return NONE
    return f"{value:,.0f}/s" if value >= 100 or value == int(value) else f"{value:.1f}/s"


def size_rate(value: Any) -> str:
    """Bytes by second: `1.5 MiB/s`."""
    return NONE if not isinstance(value, int | float) else f"{size(value)}/s"


def size(value: Any) -> str:
    """Bytes in the largest unit that leaves a whole number: `1.5 MiB`, `128 KiB`."""
    if not isinstance(value, int | float):
        return NONE
    number, place = float(value), 0
    while abs(number) >= 1024 and place < len(_UNITS) - 1:
        number, place = number / 1024, place + 1
    is_whole = place == 0 or abs(number) >= 100
    return f"{number:.0f} {_UNITS[place]}" if is_whole else f"{number:.1f} {_UNITS[place]}"


def duration(milliseconds: Any) -> str:
    """A time: `250 µs`, `2.5 ms`, `850 ms`, `12.4 s`, `3 h 5 min`, `2 d 4 h`."""
    if not isinstance(milliseconds, int | float):
        return NONE
    seconds = milliseconds / 1000
    if 0 < milliseconds < 1:
        return f"{1000 * milliseconds:.0f} µs"
    if seconds < 1:
        is_whole = milliseconds >= 100 or milliseconds == int(milliseconds)
        return f"{milliseconds:.0f} ms" if is_whole else f"{milliseconds:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{hours} h {minutes % 60} min" if days == 0 else f"{days} d {hours % 24} h"


def percent(part: float, whole: float) -> str:
    """A share: `12.5 %`; nothing of nothing is none."""
    return f"{100 * part / whole:.1f} %" if whole else NONE


def moment(unix_ms: Any) -> str:
    """A moment in UTC: `2026-11-29 08:15:00`."""
    if not isinstance(unix_ms, int | float):
        return NONE
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
