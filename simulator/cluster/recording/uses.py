"""When clients have used the queues that may expire, as far as they know for sure."""

from __future__ import annotations

from simulator.models.messages import Violation


class QueueUses:
    """The last use of each queue, by its name with its birth."""

    def __init__(self) -> None:
        self._used_ms: dict[str, int] = {}

    def used(self, queue: str, sent_ms: int) -> None:
        """A call on a queue that a client had sent at `sent_ms` was answered."""
        self._used_ms[queue] = max(sent_ms, self._used_ms.get(queue, sent_ms))

    def gone(self, queue: str, expires_ms: int, now_ms: int) -> None:
        """A queue is deleted, and no client has asked for it; Violation if it was used lately."""
        unused_ms = now_ms - self._used_ms.get(queue, now_ms - expires_ms)
        if unused_ms < expires_ms:
            text = f"{queue} was used {unused_ms} ms ago, and may be unused for {expires_ms} ms"
            raise Violation("expired", text)
