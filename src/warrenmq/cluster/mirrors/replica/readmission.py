"""When a node whose member is dead for the group asks to be taken in again.

It asks at once, as a rule. But its links may hang while it reaches the store of the cluster: then
it would be taken in and given up over and over, for thousands of queues. So a node that is given up
again soon after it was taken in pauses, for longer each time, until it has a new link to the
master.
"""

from __future__ import annotations

from typing import Final

# A member that lived for this time (ms) is given up for a new reason.
STABLE_MS: Final = 30_000
# The first pause, and the longest one (ms). Each is twice as long as the one before.
PAUSE_MIN_MS: Final = 1_000
PAUSE_MAX_MS: Final = 16_000


class Readmission:
    """The pauses of one queue's replica."""

    def __init__(self) -> None:
        # When the node was taken in for the last time (ms).
        self._joined_ms = -STABLE_MS
        self._pause_ms = 0
        # When the node may ask again.
        self._from_ms = 0

    def joined(self, now_ms: int) -> None:
        """The node has a member of the group."""
        self._joined_ms = now_ms

    def buried(self, now_ms: int) -> None:
        """The group counts the member as dead, and the node goes on."""
        if now_ms - self._joined_ms >= STABLE_MS:
            self._pause_ms = 0
        else:
            self._pause_ms = min(max(PAUSE_MIN_MS, 2 * self._pause_ms), PAUSE_MAX_MS)
        self._from_ms = now_ms + self._pause_ms

    def link_is_new(self) -> None:
        """The node has a new link to the master."""
        self._pause_ms = 0
        self._from_ms = 0

    def may_ask(self, now_ms: int) -> bool:
        """Whether the node may ask to be taken in again."""
        return now_ms >= self._from_ms
