"""What sessions with other nodes were told of this node's objects."""

from typing import Final

from warrenmq.admin.changes.tick import Ticks

# A session that has asked for nothing for so long (ms) has ended, or is told everything anew.
IDLE_MAX_MS: Final = 60_000


class PassedSessions:
    """The ticks of these sessions by kind; other nodes do not tell when a session ends."""

    def __init__(self) -> None:
        # By the session's name, with the time of its last request; the oldest request first.
        self._sessions: dict[str, tuple[int, dict[str, Ticks]]] = {}

    def ticks(self, session: str, now_ms: int) -> dict[str, Ticks]:
        """The ticks that `session` has begun, to which the caller may add."""
        while self._sessions:
            oldest = next(iter(self._sessions))
            if now_ms - self._sessions[oldest][0] <= IDLE_MAX_MS:
                break
            del self._sessions[oldest]
        _, ticks = self._sessions.pop(session, (0, {}))
        self._sessions[session] = (now_ms, ticks)
        return ticks
