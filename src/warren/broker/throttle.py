"""What keeps one connection from publishing as fast as it likes: alarms, and a disk that lags.

Alarm (`alarms.py`). From its next publish on the connection is blocked: publishes are kept back unhandled, the client
is told why if it wants to know, and its acks go on being handled. It is read on until WINDOW_BYTES are kept (all
channels together); then the socket stays unread, heartbeats of the client included, which are not missed meanwhile. A
connection that only consumes is not blocked. Should the connection end while it is blocked, what it had kept was never
taken: nothing of it was confirmed.

Flow (`disk_flow.py`). More waits for the disk than should: the socket is not read until that is half done. Clients are
not told; it lasts milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from warren.wire.methods import ConnectionBlocked, ConnectionUnblocked

if TYPE_CHECKING:
    from warren.broker.channel import Channel
    from warren.broker.connection import Connection

# Bytes of kept frames above which a connection is not read further.
WINDOW_BYTES: Final = 1048576
# A connection is shown in the state `flow` for so long after flow control has stopped it.
FLOW_SHOWN_MS: Final = 5000
_NEVER: Final = -1


class Throttle:
    """The brakes of one connection, which is an argument everywhere: a cycle would outlive the connection."""

    def __init__(self, is_alarmed: bool) -> None:
        # Publishes must be held: an alarm is on, or was and this connection's turn to go on has not come.
        self.is_alarmed: bool = is_alarmed
        self.is_blocked: bool = False
        # The client can make sense of connection.blocked and unblocked.
        self.wants_notice: bool = False
        # How often flow control has stopped it, and when it last did.
        self.flow_count: i64 = 0
        self._flow_ms: i64 = _NEVER
        self._is_told: bool = False
        self.is_flow_stopped: bool = False
        self._held: list[Channel] = []
        self._kept_bytes: i64 = 0

    def shown_state(self, now_ms: i64) -> str:
        """`running`, or why it does not run: `blocking` (it would be blocked if it published), `blocked`, `flow`."""
        if self.is_blocked:
            return "blocked"
        if self.is_flow_stopped or (self._flow_ms != _NEVER and now_ms - self._flow_ms < FLOW_SHOWN_MS):
            return "flow"
        return "blocking" if self.is_alarmed else "running"

    # -- alarms ------------------------------------------------------------------------------------------------------

    def hold(self, connection: Connection, channel: Channel) -> None:
        """A publish of this channel is held back."""
        self._held.append(channel)
        self.is_blocked = True
        if self.wants_notice and not self._is_told:
            self._is_told = True
            connection.out.method(0, ConnectionBlocked(connection.broker.alarms.reason()))
            connection.touch()

    def unblock(self, connection: Connection, now_ms: i64) -> i64:
        """All alarms are over: handle what was kept. Returns how many bytes that was."""
        self.is_alarmed = False
        if not self.is_blocked:
            return 0
        self.is_blocked = False
        if self._is_told:
            self._is_told = False
            connection.out.method(0, ConnectionUnblocked())
            connection.touch()
        held = self._held
        self._held = []
        size = self._kept_bytes
        for channel in held:
            channel.resume(now_ms)
        return size

    def end(self) -> None:
        """The connection is over: there is nobody to be told."""
        self.is_blocked = False
        self._is_told = False
        self._held = []

    # -- kept frames -------------------------------------------------------------------------------------------------

    def count(self, connection: Connection, size: i64) -> None:
        """So many more bytes of frames are kept."""
        alarms = connection.broker.alarms
        self._kept_bytes += size
        alarms.kept_bytes += size
        if self._kept_bytes > WINDOW_BYTES or alarms.is_crowded():
            self._set_reading(connection)

    def uncount(self, connection: Connection, size: i64) -> None:
        """So many bytes are not kept any more."""
        self._kept_bytes -= size
        connection.broker.alarms.kept_bytes -= size
        self._set_reading(connection)

    def _set_reading(self, connection: Connection) -> None:
        kept = self._kept_bytes
        is_full = kept > WINDOW_BYTES or (kept > 0 and connection.broker.alarms.is_crowded())
        is_reading = not is_full and not self.is_flow_stopped
        if connection.is_reading != is_reading:
            connection.is_reading = is_reading
            connection.touch()

    # -- flow --------------------------------------------------------------------------------------------------------

    def stop_flow(self, connection: Connection) -> None:
        """Too much waits for the disk: read no further."""
        self.is_flow_stopped = True
        self._flow_ms = connection.now_ms
        self.flow_count += 1
        self._set_reading(connection)

    def start_flow(self, connection: Connection, now_ms: i64) -> None:
        """The disk has caught up."""
        self.is_flow_stopped = False
        self._flow_ms = now_ms
        self._set_reading(connection)
