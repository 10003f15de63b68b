"""The events that wait for one session, as JSON lines: at most so many, and so many bytes.

A session that takes them too slowly loses the newest ones. A line in their place says how many.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Final

from warrenmq.admin.protocol.watching import EVENTS_LOST

EVENTS_MAX: Final = 10_000
BYTES_MAX: Final = 8 * 1024 * 1024
# Most lines of one reply, and about how many characters.
_TAKEN_MAX: Final = 1000
_TAKEN_CHARACTERS: Final = 256 * 1024


class EventQueue:
    """The events called `names`; `wake` is called when an event comes into an empty queue."""

    def __init__(self, names: frozenset[str], wake: Callable[[], None]) -> None:
        self.names = names
        self._wake = wake
        self._lines: deque[str] = deque()
        self._characters = 0
        self._lost = 0
        self._lost_at_ms = 0

    def add(self, line: str, now_ms: int) -> None:
        """Append an event, or count it as lost."""
        is_full = len(self._lines) >= EVENTS_MAX or self._characters + len(line) > BYTES_MAX
        if is_full:
            self._lost += 1
            self._lost_at_ms = now_ms
            return
        self._append_lost()
        self._append(line)
        if len(self._lines) == 1:
            self._wake()

    def take(self) -> list[str]:
        """Remove and return the first lines."""
        taken: list[str] = []
        characters = 0
        while self._lines and len(taken) < _TAKEN_MAX and characters < _TAKEN_CHARACTERS:
            taken.append(self._lines.popleft())
            characters += len(taken[-1])
        self._characters -= characters
        if not self._lines:
            self._append_lost()
        return taken

    def _append_lost(self) -> None:
        if self._lost:
            fields = {
                "event": EVENTS_LOST,
                "count": self._lost,
                "timestamp_in_ms": self._lost_at_ms,
            }
            self._append(json.dumps(fields, separators=(",", ":")))
            self._lost = 0

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._characters += len(line)
