"""How fast a synchronisation sends, from samples that are some seconds apart."""

from __future__ import annotations

from typing import Final, NamedTuple

# Time (ms) between two samples: the speed is that of one to two of these spans.
SAMPLE_MS: Final = 2000


class _Sample(NamedTuple):
    """What was sent up to a moment."""

    at_ms: int
    messages: int
    size_bytes: int


class SyncSpeed:
    """The speed of what is being sent to one mirror; times in ms."""

    def __init__(self) -> None:
        self._earlier = self._later = self._last = _Sample(0, 0, 0)

    def begin(self, now_ms: int, messages: int, size_bytes: int) -> None:
        """Measure from now on, when `messages` with `size_bytes` were sent before."""
        self._earlier = self._later = self._last = _Sample(now_ms, messages, size_bytes)

    def note(self, now_ms: int, messages: int, size_bytes: int) -> None:
        """Note how much is sent by now."""
        self._last = _Sample(now_ms, messages, size_bytes)
        if now_ms - self._later.at_ms >= SAMPLE_MS:
            self._earlier = self._later
            self._later = self._last

    def by_second(self) -> tuple[float, float]:
        """(messages, bytes) a second of late; zeros until there is something to tell."""
        elapsed_ms = self._last.at_ms - self._earlier.at_ms
        if elapsed_ms <= 0:
            return 0.0, 0.0
        messages = self._last.messages - self._earlier.messages
        size_bytes = self._last.size_bytes - self._earlier.size_bytes
        return messages * 1000 / elapsed_ms, size_bytes * 1000 / elapsed_ms
