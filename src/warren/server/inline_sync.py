"""When the loop may make a batch durable itself instead of handing it to the flusher's thread.

A lone client that publishes, waits for its confirm and publishes again pays for two changes of thread with every
message, more than a fast disk takes for the sync. So a small batch may be synced on the loop when nothing else goes
on: one socket had something to say in this turn and no other batch is on its way. The price is that the loop stands
still for one sync, so that is done only on a disk that has just been fast, and not again for a while when one was slow:
a disk that hangs is waited for once, then everything goes through the thread (G6).
"""

from typing import Final

# Larger batches are worth the thread.
BATCH_BYTES_MAX: Final = 65536
SOCKETS_MAX: Final = 1
# A sync above this (ms) makes the disk slow; the pause after it doubles each time, up to the maximum.
SLOW_MS: Final = 1.0
PAUSE_MIN_MS: Final = 1_000
PAUSE_MAX_MS: Final = 60_000


class InlineSync:
    """Decides, and learns from how long each sync took. Times in ms."""

    def __init__(self) -> None:
        self._pause_ms = PAUSE_MIN_MS
        self._paused_until_ms = 0

    def allows(self, batch_bytes: int, socket_count: int, now_ms: int) -> bool:
        """May a batch of this size be synced on the loop, `socket_count` sockets having been read this turn?"""
        return (
            batch_bytes <= BATCH_BYTES_MAX and socket_count <= SOCKETS_MAX and now_ms >= self._paused_until_ms
        )

    def took(self, duration_ms: float, now_ms: int) -> None:
        """A sync on the loop took that long."""
        if duration_ms <= SLOW_MS:
            self._pause_ms = max(self._pause_ms // 2, PAUSE_MIN_MS)
            return
        self._paused_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MAX_MS)
