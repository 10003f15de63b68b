"""Limits on one connection that publishes: alarms, a slow disk, and unfinished messages.

Alarm (`alarms.py`). The next publish blocks the connection: publishes are kept unhandled, the
client gets connection.blocked with the reason if it wants that, and its acks are still handled. The
socket is read until WINDOW_BYTES are kept (all channels together); then it stays unread. No
heartbeats of the client are missed meanwhile: they are unread too, and a client may do nothing but
wait for its confirms. A connection that only consumes is not blocked. If a blocked connection ends,
its kept publishes were never accepted: none of them was confirmed. The rest of a body that was
arriving when the alarm came counts as kept. A transaction that is not empty may continue during a
memory alarm (`AlarmState.pass_publish`): only its end frees its memory.

Flow (`disk_flow.py`). When too many bytes wait for the disk, the socket is not read until half of
them are written. Clients get no notice, because this lasts milliseconds.

Unfinished messages. A body whose last frame has not come, or a publish whose transaction is not
committed, takes memory that no consumer can free. A connection may have
`AlarmState.unfinished_limit` bytes of them; ChannelException 406 closes the channel that exceeds
this. A single message is accepted whatever the limit. `find_stalled_bodies` finds bodies that have
stopped arriving; the caller closes their channels. Time in which the connection is not read does
not count.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.content.body import Body
from warrenmq.broker.flow.alarm_state import AlarmState
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.broker.output import Output
from warrenmq.broker.transaction import Transaction
from warrenmq.queues.memory.account import MemoryAccount
from warrenmq.wire.errors import PRECONDITION_FAILED, AmqpError, ChannelException
from warrenmq.wire.methods import ConnectionBlocked, ConnectionUnblocked

# Kept frames of a connection (bytes) above which its socket is not read.
WINDOW_BYTES: Final = 1048576
# A connection is shown in state `flow` for this time after flow control stopped or released it.
FLOW_SHOWN_MS: Final = 5000
_NEVER: Final = -1
# The time between two checks of arriving bodies counts at most this much (ms): after a stall of the
# node, the sockets may hold frames that the node has not read.
_ELAPSED_MAX_MS: Final = 1000


class Throttle:
    """The limits of one connection on publishing.

    The connection is an argument of the methods, not an attribute: a reference cycle would outlive
    it. `stall_timeout_ms`: a body may stop arriving for this time; 0 for ever.
    """

    def __init__(self, alarms: AlarmState, memory: MemoryAccount, stall_timeout_ms: i64) -> None:
        # True while publishes must be deferred: an alarm is on, or an alarm is over and this
        # connection still waits to be unblocked.
        self.is_alarmed: bool = alarms.is_on
        self._alarms: AlarmState = alarms
        self._memory: MemoryAccount = memory
        self._stall_timeout_ms: i64 = stall_timeout_ms
        self.is_blocked: bool = False
        # True if the client understands connection.blocked and connection.unblocked.
        self.wants_notice: bool = False
        # Number of times that flow control stopped the connection.
        self.flow_count: i64 = 0
        # Time when flow control last stopped or released the connection (ms).
        self._flow_ms: i64 = _NEVER
        self.is_notice_sent: bool = False
        self.is_flow_stopped: bool = False
        # Bytes of arriving bodies and of uncommitted publishes.
        self.unfinished_bytes: i64 = 0
        self._deferred: list[FlowHost] = []
        self._kept_bytes: i64 = 0
        # Arriving bodies by channel number.
        self._bodies: dict[int, Body] = {}
        self._measured_ms: i64 = 0
        # Bytes of the partial frame at the last check for stalled bodies.
        self._frame_bytes: i64 = 0

    def shown_state(self, now_ms: i64) -> str:
        """The state for operators: `running`, `blocking`, `blocked` or `flow`.

        `blocking`: the connection will be blocked if it publishes.
        """
        if self.is_blocked:
            return "blocked"
        if self.is_flow_stopped or (
            self._flow_ms != _NEVER and now_ms - self._flow_ms < FLOW_SHOWN_MS
        ):
            return "flow"
        return "blocking" if self.is_alarmed else "running"

    # -- alarms ------------------------------------------------------------------------------------

    def defer(self, client: ThrottleHost, channel: FlowHost) -> None:
        """Add `channel`, which defers a publish, and block the connection."""
        self._deferred.append(channel)
        self._block(client)

    def _block(self, client: ThrottleHost) -> None:
        self.is_blocked = True
        if self.wants_notice and not self.is_notice_sent:
            self.is_notice_sent = True
            client.out.method(0, ConnectionBlocked(self._alarms.reason()))
            client.touch()

    def unblock(self, client: ThrottleHost, now_ms: i64) -> i64:
        """Unblock the connection after all alarms; returns the bytes that were kept.

        The channels handle their kept frames before this returns.
        """
        size = self._kept_bytes
        self.end_alarm(client)
        if not self.is_blocked:
            return 0
        self.is_blocked = False
        if self.is_notice_sent:
            self.is_notice_sent = False
            client.out.method(0, ConnectionUnblocked())
            client.touch()
        deferred = self._deferred
        self._deferred = []
        for channel in deferred:
            channel.resume(now_ms)
        return size

    def end_alarm(self, client: ThrottleHost) -> None:
        """Let publishes pass again, and stop counting arriving bodies as kept."""
        self.is_alarmed = False
        for body in self._bodies.values():
            if body.kept_bytes > 0:
                self.uncount(client, body.kept_bytes)
                body.kept_bytes = 0

    def end(self) -> None:
        """Forget the deferred channels, because the connection ends; no notice is sent."""
        self.is_blocked = False
        self.is_notice_sent = False
        self._deferred = []

    # -- kept frames -------------------------------------------------------------------------------

    def count(self, client: ThrottleHost, size: i64) -> None:
        """Count `size` more bytes of kept frames."""
        alarms = self._alarms
        self._kept_bytes += size
        alarms.kept_bytes += size
        if self._kept_bytes > WINDOW_BYTES or alarms.is_crowded():
            self._set_reading(client)

    def uncount(self, client: ThrottleHost, size: i64) -> None:
        """Count `size` fewer bytes of kept frames."""
        self._kept_bytes -= size
        self._alarms.kept_bytes -= size
        self._set_reading(client)

    def _set_reading(self, client: ThrottleHost) -> None:
        kept = self._kept_bytes
        is_full = kept > WINDOW_BYTES or (kept > 0 and self._alarms.is_crowded())
        is_reading = not is_full and not self.is_flow_stopped
        if client.is_reading != is_reading:
            client.is_reading = is_reading
            client.touch()

    # -- flow --------------------------------------------------------------------------------------

    def stop_flow(self, client: ThrottleHost) -> None:
        """Stop reading the socket, because too much waits for the disk."""
        self.is_flow_stopped = True
        self._flow_ms = client.now_ms
        self.flow_count += 1
        self._set_reading(client)

    def start_flow(self, client: ThrottleHost, now_ms: i64) -> None:
        """Read the socket again, because the disk has caught up."""
        self.is_flow_stopped = False
        self._flow_ms = now_ms
        self._set_reading(client)

    # -- unfinished --------------------------------------------------------------------------------

    def arrive(
        self,
        client: ThrottleHost,
        number: i64,
        body: Body,
        size: i64,
        transaction: Transaction | None,
    ) -> None:
        """Count `size` more bytes of a body on channel `number`, which may be in a transaction.

        Raises ChannelException 406 when the connection has too many unfinished bytes.
        """
        if len(self._bodies) == 0:
            self._measured_ms = client.now_ms
        self._bodies[number] = body
        self._grow(client, size, body.received_bytes)
        if not self.is_alarmed:
            return
        alarms = self._alarms
        if transaction is not None and alarms.lets_pass(transaction):
            alarms.check_pass(body.received_bytes)
            return
        body.kept_bytes += size
        self.count(client, size)
        if not client.is_reading:
            self._block(client)

    def forget(self, client: ThrottleHost, number: i64, body: Body) -> None:
        """Forget a body that is complete or was dropped."""
        del self._bodies[number]
        self._shrink(client, body.received_bytes)
        if body.kept_bytes > 0:
            self.uncount(client, body.kept_bytes)

    def add_uncommitted(self, client: ThrottleHost, size: i64) -> None:
        """Count `size` more bytes of an open transaction.

        Raises like `arrive`, and during a memory alarm like `AlarmState.pass_publish`.
        """
        self._grow(client, size, size)
        if self.is_alarmed:
            self._alarms.pass_publish(size)

    def end_transaction(self, client: ThrottleHost, size: i64) -> None:
        """Forget a transaction of `size` bytes, which was committed or rolled back."""
        self._shrink(client, size)

    def find_stalled_bodies(self, client: ThrottleHost, frame_bytes: i64, now_ms: i64) -> list[int]:
        """Numbers of the channels whose body has stopped arriving for too long.

        `frame_bytes` is the size of the partial frame; a change of it since the last check is
        progress.
        """
        elapsed_ms = min(now_ms - self._measured_ms, _ELAPSED_MAX_MS)
        self._measured_ms = now_ms
        found: list[int] = []
        timeout_ms = self._stall_timeout_ms
        if len(self._bodies) == 0 or timeout_ms == 0 or not client.is_reading or client.is_unread:
            return found
        is_frame_arriving = frame_bytes != self._frame_bytes
        self._frame_bytes = frame_bytes
        for number, body in self._bodies.items():
            body.idle_ms = 0 if is_frame_arriving else body.idle_ms + elapsed_ms
            if body.idle_ms >= timeout_ms:
                found.append(number)
        return found

    def _grow(self, client: ThrottleHost, size: i64, message_bytes: i64) -> None:
        self._memory.unfinished_bytes += size
        self.unfinished_bytes += size
        limit = self._alarms.unfinished_limit()
        if self.unfinished_bytes > limit and self.unfinished_bytes > message_bytes:
            raise ChannelException(
                PRECONDITION_FAILED,
                f"{self.unfinished_bytes} bytes of unfinished messages on this connection, at most {limit} are allowed",
                60,
                40,
            )

    def _shrink(self, client: ThrottleHost, size: i64) -> None:
        self._memory.unfinished_bytes -= size
        self.unfinished_bytes -= size


class ThrottleHost:
    """A connection, as its throttle sees it; after a `touch`, the shell reads the flags."""

    def __init__(self, out: Output, throttle: Throttle, now_ms: i64) -> None:
        self.out: Output = out
        self.throttle: Throttle = throttle
        self.now_ms: i64 = now_ms
        # True if `touch` was called since the shell last took the output.
        self.is_dirty: bool = False
        # False while flow control does not want the socket to be read.
        self.is_reading: bool = True
        # True while the shell does not read the socket, because of `is_reading` or for its own
        # reason.
        self.is_unread: bool = False
        self.is_writable: bool = True

    def is_paused(self) -> bool:
        """Whether silence is no sign of death: an alarm blocks the client, or it is not read."""
        return self.throttle.is_blocked or self.is_unread or not self.is_reading

    def touch(self) -> None:
        """Tell the shell that this connection has output or changed flags."""
        raise RuntimeError("abstract")

    def fail(self, error: AmqpError) -> None:
        """Close the connection for `error`; before connection.tune, the peer gets no close."""
        raise RuntimeError("abstract")
