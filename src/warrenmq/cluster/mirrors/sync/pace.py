"""How fast a synchronisation may send: two token buckets, which a chunk may overdraw.

The configured rate is an upper bound. While the queue is in use, its operations come first: the
synchronisation gets half of the bytes that they take, and FLOOR_BYTES a second besides, so that it
ends however busy the queue is.
"""

from __future__ import annotations

from typing import Final

# Bytes a second that a queue in use leaves to a synchronisation in any case.
FLOOR_BYTES: Final = 32 << 20
# A queue is in use for this time (ms) after each operation.
BUSY_MS: Final = 200
# The most tokens (bytes) that gather.
BURST_BYTES: Final = 262144
_BURST: Final = BURST_BYTES * 1000


class SyncPace:
    """The pace of one synchronisation; `rate_bytes`: the most bytes a second, 0: no limit."""

    def __init__(self, rate_bytes: int) -> None:
        self.rate_bytes: int = rate_bytes
        # Tokens by the configured rate, and by the use of the queue, in thousandths of bytes.
        self._room: int = _BURST
        self._spare: int = _BURST
        self._refilled_ms: int = 0
        self._ring_bytes: int = 0
        # When operations were last seen.
        self._used_ms: int = -BUSY_MS

    def refill(self, now_ms: int, ring_bytes: int) -> None:
        """Note the time, and how many bytes of operations the ring has got so far."""
        elapsed_ms = 0
        if self._refilled_ms > 0:
            elapsed_ms = max(0, min(now_ms - self._refilled_ms, 1000))
        self._refilled_ms = now_ms
        used = max(0, ring_bytes - self._ring_bytes)
        self._ring_bytes = ring_bytes
        if used > 0:
            self._used_ms = now_ms
        if now_ms - self._used_ms < BUSY_MS:
            self._spare = min(_BURST, self._spare + elapsed_ms * FLOOR_BYTES + used * 500)
        else:
            self._spare = _BURST
        if self.rate_bytes == 0:
            self._room = _BURST
        else:
            self._room = min(_BURST, self._room + elapsed_ms * self.rate_bytes)

    def admits(self) -> bool:
        """Whether a chunk may be sent now."""
        return self._room > 0 and self._spare > 0

    def spend(self, size_bytes: int) -> None:
        """Count a chunk that was sent."""
        self._room -= size_bytes * 1000
        self._spare -= size_bytes * 1000

    def wait_ms(self) -> int:
        """Time (ms) until a chunk may be sent, if nothing changes; 0: now."""
        wait = 0
        if self._room <= 0 and self.rate_bytes > 0:
            wait = -self._room // self.rate_bytes + 1
        if self._spare <= 0:
            wait = max(wait, min(-self._spare // FLOOR_BYTES + 1, BUSY_MS))
        return wait
