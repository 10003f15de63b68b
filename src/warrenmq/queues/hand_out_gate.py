"""Until when a queue may hand out messages: the fence of a master that others may depose.

A mirror takes over from a master that it has not heard for some time. The old master may be cut off
and not know it. So it hands out messages only until a time before which no mirror can have taken
over, and each sign of life of its mirrors moves that time. A comparison is all that it costs a
delivery.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# Above every time (ms since 1970).
FOR_EVER: Final[i64] = 1 << 62


class HandOutGate:
    """A time until which messages may be handed out; queues with the same mirrors share a gate."""

    def __init__(self, until_ms: i64) -> None:
        # Time (ms since 1970, as all times of a node) from which on nothing is handed out.
        self.until_ms: i64 = until_ms


# The gate of a queue that has no mirrors.
OPEN: Final = HandOutGate(FOR_EVER)
# The gate of a master that is about to hand over, and of a paused queue.
CLOSED: Final = HandOutGate(0)
