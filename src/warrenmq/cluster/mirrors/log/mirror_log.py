"""The log of mirrored queues: one line for a queue, and one for all others of the same event.

The death of a node, or a policy, concerns thousands of queues within a moment. The first LINES_MAX
queues of an event have a line each. The others are counted, and one line says how many there were
when no more have come for QUIET_MS, or after BURST_MS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("warren.mirrors")

LINES_MAX: Final = 20
QUIET_MS: Final = 3_000
BURST_MS: Final = 10_000


class _Burst:
    """An event of several queues: how many there were since `since_ms`, and the last one."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.last_ms = since_ms
        self.count = 0
        self.level = logging.INFO


class MirrorLog:
    """Writes the lines of one node; `now_ms` tells the time."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # By the text that is the same for all queues of an event.
        self._bursts: dict[str, _Burst] = {}

    def write(self, queue: str, text: str, event: str = "", level: int = logging.INFO) -> None:
        """Log that `text` is true of `queue`, "queue 'Q' in vhost 'V'".

        `event`: what it has in common with lines about other queues; by default all of `text`.
        """
        event = event or text
        now_ms = self._now_ms()
        burst = self._bursts.get(event)
        if burst is None:
            burst = self._bursts[event] = _Burst(now_ms)
        burst.count += 1
        burst.last_ms = now_ms
        burst.level = max(burst.level, level)
        if burst.count <= LINES_MAX:
            logger.log(level, "Mirrored %s: %s", queue, text)

    def tick(self) -> None:
        """Log how many queues had no line of their own, once an event is over."""
        now_ms = self._now_ms()
        for event, burst in list(self._bursts.items()):
            if now_ms - burst.last_ms >= QUIET_MS or now_ms - burst.since_ms >= BURST_MS:
                self._end(event, burst)

    def flush(self) -> None:
        """Log all that waits: the node stops."""
        for event, burst in list(self._bursts.items()):
            self._end(event, burst)

    def _end(self, event: str, burst: _Burst) -> None:
        del self._bursts[event]
        if burst.count > LINES_MAX:
            more = burst.count - LINES_MAX
            logger.log(burst.level, "Mirrored queues, %d more: %s", more, event)
