"""Records for queues that this node does not know: not yet, or not any more.

A record may overtake the decision that makes the queue known here, so it waits for that. Another
one may come after the decision that has deleted the queue; nobody ever asks for that one, so no
record waits for long. A replica that begins lacks nothing by it: it asks its neighbour.
"""

from __future__ import annotations

from typing import Final

# Bytes of all records that wait.
EARLY_BYTES_MAX: Final = 16 * 1024 * 1024
# How long the records of a queue wait (ms).
EARLY_MS: Final = 60_000


class EarlyRecords:
    """The records that wait, with their senders, in order for each queue."""

    def __init__(self) -> None:
        # By the key of the queue, the one that waits for longest first.
        self._records: dict[int, list[tuple[bytes, bytes]]] = {}
        # When the first record of each queue came (ms).
        self._since_ms: dict[int, int] = {}
        # Bytes of all records.
        self.size_bytes = 0

    def keep(self, key: int, node: bytes, payload: bytes, now_ms: int) -> bool:
        """Keep a record of `node`. False: there is no room, and all records are dropped."""
        self.size_bytes += len(payload)
        if self.size_bytes > EARLY_BYTES_MAX:
            self._records = {}
            self._since_ms = {}
            self.size_bytes = 0
            return False
        self._records.setdefault(key, []).append((node, payload))
        self._since_ms.setdefault(key, now_ms)
        return True

    def take(self, key: int) -> list[tuple[bytes, bytes]]:
        """Remove and return the records of a queue."""
        records = self._records.pop(key, [])
        self._since_ms.pop(key, None)
        self.size_bytes -= sum(len(payload) for _node, payload in records)
        return records

    def drop_of(self, node: bytes) -> None:
        """Drop the records of a node whose link is lost."""
        for key in list(self._records):
            since_ms = self._since_ms[key]
            for sender, payload in self.take(key):
                if sender != node:
                    self.keep(key, sender, payload, since_ms)

    def expire(self, now_ms: int) -> None:
        """Drop the records of queues that have waited for EARLY_MS."""
        while self._since_ms:
            key, since_ms = next(iter(self._since_ms.items()))
            if now_ms - since_ms < EARLY_MS:
                return
            self.take(key)
