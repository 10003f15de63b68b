"""When the loop may make a batch durable itself instead of handing it to the flusher's thread.

A lone client that publishes, waits for its confirm and publishes again pays for two changes of thread with every
message, more than a fast disk takes for the sync. So a small batch may be synced on the loop when nothing else goes
on: one socket had something to say in this turn and no other batch is on its way. The price is that the loop stands
still for one sync. So that is done only on a disk that has been fast several times in a row, wherever it was synced: a
slow disk never holds up the loop, and one that becomes slow or hangs does so once (G6).
"""

from typing import Final

# Larger batches are worth the thread, and say little about how fast the disk is.
BATCH_BYTES_MAX: Final = 65536
SOCKETS_MAX: Final = 1
# A sync within this is fast.
FAST_MS: Final = 1.0
FAST_IN_A_ROW: Final = 8


class InlineSync:
    """Decides, and learns from how long each small sync took."""

    def __init__(self) -> None:
        self._fast_count = 0

    def allows(self, batch_bytes: int, socket_count: int) -> bool:
        """May a batch of this size be synced on the loop, `socket_count` sockets having been read this turn?"""
        return (
            batch_bytes <= BATCH_BYTES_MAX
            and socket_count <= SOCKETS_MAX
            and self._fast_count >= FAST_IN_A_ROW
        )

    def took(self, batch_bytes: int, duration_ms: float) -> None:
        """A batch of this size was synced, here or on the thread."""
        if batch_bytes <= BATCH_BYTES_MAX:
            self._fast_count = self._fast_count + 1 if duration_ms <= FAST_MS else 0
