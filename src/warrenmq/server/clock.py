"""The clock of a node."""

import time


class Clock:
    """Time in ms since 1970 that never jumps: wall clock at the start, then monotonic (T11)."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The time in ms since 1970."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
