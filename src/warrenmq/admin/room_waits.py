"""Since when the parts of a sink's batch wait for room: all of a batch wait for one time together.

Spark runs the tasks of a batch one after another, and a failed task again. If each waited for the
whole time-out, a batch would wait for many times as long as its user allows.
"""

from typing import Final

# A batch of which nobody has asked for so long (ms) waits anew: a query is started again.
FORGET_MS: Final = 30_000


class _Wait:
    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.asked_ms = since_ms


class RoomWaits:
    """The batches of one vhost that find no room, by sink and number. Times in ms."""

    def __init__(self) -> None:
        self._waits: dict[tuple[bytes, int], _Wait] = {}

    def waited_ms(self, sink: bytes, batch: int, now_ms: int) -> int:
        """How long the batch has found no room, when it finds none now."""
        wait = self._waits.get((sink, batch))
        if wait is None or now_ms - wait.asked_ms > FORGET_MS:
            self._waits = {
                key: each
                for key, each in self._waits.items()
                if now_ms - each.asked_ms <= FORGET_MS
            }
            wait = self._waits[sink, batch] = _Wait(now_ms)
        wait.asked_ms = now_ms
        return now_ms - wait.since_ms

    def end(self, sink: bytes, batch: int) -> None:
        """The batch has found room."""
        self._waits.pop((sink, batch), None)
