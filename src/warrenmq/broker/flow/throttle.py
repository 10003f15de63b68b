"""Limits on how fast one connection may publish: alarms, a disk that lags, and messages it leaves unfinished.

Alarm (`alarms.py`). From its next publish on the connection is blocked: publishes are kept back unhandled, the client
is told why if it wants to know, and its acks go on being handled. It is read on until WINDOW_BYTES are kept (all
channels together); then the socket stays unread, heartbeats of the client included, which are not missed meanwhile. A
connection that only consumes is not blocked. Should the connection end while it is blocked, what it had kept was never
taken: nothing of it was confirmed. The rest of a body that was arriving when the alarm came counts as kept. A
transaction with something in it may go on while memory is low (`AlarmState.pass_publish`): only its end frees what it holds.

Flow (`disk_flow.py`). More waits for the disk than should: the socket is not read until that is half done. Clients are
not told; it lasts milliseconds.

Unfinished. Bodies whose last frame has not come and publishes whose transaction is not committed take memory that no
consumer can free. A connection may have `AlarmState.unfinished_limit` of them; the channel that exceeds it is closed with
406. A single message is taken whatever the limit. A body of which nothing comes any more is ended by
`find_stalled_bodies`; the time in which the connection is not read does not count.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.content.body import Body
from warrenmq.broker.flow.alarm_state import AlarmState
from warrenmq.broker.flow.channel_side import ChannelSide
from warrenmq.broker.flow.client_socket import ClientSocket
from warrenmq.broker.output import Output
from warrenmq.broker.transaction import Transaction
from warrenmq.queues.memory_account import MemoryAccount
from warrenmq.wire.errors import PRECONDITION_FAILED, AmqpError, ChannelException
from warrenmq.wire.methods import ConnectionBlocked, ConnectionUnblocked

# Bytes of kept frames above which a connection is not read further.
WINDOW_BYTES: Final = 1048576
# A connection is shown in the state `flow` for so long after flow control has stopped it.
FLOW_SHOWN_MS: Final = 5000
_NEVER: Final = -1
# The time between two looks at arriving bodies counts up to this much (ms): after a stall of the node, the sockets may
# hold frames that it has not read.
_ELAPSED_MAX_MS: Final = 1000


class Throttle:
    """The brakes of one connection, which is an argument everywhere: a cycle would outlive the connection.

    `stall_timeout_ms`: how long a body may stand still; 0: for ever.
    """

    def __init__(self, alarms: AlarmState, memory: MemoryAccount, stall_timeout_ms: i64) -> None:
        # Publishes must be held: an alarm is on, or was and this connection's turn to go on has not come.
        self.is_alarmed: bool = alarms.is_on
        self._alarms: AlarmState = alarms
        self._memory: MemoryAccount = memory
        self._stall_timeout_ms: i64 = stall_timeout_ms
        self.is_blocked: bool = False
        # The client can make sense of connection.blocked and unblocked.
        self.wants_notice: bool = False
        # How often flow control has stopped it, and when it last did.
        self.flow_count: i64 = 0
        self._flow_ms: i64 = _NEVER
        self._is_told: bool = False
        self.is_flow_stopped: bool = False
        # Bytes of arriving bodies and of uncommitted publishes.
        self.unfinished_bytes: i64 = 0
        self._deferred: list[ChannelSide] = []
        self._kept_bytes: i64 = 0
        # Bodies that are arriving, by channel number.
        self._bodies: dict[int, Body] = {}
        self._measured_ms: i64 = 0
        # Bytes of the frame that was arriving at the last look.
        self._frame_bytes: i64 = 0

    def shown_state(self, now_ms: i64) -> str:
        """`running`, or why it does not run: `blocking` (it would be blocked if it published), `blocked`, `flow`."""
        if self.is_blocked:
            return "blocked"
        if self.is_flow_stopped or (
            self._flow_ms != _NEVER and now_ms - self._flow_ms < FLOW_SHOWN_MS
        ):
            return "flow"
        return "blocking" if self.is_alarmed else "running"

    # -- alarms ------------------------------------------------------------------------------------------------------

    def defer(self, client: ClientSocket, channel: ChannelSide) -> None:
        """A publish of this channel is held back."""
        self._deferred.append(channel)
        self._block(client)

    def _block(self, client: ClientSocket) -> None:
        self.is_blocked = True
        if self.wants_notice and not self._is_told:
            self._is_told = True
            client.out.method(0, ConnectionBlocked(self._alarms.reason()))
            client.touch()

    def unblock(self, client: ClientSocket, now_ms: i64) -> i64:
        """All alarms are over: handle what was kept. Returns how many bytes that was."""
        size = self._kept_bytes
        self.end_alarm(client)
        if not self.is_blocked:
            return 0
        self.is_blocked = False
        if self._is_told:
            self._is_told = False
            client.out.method(0, ConnectionUnblocked())
            client.touch()
        held = self._deferred
        self._deferred = []
        for channel in held:
            channel.resume(now_ms)
        return size

    def end_alarm(self, client: ClientSocket) -> None:
        """Publishes pass again, and what arrives of bodies does not count as kept any more."""
        self.is_alarmed = False
        for body in self._bodies.values():
            if body.kept_bytes > 0:
                self.uncount(client, body.kept_bytes)
                body.kept_bytes = 0

    def end(self) -> None:
        """The connection is over: there is nobody to be told."""
        self.is_blocked = False
        self._is_told = False
        self._deferred = []

    # -- kept frames -------------------------------------------------------------------------------------------------

    def count(self, client: ClientSocket, size: i64) -> None:
        """So many more bytes of frames are kept."""
        alarms = self._alarms
        self._kept_bytes += size
        alarms.kept_bytes += size
        if self._kept_bytes > WINDOW_BYTES or alarms.is_crowded():
            self._set_reading(client)

    def uncount(self, client: ClientSocket, size: i64) -> None:
        """So many bytes are not kept any more."""
        self._kept_bytes -= size
        self._alarms.kept_bytes -= size
        self._set_reading(client)

    def _set_reading(self, client: ClientSocket) -> None:
        kept = self._kept_bytes
        is_full = kept > WINDOW_BYTES or (kept > 0 and self._alarms.is_crowded())
        is_reading = not is_full and not self.is_flow_stopped
        if client.is_reading != is_reading:
            client.is_reading = is_reading
            client.touch()

    # -- flow --------------------------------------------------------------------------------------------------------

    def stop_flow(self, client: ClientSocket) -> None:
        """Too much waits for the disk: read no further."""
        self.is_flow_stopped = True
        self._flow_ms = client.now_ms
        self.flow_count += 1
        self._set_reading(client)

    def start_flow(self, client: ClientSocket, now_ms: i64) -> None:
        """The disk has caught up."""
        self.is_flow_stopped = False
        self._flow_ms = now_ms
        self._set_reading(client)

    # -- unfinished --------------------------------------------------------------------------------------------------

    def arrive(
        self,
        client: ClientSocket,
        number: i64,
        body: Body,
        size: i64,
        transaction: Transaction | None,
    ) -> None:
        """Another `size` bytes of a body have come on channel `number`, which may be in a transaction.

        Raises ChannelException 406 when the connection has too much unfinished.
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

    def forget(self, client: ClientSocket, number: i64, body: Body) -> None:
        """The body is complete, or was dropped."""
        del self._bodies[number]
        self._shrink(client, body.received_bytes)
        if body.kept_bytes > 0:
            self.uncount(client, body.kept_bytes)

    def add_uncommitted(self, client: ClientSocket, size: i64) -> None:
        """A transaction has `size` bytes more. Raises like `arrive`, and while memory is low when too much has passed."""
        self._grow(client, size, size)
        if self.is_alarmed:
            self._alarms.pass_publish(size)

    def end_transaction(self, client: ClientSocket, size: i64) -> None:
        """A transaction with `size` bytes was committed or rolled back."""
        self._shrink(client, size)

    def find_stalled_bodies(self, client: ClientSocket, frame_bytes: i64, now_ms: i64) -> list[int]:
        """Channels that have waited for their next body frame for too long; `frame_bytes` of a frame have arrived."""
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

    def _grow(self, client: ClientSocket, size: i64, message_bytes: i64) -> None:
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

    def _shrink(self, client: ClientSocket, size: i64) -> None:
        self._memory.unfinished_bytes -= size
        self.unfinished_bytes -= size


class ThrottledClient(ClientSocket):
    """A connection with its brakes."""

    def __init__(self, out: Output, throttle: Throttle, now_ms: i64) -> None:
        super().__init__(out, now_ms)
        self.throttle: Throttle = throttle

    def fail(self, error: AmqpError) -> None:
        """Close the connection for `error`; told to the peer unless the handshake is not that far."""
        raise RuntimeError("abstract")
