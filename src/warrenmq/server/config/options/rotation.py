"""When a log file ends by date: RabbitMQ's `log.file.rotation.date`.

| text | a new file begins |
|---|---|
| `$H` or `$H30` | every hour, at that minute |
| `$D` or `$D23` | every day, at that hour |
| `$W0` or `$W5D16` | every week, on that day (0 = Sunday), at that hour |
| `$M1` or `$M1D0` | every month, on that day, at that hour |
"""

import re
from typing import Final

from warrenmq.server.config.errors import ConfigError

# Name of a period, largest number of its first part, largest hour of its second part.
_LIMITS: Final = {"H": 59, "D": 23, "W": 6, "M": 31}


def rotation_date(text: str) -> str:
    """`text`, a date of rotation, or "" for never. Raises ConfigError."""
    if text:
        parse_rotation_date(text)
    return text


def parse_rotation_date(text: str) -> tuple[str, int, int]:
    """(period, first part, hour) of `text`, which is not empty. Raises ConfigError."""
    match = re.fullmatch(r"\$(?:([HD])(\d{0,2})|([WM])(\d{1,2})(?:D(\d{1,2}))?)", text)
    if match is not None:
        period = match[1] or match[3]
        first = int(match[2] or match[4] or 0)
        hour = int(match[5] or 0)
        if first <= _LIMITS[period] and hour <= 23 and not (period == "M" and first == 0):
            return period, first, hour
    raise ConfigError(f"expected a date such as $D0, $W0D23, $M1 or $H30, got {text!r}")
