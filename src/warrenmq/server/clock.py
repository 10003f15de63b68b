"""The clock of a node."""

import time

from warrenmq.broker.latencies import Latencies


class Clock:
    """Time in ms since 1970 that never jumps: wall clock at the start, then monotonic (T11).

    Each event of a node asks for the time once, and so tells `latencies` when it happens.
    """

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The time in ms since 1970."""
        now_ns = time.monotonic_ns()
        self._latencies.now_ns = now_ns
        return (self._offset_ns + now_ns) // 1_000_000
