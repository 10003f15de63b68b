"""One client connection as a state machine: bytes and time in, bytes and flags out (protocol 1, 2).

    STARTING -> TUNING -> OPENING -> RUNNING -> CLOSING -> CLOSED

The shell passes the socket's bytes to `receive`, takes the output once per turn of its loop, and
then reads `state`, `close_at_ms` and `is_reading`. The connection passes frames to its channels and
turns the exceptions they raise into channel.close or connection.close.

Errors before connection.tune are silent, as in RabbitMQ: the socket is dropped after 3 s, and only
the broker's log has the reason. The exception is a refused login, for clients that understand it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.channel_host import ChannelHost
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.channel.methods import handle_channel_method
from warrenmq.broker.connection.channel_deadlines import ChannelDeadlines
from warrenmq.broker.connection.handshake import (
    NEVER,
    Handshake,
    Peer,
    handshake_deadline_ms,
    unexpected_method,
)
from warrenmq.broker.connection.heartbeat import Heartbeats
from warrenmq.broker.connection.log import ConnectionLog
from warrenmq.broker.connection.output_turns import OutputTurns
from warrenmq.broker.connection.peer_certificate import NO_CERTIFICATE, PeerCertificate
from warrenmq.broker.connection.states import (
    CLOSED,
    CLOSING,
    OPENING,
    RUNNING,
    STARTING,
    STATE_NAMES,
    TUNING,
)
from warrenmq.broker.connection.tuning import accepted_frame_max
from warrenmq.broker.definitions.access import Access
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.flow.alarms import Alarms
from warrenmq.broker.flow.disk_flow import NOTHING
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.broker.flow.room import ChannelRoom
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.wire.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    UNEXPECTED_FRAME,
    AmqpError,
    ChannelException,
    ConnectionException,
    octets_text,
)
from warrenmq.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    NEED_DATA,
    FrameBuffer,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    decode_method,
)

# A refused or faulty peer keeps its socket for this time (ms): it can read the reason, and it
# cannot reconnect in a tight loop.
GRACE_MS: Final = 3000
# Unread direct replies (bytes) above which further ones are dropped.
REPLY_BYTES_MAX: Final = 33554432


class Traffic:
    """What a connection has received and how often it has written; `Output` counts sent bytes."""

    def __init__(self, now_ms: i64) -> None:
        self.connected_at_ms: i64 = now_ms
        self.received_bytes: i64 = 0
        # Reads of the socket that brought bytes.
        self.reads: i64 = 0
        # Turns in which output was written.
        self.writes: i64 = 0

    def received(self, size: i64) -> None:
        """Count a read of `size` bytes."""
        self.received_bytes += size
        self.reads += 1


def bad_frame(frames: FrameBuffer, kind: i64, is_running: bool) -> ConnectionException:
    """The error for the current frame of `frames`, which makes no sense here (protocol 3).

    `is_running`: the handshake of the connection is over.
    """
    size = frames.end - frames.start
    octets = octets_text(frames.data[frames.start : min(frames.end, frames.start + 16)])
    text = f"type {kind}, {'all' if size <= 16 else 'first 16'} octets = {octets}"
    is_known = (
        kind == FRAME_BODY
        or (kind == FRAME_HEADER and size >= 12)
        or (kind == FRAME_METHOD and size >= 4)
    )
    if (
        is_known
        or (kind == FRAME_HEARTBEAT and size == 0)
        or (frames.channel != 0 and not is_running)
    ):
        return ConnectionException(UNEXPECTED_FRAME, text)
    return ConnectionException(FRAME_ERROR, f"{text}: unknown_frame")


class ConnectionHost(NodeServices):
    """The services of a node for its connections: users, vhosts and the list of dirty connections.

    The shell takes the connections in `dirty_connections` once a turn and writes their output.
    """

    def __init__(self, settings: Settings, alarms: Alarms, wake: Callable[[], None]) -> None:
        super().__init__(settings, alarms, wake)
        self.access: Access = Access(settings.loopback_users, self.on_rights_changed)
        self.vhosts: dict[bytes, Vhost] = {}
        self.dirty_connections: list[Connection] = []

    def on_rights_changed(self, vhost_name: bytes) -> None:
        """Let the routes of a vhost be found again, which checks rights."""
        vhost = self.vhosts.get(vhost_name)
        if vhost is not None:
            vhost.router.version += 1

    def cluster_name(self) -> str:
        """The name of the cluster that clients see."""
        raise RuntimeError("abstract")

    def next_connection_number(self) -> i64:
        """A number that no other connection has had since the start."""
        raise RuntimeError("abstract")

    def start_heartbeats(self, connection: Connection, interval_ms: i64) -> None:
        """Begin the heartbeats of `connection`, at this interval above 0."""
        raise RuntimeError("abstract")

    def log_crash(self, peer: str, error: Exception) -> None:
        """Log an unexpected exception, which is a bug, with its traceback."""
        raise RuntimeError("abstract")


class Connection(ChannelHost):
    """One AMQP connection.

    `peer` is its name in logs; `is_loopback`: the client connected over a loopback address.
    """

    def __init__(
        self,
        host: ConnectionHost,
        peer: str,
        is_loopback: bool,
        now_ms: i64,
        certificate: PeerCertificate = NO_CERTIFICATE,
        tls: str = "",
        cipher: str = "",
        local: str = "",
    ) -> None:
        super().__init__(host, now_ms)
        self._host: ConnectionHost = host
        self.peer: str = peer
        # The client's verified certificate.
        self.certificate: PeerCertificate = certificate
        # TLS version and cipher suite as OpenSSL names them ("TLSv1.3"); "" = a plain connection.
        self.tls: str = tls
        self.cipher: str = cipher
        # HOST:PORT that the client connected to.
        self.local: str = local
        self.state: i64 = STARTING
        self.number: i64 = host.next_connection_number()
        self.log: ConnectionLog = ConnectionLog(self.number, peer)
        self.traffic: Traffic = Traffic(now_ms)
        self.vhost: Vhost | None = None
        self.channels: dict[int, Channel] = {}
        # The shell's own object for this connection; only the shell sets and uses it.
        self.shell: object | None = None
        # Time at which the shell closes the socket (ms), or NEVER.
        self.close_at_ms: i64 = handshake_deadline_ms(host.settings, now_ms)
        self._output_turns: OutputTurns = OutputTurns()
        # Bytes of direct replies since the socket was last writable.
        self._reply_bytes: i64 = 0
        self._confirm_later: list[PublishConfirms] = []
        # Rooms of channels with single acks since their consumers were served.
        self._serve_later: list[ChannelRoom] = []
        self._frames: FrameBuffer = FrameBuffer(host.settings.initial_frame_max)
        # The client has sent connection.close; the answer waits until no channel is suspended.
        self._is_close_due: bool = False
        self._last_channel: Channel | None = None
        self.heartbeats: Heartbeats = Heartbeats()
        self._deadlines: ChannelDeadlines = ChannelDeadlines()
        self.handshake: Handshake = Handshake(
            host.settings,
            host.access,
            host.vhosts,
            self.client,
            self.log,
            Peer(peer, is_loopback, len(tls) > 0, certificate.user_name),
        )
        self.out.method(0, self.handshake.start(host.cluster_name()))

    # -- bytes in ----------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Handle the next bytes of the stream; never raises."""
        self.now_ms = now_ms
        self.heartbeats.has_received = True
        self.traffic.received(len(data))
        if self.state == CLOSED:
            return
        frames = self._frames
        frames.feed(data)
        # Each `except` needs its own name: in compiled code a variable has one type.
        try:
            while self.state != CLOSED:
                kind = frames.next_frame()
                if kind == NEED_DATA:
                    break
                channel = self._last_channel
                if channel is None or channel.number != frames.channel or channel.is_closing:
                    channel = self._channel_for(kind)
                    if channel is None:
                        continue
                if kind > FRAME_BODY or kind < FRAME_METHOD:
                    raise bad_frame(frames, kind, self.state == RUNNING)
                try:
                    channel.on_frame(kind, frames.data, frames.start, frames.end)
                except ChannelException as refusal:
                    self.close_channel(channel, refusal)
            self._serve_acked()
        except ConnectionException as fault:
            self.fail(fault)
            self._read_closing()
        except Exception as crash:  # A bug in warren costs this connection, not the node (541).
            self._host.log_crash(self.peer, crash)
            self.fail(ConnectionException(INTERNAL_ERROR, ""))
        self._finish_turn()

    def _read_closing(self) -> None:
        # Read the frames that came in one packet with the fault: the peer may be closing as well.
        try:
            while self.state == CLOSING:
                kind = self._frames.next_frame()
                if kind == NEED_DATA:
                    return
                self._channel_for(kind)
        except ConnectionException:
            self._linger()

    def replay(self, number: i64) -> None:
        channel = self.channels[number]
        try:
            while self.state == RUNNING and not channel.is_closed:
                if channel.is_suspended:
                    channel.backlog.let_settles_pass(self, channel)
                    break
                kept = channel.backlog.take(self)
                if kept is None:
                    break
                kind, payload = kept
                if channel.is_closing:
                    self._on_closing_channel(channel, kind, payload, 0, len(payload))
                    continue
                try:
                    channel.on_frame(kind, payload, 0, len(payload))
                except ChannelException as refusal:
                    self.close_channel(channel, refusal)
            self._serve_acked()
        except ConnectionException as fault:
            self.fail(fault)
        except Exception as crash:  # A bug ends this connection only, as in `receive`.
            self._host.log_crash(self.peer, crash)
            self.fail(ConnectionException(INTERNAL_ERROR, ""))
        if self._is_close_due and self.state < CLOSING:
            self._on_close()
        self._finish_turn()

    def _finish_turn(self) -> None:
        for confirms in self._confirm_later:
            confirms.confirm_finished()
        self._confirm_later.clear()
        if self.published != NOTHING:
            if self.vhost is not None:
                self.node.disk_flow.on_publish(self, self.vhost.journal, self.published)
            self.published = NOTHING
        self.touch()

    def _channel_for(self, kind: i64) -> Channel | None:
        """The open channel of the current frame; None when the frame is handled already."""
        frames = self._frames
        number = frames.channel
        data = frames.data
        start = frames.start
        end = frames.end
        if self.state == CLOSING:
            if number == 0 and kind == FRAME_METHOD:
                self._on_closing(data, start, end)
            return None
        if number == 0:
            if kind == FRAME_METHOD:
                self._on_connection_method(decode_method(data, start, end))
            elif kind != FRAME_HEARTBEAT or start != end:
                raise bad_frame(frames, kind, self.state == RUNNING)
            return None
        if kind > FRAME_BODY or kind < FRAME_METHOD or self.state != RUNNING:
            raise bad_frame(frames, kind, self.state == RUNNING)
        channel = self.channels.get(number)
        if channel is None:
            self._open_channel(kind, number, data, start, end)
            return None
        if channel.is_closing:
            self._on_closing_channel(channel, kind, data, start, end)
            return None
        self._last_channel = channel
        return channel

    # -- channels ----------------------------------------------------------------------------------

    def _open_channel(self, kind: i64, number: i64, data: bytes, start: i64, end: i64) -> None:
        method = decode_method(data, start, end) if kind == FRAME_METHOD else None
        if method is None or method.id != CHANNEL_OPEN:
            if method is not None and method.id == CHANNEL_CLOSE_OK:
                return
            class_id = 0 if method is None else method.class_id
            method_id = 0 if method is None else method.method_id
            raise ConnectionException(CHANNEL_ERROR, "expected 'channel.open'", class_id, method_id)
        tuned = self.handshake.tuned
        assert tuned is not None and self.vhost is not None
        if tuned.channel_max != 0 and len(self.channels) >= tuned.channel_max:
            raise ConnectionException(
                NOT_ALLOWED,
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max "
                f"({tuned.channel_max})",
            )
        refusal = self.client.account.channel_refusal()
        if refusal:
            raise ConnectionException(NOT_ALLOWED, refusal)
        self.channels[number] = Channel(self, number, self.vhost)
        self.out.method(number, ChannelOpenOk())

    def channel_method(self, number: i64, method: Method) -> None:
        channel = self.channels[number]
        if method.id == CHANNEL_OPEN:
            raise ConnectionException(CHANNEL_ERROR, "second 'channel.open' seen", 20, 10)
        if method.id == CHANNEL_CLOSE:
            self._drop_channel(channel)
            self.out.method(channel.number, ChannelCloseOk())
        elif method.id == CHANNEL_CLOSE_OK:
            raise ConnectionException(COMMAND_INVALID, "unimplemented method", 20, 41)
        else:
            handle_channel_method(channel, method)

    def close_channel(self, channel: Channel, error: ChannelException) -> None:
        """Close the channel for `error`; it ignores all frames until the peer answers."""
        class_id = error.class_id
        method_id = error.method_id
        if class_id == 0 and method_id == 0:
            class_id = channel.current_method >> 16
            method_id = channel.current_method & 0xFFFF
        self.log.channel_error(channel.number, error, class_id << 16 | method_id)
        channel.is_closing = True
        channel.drop_content()
        if self._last_channel is channel:
            self._last_channel = None
        channel.close()
        self.out.method(
            channel.number, ChannelClose(error.code, error.text.encode(), class_id, method_id)
        )
        self.touch()

    def refuse(self, number: i64, error: AmqpError) -> None:
        if isinstance(error, ChannelException):
            self.close_channel(self.channels[number], error)
            if self._is_close_due and self.state < CLOSING:
                self._on_close()
        else:
            self.fail(error)

    def _on_closing_channel(
        self, channel: Channel, kind: i64, data: bytes, start: i64, end: i64
    ) -> None:
        # Ignore frames that the peer sent before it saw the close; only the closing handshake
        # counts (protocol 5.1, P7).
        if kind != FRAME_METHOD:
            return
        method = decode_method(data, start, end)
        if method.id == CHANNEL_CLOSE_OK:
            self.channels.pop(channel.number, None)
        elif method.id == CHANNEL_CLOSE:
            self.out.method(channel.number, ChannelCloseOk())

    def _drop_channel(self, channel: Channel) -> None:
        self.channels.pop(channel.number, None)
        if self._last_channel is channel:
            self._last_channel = None
        channel.is_closing = True
        channel.close()

    # -- the connection's own methods --------------------------------------------------------------

    def _on_connection_method(self, method: Method) -> None:
        if isinstance(method, ConnectionClose):
            self._on_close()
        elif self.state < RUNNING:
            self._advance(self.handshake.take(method, self.now_ms))
        elif isinstance(method, ConnectionUpdateSecret):
            # The internal user database has no secret to refresh; the client only needs the ok.
            self.out.method(0, ConnectionUpdateSecretOk())
        else:
            raise unexpected_method(method, self.state)

    def _advance(self, reply: Method | None) -> None:
        """Take over the state of the handshake, and send its `reply` or its refusal."""
        handshake = self.handshake
        refusal = handshake.refusal
        if refusal is not None:
            self.announce("user.authentication.failure")
            self._linger()
            if self.client.wants_refusal:
                self._send_close(refusal)
                # The peer's close-ok ends the connection before the grace time is over.
                self.state = CLOSING
            return
        self.state = handshake.state
        tuned = handshake.tuned
        if self.state == TUNING:
            self.announce("user.authentication.success")
        if self.state == OPENING and tuned is not None:
            self._frames.frame_max = accepted_frame_max(tuned, self.max_message_size)
            self.out.frame_max = tuned.frame_max
            if tuned.heartbeat > 0:
                self._host.start_heartbeats(self, tuned.heartbeat * 1000)
        elif self.state == RUNNING:
            self.vhost = handshake.vhost
            self.throttle.wants_notice = self.client.wants_blocked_notices
            self.close_at_ms = NEVER
            self._host.counters.churn.connections_opened += 1
            self.announce("connection.created")
        if reply is not None:
            self.out.method(0, reply)

    # -- end ---------------------------------------------------------------------------------------

    def fail(self, error: AmqpError) -> None:
        if self.state >= CLOSING:
            return
        self.log.connection_error(error, STATE_NAMES[self.state])
        is_tuned = self.state == RUNNING or self.state == OPENING
        is_told = is_tuned or self.state == TUNING
        self._release()
        if is_told:
            self._send_close(error)
        self._linger()
        if error.code == FRAME_ERROR or not is_told:
            # The stream is broken, or the peer got no close: it keeps the socket for GRACE_MS, and
            # nothing it sends is read.
            return
        self.state = CLOSING
        if is_tuned:
            self.close_at_ms = self.now_ms + self.heartbeats.close_timeout_ms()

    def lost(self, now_ms: i64) -> None:
        """End the connection, because its socket is gone."""
        self.now_ms = now_ms
        self.log.socket_lost(self.state < CLOSING)
        if self.state != CLOSED:
            self._release()
        self.state = CLOSED
        self.out.drop()
        self.announce("connection.closed")

    def _on_close(self) -> None:
        for channel in self.channels.values():
            if channel.is_suspended:
                # The channel has kept frames that the client sent before its close: handle them
                # first.
                self._is_close_due = True
                return
        self._release()
        self.out.method(0, ConnectionCloseOk())
        self._linger()
        # The client closes the socket; the broker closes it after this time.
        self.close_at_ms = self.now_ms + self.heartbeats.close_timeout_ms()

    def _on_closing(self, data: bytes, start: i64, end: i64) -> None:
        try:
            method = decode_method(data, start, end)
        except ConnectionException:
            return
        if isinstance(method, ConnectionClose):
            self.out.method(0, ConnectionCloseOk())
        elif isinstance(method, ConnectionCloseOk):
            self.state = CLOSED
            self.close_at_ms = self.now_ms

    def _release(self) -> None:
        """Close channels, delete exclusive queues; called before a close(-ok) is sent (P33)."""
        self._last_channel = None
        self._confirm_later.clear()
        self.throttle.end()
        channels = list(self.channels.values())
        self.channels.clear()
        idle: list[bytes] = []
        for channel in channels:
            channel.is_closing = True
            idle.extend(channel.stop_consuming())
        vhost = self.vhost
        if vhost is not None:
            for name in idle:
                vhost.delete_queue(vhost.queues[name], self.now_ms)
            # All consumers are removed: no channel of this connection gets a message that another
            # requeues.
            for channel in channels:
                channel.close()
            vhost.delete_exclusive_queues(self, self.now_ms)
        self.handshake.leave()

    def _send_close(self, error: AmqpError) -> None:
        self.out.method(
            0, ConnectionClose(error.code, error.text.encode(), error.class_id, error.method_id)
        )
        self.touch()

    def _linger(self) -> None:
        self.state = CLOSED
        self.close_at_ms = self.now_ms + GRACE_MS

    def full_name(self) -> str:
        return self.peer

    # -- for channels ------------------------------------------------------------------------------

    def wait_for_room(self, channel: FlowHost) -> None:
        if not self.can_take():
            channel.suspend()
            self._output_turns.add(channel)

    def has_room_for_reply(self, size: i64) -> bool:
        if self.is_writable:
            self._reply_bytes = 0
        self._reply_bytes += size
        return self._reply_bytes <= REPLY_BYTES_MAX

    def touch(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self._host.dirty_connections.append(self)
            self.node.wake()

    def serve_later(self, room: ChannelRoom) -> None:
        self._serve_later.append(room)

    def _serve_acked(self) -> None:
        if len(self._serve_later) > 0:
            waiting = self._serve_later
            self._serve_later = []
            for room in waiting:
                room.serve_acked(self.now_ms)

    def confirm_later(self, confirms: PublishConfirms) -> None:
        waiting = self._confirm_later
        if len(waiting) == 0 or waiting[-1] is not confirms:
            waiting.append(confirms)

    # -- for the shell -----------------------------------------------------------------------------

    def is_ahead(self) -> bool:
        """Whether to delay reading, so that consumers of this connection's publishes catch up.

        Without the delay, a publisher with a full socket gets the larger share of the loop, and a
        backlog grows in front of consumers that could take all of it.
        """
        return self._last_channel is not None and self._last_channel.is_ahead()

    def take_output(self) -> list[bytes | memoryview]:
        """Remove and return the output, to be written now in this order."""
        self.is_dirty = False
        parts = self.out.take()
        if len(parts) > 0:
            self.heartbeats.on_output()
            self.traffic.writes += 1
        return parts

    def on_written(self, now_ms: i64) -> None:
        """Serve waiting consumers and channels; called when the socket accepts more output."""
        self._output_turns.serve(self, now_ms)

    def tick(self, now_ms: i64) -> None:
        """Check deadlines of channels, waiting logins, paused peers; called twice a second."""
        self.now_ms = now_ms
        if self.state == STARTING and self.handshake.is_answer_due(now_ms):
            self._advance(self.handshake.answer_login())
            self.touch()
        if self.state != RUNNING:
            return
        frame_bytes = self._frames.partial_bytes()
        for channel, error in self._deadlines.expired(self, self.channels, frame_bytes, now_ms):
            self.close_channel(channel, error)
        if self.heartbeats.take_probe(self.is_paused(), now_ms):
            self.out.heartbeat()
            self.touch()

    def needs_look(self) -> bool:
        """Whether the shell must look at the socket, which has a deadline or takes no bytes."""
        return self.close_at_ms != NEVER or self.out.unsent_bytes != 0 or self.is_paused()

    def look_at_heartbeats(self, now_ms: i64) -> None:
        """Send a heartbeat, or drop a client that is silent, if that is due."""
        self.now_ms = now_ms
        if self.heartbeats.take_beat(now_ms):
            self.out.heartbeat()
            self.touch()
        if self.heartbeats.is_peer_dead(self.is_paused(), now_ms):
            self.log.heartbeats_missed(self.heartbeats.interval_ms // 1000)
            self.abort(now_ms)

    def abort(self, now_ms: i64) -> None:
        """Drop the socket at once, without a close, because the peer does not respond."""
        self._release()
        self.state = CLOSED
        self.close_at_ms = now_ms
        self.touch()
