"""Heartbeats of one connection, in both directions (protocol section 1).

The broker sends a heartbeat when it has sent nothing else for half an interval. The peer is dead
when two checks in a row, an interval apart, found that no byte arrived. Any byte counts, not only
heartbeat frames.

While the broker does not read the socket, silence does not count. Instead the peer gets a heartbeat
every PROBE_MS, whatever else was sent: if the peer has closed its socket, its system answers with a
reset, and if the peer is gone, nothing is acked.
"""

from typing import Final

from mypy_extensions import i64

IDLE_CHECKS_MAX: Final = 2
# Time for the peer to answer connection.close (ms); a shorter heartbeat interval replaces it.
CLOSE_TIMEOUT_MS: Final = 30000
PROBE_MS: Final = 2000


class Heartbeats:
    """The heartbeat timers of one connection (ms); interval 0 switches both directions off."""

    def __init__(self) -> None:
        self.interval_ms: i64 = 0
        self.has_received: bool = True
        self.has_sent: bool = False
        self._idle_checks: i64 = 0
        self._next_check_ms: i64 = 0
        self._next_beat_ms: i64 = 0
        self._next_probe_ms: i64 = 0

    def start(self, interval_ms: i64, now_ms: i64) -> None:
        """Start both directions with the negotiated interval (ms)."""
        self.interval_ms = interval_ms
        self._next_check_ms = now_ms + interval_ms
        self._next_beat_ms = now_ms + interval_ms // 2

    def close_timeout_ms(self) -> i64:
        """Time to wait for the peer's answer to a close (ms)."""
        return (
            min(self.interval_ms, i64(CLOSE_TIMEOUT_MS))
            if self.interval_ms != 0
            else CLOSE_TIMEOUT_MS
        )

    def is_beat_due(self, is_reading: bool, now_ms: i64) -> bool:
        """Whether to send a heartbeat frame now; called about once a second."""
        if self.interval_ms == 0:
            return False
        if is_reading:
            self._next_probe_ms = now_ms + PROBE_MS
        elif now_ms >= self._next_probe_ms:
            self._next_probe_ms = now_ms + PROBE_MS
            return True
        if now_ms < self._next_beat_ms:
            return False
        is_due = not self.has_sent
        self.has_sent = False
        self._next_beat_ms = now_ms + self.interval_ms // 2
        return is_due

    def is_peer_dead(self, is_reading: bool, now_ms: i64) -> bool:
        """Whether the peer was silent for too long; never while the broker does not read it."""
        if self.interval_ms == 0 or now_ms < self._next_check_ms:
            return False
        self._idle_checks = 0 if self.has_received or not is_reading else self._idle_checks + 1
        self.has_received = False
        self._next_check_ms = now_ms + self.interval_ms
        return self._idle_checks >= IDLE_CHECKS_MAX
