"""The clock of a node."""

import time


class Clock:
    """Milliseconds since 1970 that never jump: wall clock at the start, monotonic from there (T11)."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
