"""Heartbeats of one connection, both ways (protocol section 1).

We send one when nothing else was sent for half an interval; the peer is dead when two looks in a row, an interval
apart, found that nothing came in. Any byte counts as life, not only heartbeat frames.

While we do not read the peer it is not missed. It gets a heartbeat every PROBE_MS instead, whatever else was sent: the
system of a peer that has closed its socket answers with a reset, and one that is gone acks nothing.
"""

from typing import Final

from mypy_extensions import i64

IDLE_CHECKS_MAX: Final = 2
# A peer has so long, or an interval when that is less, to answer our close (ms).
CLOSE_TIMEOUT_MS: Final = 30000
PROBE_MS: Final = 2000


class Heartbeats:
    """Times in ms; an interval of 0 switches both directions off."""

    def __init__(self) -> None:
        self.interval_ms: i64 = 0
        self.has_received: bool = True
        self.has_sent: bool = False
        self._idle_checks: i64 = 0
        self._next_check_ms: i64 = 0
        self._next_beat_ms: i64 = 0
        self._next_probe_ms: i64 = 0

    def start(self, interval_ms: i64, now_ms: i64) -> None:
        """The interval is negotiated."""
        self.interval_ms = interval_ms
        self._next_check_ms = now_ms + interval_ms
        self._next_beat_ms = now_ms + interval_ms // 2

    def close_timeout_ms(self) -> i64:
        """For how long the peer's answer to a close is waited for."""
        return (
            min(self.interval_ms, i64(CLOSE_TIMEOUT_MS))
            if self.interval_ms != 0
            else CLOSE_TIMEOUT_MS
        )

    def is_beat_due(self, is_reading: bool, now_ms: i64) -> bool:
        """Is a heartbeat frame due? Asked about once a second."""
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
        """Has the peer been silent for too long? Not while it is we who do not read."""
        if self.interval_ms == 0 or now_ms < self._next_check_ms:
            return False
        self._idle_checks = 0 if self.has_received or not is_reading else self._idle_checks + 1
        self.has_received = False
        self._next_check_ms = now_ms + self.interval_ms
        return self._idle_checks >= IDLE_CHECKS_MAX
