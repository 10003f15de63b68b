"""Histories as files: one JSON object a line, written while the workload runs.

A history may come in several files, for instance of the clients and of whoever causes the faults:
`read_history` merges them by the moments of their events.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

import msgspec

from simulator.checker.events import FORMAT, AnyEvent, Event, Header

# Bytes that a recorder gathers before it writes.
_BUFFER_BYTES: Final = 1 << 16

_decoder: Final = msgspec.json.Decoder(AnyEvent)
_encoder: Final = msgspec.json.Encoder()


class HistoryError(Exception):
    """A file is no history, or its events contradict each other; the text says where."""


def now_us() -> int:
    """The moment of an event that happens now."""
    return time.monotonic_ns() // 1000


class Recorder:
    """Appends events to a new file; for one thread.

    Other processes see events only after `flush` or `close`.
    """

    def __init__(self, path: Path) -> None:
        # Events so far by type.
        self.counts: Counter[type[Event]] = Counter()
        self._file: IO[bytes] = path.open("wb", buffering=_BUFFER_BYTES)
        self.record(Header(now_us(), FORMAT, time.time()))

    def record(self, event: Event) -> None:
        """Append one event."""
        self.counts[type(event)] += 1
        self._file.write(_encoder.encode(event) + b"\n")

    def flush(self) -> None:
        """Make all events so far visible to readers of the file."""
        self._file.flush()

    def close(self) -> None:
        """Write the rest."""
        self._file.close()


def read_history(paths: Iterable[Path]) -> list[AnyEvent]:
    """All events of the files, sorted by their moments. Raises HistoryError.

    The last line of a file may be cut off: its writer may have been killed.
    """
    events: list[AnyEvent] = []
    for path in paths:
        events += _read(path)
    # The sort keeps the order of events of one file at the same moment.
    events.sort(key=lambda event: event.at_us)
    return events


def _read(path: Path) -> list[AnyEvent]:
    *lines, _cut_off = path.read_bytes().split(b"\n")
    events: list[AnyEvent] = []
    for number, line in enumerate(lines, 1):
        try:
            event = _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise HistoryError(f"{path}, line {number}: {error}") from None
        if number == 1 and not isinstance(event, Header):
            raise HistoryError(f"{path} does not begin as a history")
        if isinstance(event, Header) and event.format > FORMAT:
            raise HistoryError(f"{path} has format {event.format}; this version reads {FORMAT}")
        events.append(event)
    return events
