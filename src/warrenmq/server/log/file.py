"""The log file, which begins anew by size and by date and keeps a number of older ones."""

import contextlib
import logging
import logging.handlers
import sys
from datetime import datetime, timedelta
from pathlib import Path

from warrenmq.server.config.options.rotation import parse_rotation_date


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file that rotates at `size` bytes (0 = never) and at `date` ("" = never).

    It keeps `count` older files, `NAME.1` the youngest; with a count of 0 it starts over empty.
    Raises OSError when the file cannot be opened. Lines that a full disk does not take are lost.
    """

    def __init__(self, path: Path, size: int, date: str, count: int) -> None:
        super().__init__(path, maxBytes=size, backupCount=count, encoding="utf-8")
        self._date = date
        self._next_date = next_rotation(date, datetime.now().astimezone()) if date else None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
        # The library would put a stack trace on standard error for each line.
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        # Closing tries once more to write what the disk has not taken.
        with contextlib.suppress(OSError):
            super().close()

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # the library's name
        if self._next_date is not None and record.created >= self._next_date.timestamp():
            self._next_date = next_rotation(self._date, datetime.now().astimezone())
            return True
        return bool(super().shouldRollover(record))

    def doRollover(self) -> None:  # noqa: N802  # the library's name
        if self.backupCount == 0 and self.stream is not None:
            self.stream.truncate(0)
        super().doRollover()


def next_rotation(date: str, now: datetime) -> datetime:
    """The first time after `now` that `date` names, such as `$D0` (see `options/rotation.py`)."""
    period, first, hour = parse_rotation_date(date)
    if period == "H":
        at = now.replace(minute=first, second=0, microsecond=0)
        return at if at > now else at + timedelta(hours=1)
    at = now.replace(hour=first if period == "D" else hour, minute=0, second=0, microsecond=0)
    while at <= now or not _is_day(period, first, at):
        at += timedelta(days=1)
    return at


def _is_day(period: str, first: int, at: datetime) -> bool:
    if period == "W":
        return at.isoweekday() % 7 == first
    if period == "M":
        # A month that is too short for the day rotates on its last day.
        return at.day == first or (at.day < first and (at + timedelta(days=1)).day == 1)
    return True
