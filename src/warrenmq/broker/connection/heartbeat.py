"""Heartbeats of one connection, in both directions (protocol section 1).

The broker looks every half interval whether it has sent anything since the last look, its own
heartbeats aside, and sends a heartbeat if not. The first look always sends one. The peer is dead
when two checks in a row, an interval apart, found that no byte arrived. Any byte counts, not only
heartbeat frames.

While the connection is paused, silence does not count: the broker does not read the socket, or an
alarm blocks a client that may do nothing but wait for its confirms. Instead the peer gets a
heartbeat every PROBE_MS, whatever else was sent: if the peer has closed its socket, its system
answers with a reset, and if the peer is gone, nothing is acked.
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
        # Output was taken since the last look, or no look was yet: its heartbeat is not optional.
        self._has_sent: bool = False
        self._has_looked: bool = False
        # The next output that is taken is a heartbeat.
        self._is_beat_due: bool = False
        self._idle_checks: i64 = 0
        self._next_check_ms: i64 = 0
        self._next_look_ms: i64 = 0
        self._next_probe_ms: i64 = 0

    def start(self, interval_ms: i64, now_ms: i64) -> None:
        """Start both directions with the negotiated interval (ms)."""
        self.interval_ms = interval_ms
        self._next_check_ms = now_ms + interval_ms
        self._next_look_ms = now_ms + interval_ms // 2

    @property
    def due_ms(self) -> i64:
        """Time of the next look or check; the interval must not be 0."""
        return min(self._next_look_ms, self._next_check_ms)

    def silence_max_ms(self) -> i64:
        """Longest time (ms) that heartbeats may stay unacked by TCP; 0 without heartbeats."""
        return IDLE_CHECKS_MAX * self.interval_ms

    def close_timeout_ms(self) -> i64:
        """Time to wait for the peer's answer to a close (ms)."""
        return (
            min(self.interval_ms, i64(CLOSE_TIMEOUT_MS))
            if self.interval_ms != 0
            else CLOSE_TIMEOUT_MS
        )

    def on_output(self) -> None:
        """Note that output was taken, to be written to the socket."""
        if self._is_beat_due:
            self._is_beat_due = False
        else:
            self._has_sent = True

    def take_beat(self, now_ms: i64) -> bool:
        """Whether to send a heartbeat frame now; called at `due_ms`."""
        if now_ms < self._next_look_ms:
            return False
        half_ms = self.interval_ms // 2
        # A late look does not delay those that follow.
        self._next_look_ms = max(self._next_look_ms + half_ms, now_ms)
        is_due = not (self._has_sent and self._has_looked)
        self._has_sent = False
        self._has_looked = True
        self._is_beat_due = is_due
        return is_due

    def take_probe(self, is_paused: bool, now_ms: i64) -> bool:
        """Whether to send a heartbeat frame now as a probe; called about twice a second."""
        if not is_paused or self.interval_ms == 0:
            self._next_probe_ms = now_ms + PROBE_MS
            return False
        if now_ms < self._next_probe_ms:
            return False
        self._next_probe_ms = now_ms + PROBE_MS
        return True

    def is_peer_dead(self, is_paused: bool, now_ms: i64) -> bool:
        """Whether the peer was silent for too long, and not paused; called at `due_ms`."""
        if now_ms < self._next_check_ms:
            return False
        self._idle_checks = 0 if self.has_received or is_paused else self._idle_checks + 1
        # After a pause the peer has as long as at the start.
        self.has_received = is_paused
        # A check that is very late delays the next: bytes that came meanwhile may be unread still.
        self._next_check_ms = max(
            self._next_check_ms + self.interval_ms, now_ms + self.interval_ms // 2
        )
        return self._idle_checks >= IDLE_CHECKS_MAX
