"""How ready the consumers of a queue are: RabbitMQ's `consumer_capacity`.

The consumers are ready until a message finds none that has room, and again from the next time that
one of them has room. A queue that has no message for its consumers therefore counts as ready.
"""

import math
from typing import Final

from mypy_extensions import i64

HALF_LIFE_MS: Final = 1000.0
_LN_2: Final = 0.6931471805599453


class ConsumerUse:
    """The share of time in which consumers were ready, as a moving average since `now_ms`.

    Times are those of turns (ms): what changes several times within one turn counts as in the state
    at its end.
    """

    def __init__(self, now_ms: i64) -> None:
        self.is_ready: bool = True
        # When a waiting message was last delivered to a consumer.
        self.served_ms: i64 = 0
        # When the current state began.
        self._since_ms: i64 = now_ms
        # How long the consumers were ready before a state of not being ready (ms).
        self._ready_ms: i64 = 0
        self._average: float = 1.0

    def stop(self, now_ms: i64) -> None:
        """Note that a message found no consumer with room; they were ready until the first such."""
        if self.is_ready:
            self.is_ready = False
            self._ready_ms = max(0, now_ms - self._since_ms)
            self._since_ms = now_ms

    def resume(self, now_ms: i64) -> None:
        """Note that a consumer has room; the consumers were not ready until now."""
        self._average = self.share(now_ms)
        self.is_ready = True
        self._since_ms = now_ms

    def share(self, now_ms: i64) -> float:
        """The share at this time, from 0.0 to 1.0."""
        elapsed_ms: i64 = max(0, now_ms - self._since_ms)
        ready_ms = elapsed_ms
        if not self.is_ready:
            ready_ms = self._ready_ms
            elapsed_ms += ready_ms
        if elapsed_ms == 0:
            return self._average
        weight = math.exp(-_LN_2 * float(elapsed_ms) / HALF_LIFE_MS)
        return float(ready_ms) / float(elapsed_ms) * (1.0 - weight) + self._average * weight
