"""One accepted socket: reads the protocol header, then runs an AMQP connection or an admin session.

The shell around `broker.Connection`: it feeds bytes from the socket to the connection, writes the
gathered output once per turn, and carries out the flags that the connection sets (stop reading,
close).
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
import sys
from typing import Final, Protocol, cast

from warrenmq.admin.clock import LoopClock
from warrenmq.admin.node import AdminNode
from warrenmq.admin.protocol.requests import PROTOCOL_HEADER as ADMIN_HEADER
from warrenmq.admin.server import AdminSession
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.handshake import NEVER, handshake_deadline_ms
from warrenmq.broker.connection.states import CLOSED, RUNNING
from warrenmq.server.clock import Clock
from warrenmq.server.config.settings import Config
from warrenmq.server.listening.addresses import Ends, shown
from warrenmq.server.listening.certificate_name import peer_certificate
from warrenmq.server.listening.guide import GO_ON, Guide
from warrenmq.server.listening.steering import Handover, Steering
from warrenmq.server.listening.tls import PeerChains
from warrenmq.server.resources.memory_watch import MemoryWatch
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.wire.encode import PROTOCOL_HEADER
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException

logger = logging.getLogger("warren.listener")

_HEADER_BYTES: Final = 8
# First two bytes of a client that speaks TLS.
_TLS_START: Final = b"\x16\x03"
# Bytes that a socket may read in one turn.
READ_BYTES: Final = 262144
# Bytes that a TLS socket may read in one turn. The loop decrypts what it has read, at most
# READ_BYTES with the overhead of TLS, and leaves an incomplete record for later: the buffer is
# rarely quite full.
_TLS_SHARE_BYTES: Final = READ_BYTES // 2
# Protocol header of AMQP 0-9; warren serves such a client as 0-9-1.
_AMQP_0_9: Final = b"AMQP\x01\x01\x00\x09"
# Bytes in the transport's buffer above which deliveries to the socket wait, and below which they
# resume.
_WRITE_BUFFER_HIGH: Final = 1048576
_WRITE_BUFFER_LOW: Final = 262144
# Unread output (bytes of replies and returns) above which the client is not read either, so that
# the memory of each socket is bounded.
_UNREAD_OUTPUT_MAX: Final = 8388608
# Linux's struct tcp_info: the bytes to ask for, and the offsets of tcpi_unacked (segments) and
# tcpi_last_ack_recv (ms).
_TCP_INFO_BYTES: Final = 60
_UNACKED_AT: Final = 24
_LAST_ACK_AT: Final = 56


class SocketHost(Protocol):
    """The services of a node that its listeners and its sockets use."""

    loop: asyncio.AbstractEventLoop
    config: Config
    clock: Clock
    # Limits lines that strangers can cause.
    lines: LineLimit
    # Clients that are accepted and have no protocol yet; the protocol removes its own.
    arriving: set[Ends]
    broker: Broker
    admin: AdminNode
    memory_watch: MemoryWatch
    protocols: set[ClientProtocol]
    # Those of them that speak neither AMQP nor the admin protocol yet: they have a deadline.
    newcomers: set[ClientProtocol]
    # Whether AMQP clients may connect; admin sessions, and clients of the node's machine that come
    # by the control listener, always may.
    takes_clients: bool
    # Read buffer of all sockets, READ_BYTES long.
    read_buffer: memoryview
    # None: no other node of this machine shares the listeners.
    steering: Steering | None
    # Sockets that used up their share of reading in this turn; the node resumes them in the next.
    read_on: list[ClientProtocol]

    def schedule_turn(self) -> None:
        """Let the node end its turn once all sockets of this turn are read."""

    def has_room_for_socket(self) -> bool:
        """Whether there are file descriptors for one more socket."""


class ClientProtocol(asyncio.BufferedProtocol):
    """The asyncio protocol of one client.

    A socket is read at most READ_BYTES a turn. Without that bound the event loop would read a busy
    publisher's socket for megabytes at a time while consumers wait for their turn.

    `ends` are its addresses; `chains` checks the client's certificate after a TLS handshake.
    `is_control`: the socket is of the control listener, for which the node always takes clients.
    `handover`: the client comes from another worker, with this.
    """

    def __init__(
        self,
        node: SocketHost,
        ends: Ends,
        chains: PeerChains | None,
        is_control: bool = False,
        handover: Handover | None = None,
    ) -> None:
        self._node = node
        self._ends = ends
        self._chains = chains
        self._is_control = is_control
        self._header = b""
        self._connection: Connection | None = None
        self._admin: AdminSession | None = None
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._share_bytes = READ_BYTES
        self._is_reading = True
        self._close_at_ms = NEVER
        self._handover = handover
        # Until the client has shown which worker has its queue; None: it stays here. Neither the
        # keys of TLS nor a PROXY header can be handed over.
        self._guide: Guide | None = None
        steering = node.steering
        if steering is not None and chains is None and not is_control and handover is None:
            self._guide = None if node.config.proxy_protocol else steering.guide()

    # -- events of the socket ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not registered as asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_HIGH, _WRITE_BUFFER_LOW)
        self._close_at_ms = handshake_deadline_ms(
            self._node.broker.settings, self._node.clock.now_ms()
        )
        if self._chains is not None:
            self._tls = self._transport.get_extra_info("ssl_object")
            if self._chains.is_too_long(self._tls):
                logger.warning(
                    "%s: closed, because the chain of its certificate is longer than ssl_options.depth allows",
                    self._ends.name,
                )
                self._transport.abort()
                return
            self._share_bytes = _TLS_SHARE_BYTES
        self._node.protocols.add(self)
        self._node.newcomers.add(self)
        self._node.arriving.discard(self._ends)
        if self._handover is not None:
            self._take_over(self._handover)
            self._handover = None

    def get_buffer(self, sizehint: int) -> memoryview:
        # All sockets share the buffer: `buffer_updated` copies the bytes before another socket is
        # read.
        return self._node.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._node.read_buffer[:nbytes])
        if nbytes >= self._share_bytes and self._transport is not None:
            self._transport.pause_reading()
            self._node.read_on.append(self)
        if self._guide is not None and self._connection is not None:
            self._receive_guided(self._guide, data)
        elif self._connection is not None:
            self._connection.receive(data, self._node.clock.now_ms())
        elif self._admin is not None:
            self._admin.receive(data)
        else:
            self._receive_header(data)
        self._node.memory_watch.received(nbytes)
        self._node.schedule_turn()

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.is_writable = False
        elif self._admin is not None:
            self._admin.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.is_writable = True
            self.count_unsent()
            self._connection.on_written(self._node.clock.now_ms())
            self._apply_reading()
            self._node.schedule_turn()
        elif self._admin is not None:
            self._admin.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._node.protocols.discard(self)
        self._node.newcomers.discard(self)
        if self._connection is not None:
            self._connection.shell = None
            self._node.broker.disconnect(self._connection, self._node.clock.now_ms())
            self._node.schedule_turn()
        elif self._admin is not None:
            self._admin.connection_lost()
        # uvloop's TLS keeps the methods of this object: without these lines the two, and OpenSSL's
        # buffers with them, would wait for the garbage collector.
        self._admin = None
        self._transport = None

    # -- the first bytes ---------------------------------------------------------------------------

    def _receive_header(self, data: bytes) -> None:
        self._header += data
        if len(self._header) < _HEADER_BYTES:
            return
        header = self._header[:_HEADER_BYTES]
        rest = self._header[_HEADER_BYTES:]
        self._header = b""
        transport = self._transport
        assert transport is not None
        peer = self._ends.name
        is_amqp = header in (PROTOCOL_HEADER, _AMQP_0_9)
        if is_amqp and not (self._is_control or self._node.takes_clients):
            logger.info("%s: refused, because no clients are taken", peer)
            transport.close()
        elif is_amqp and self._is_over_limit():
            transport.close()
        elif is_amqp:
            now_ms = self._node.clock.now_ms()
            self._node.newcomers.discard(self)
            self._connection = self._connect(now_ms)
            self._connection.shell = self
            if rest and self._guide is not None:
                self._receive_guided(self._guide, rest)
            elif rest:
                self._connection.receive(rest, now_ms)
        elif header == ADMIN_HEADER:
            self._node.newcomers.discard(self)
            self._admin = AdminSession(
                self._node.admin,
                transport,
                LoopClock(self._node.loop, self._node.schedule_turn),
                peer,
                self._ends.is_loopback,
            )
            if rest:
                self._admin.receive(rest)
        else:
            self._log_stranger(header)
            transport.write(PROTOCOL_HEADER)
            transport.close()

    def _is_over_limit(self) -> bool:
        """Whether `connection_max` refuses one more client; a line of the log says so."""
        limit = self._node.broker.settings.connection_max
        if not 0 <= limit <= len(self._node.broker.connections):
            return False
        if self._node.lines.allows("connection_max"):
            logger.warning("%s: refused: connection_max (%d) is reached", self._ends.name, limit)
        return True

    def _connect(self, now_ms: int) -> Connection:
        ends = self._ends
        tls = self._tls
        if tls is None:
            return self._node.broker.connect(
                ends.name, ends.is_loopback, now_ms, local=shown(ends.server)
            )
        cipher = tls.cipher()
        return self._node.broker.connect(
            ends.name,
            ends.is_loopback,
            now_ms,
            peer_certificate(tls.getpeercert() or {}, self._node.config.ssl_cert_login_from),
            tls.version() or "",
            cipher[0] if cipher is not None else "",
            shown(ends.server),
        )

    def _log_stranger(self, header: bytes) -> None:
        found = (
            "TLS on a listener without TLS" if header.startswith(_TLS_START) else "not AMQP 0-9-1"
        )
        if self._node.lines.allows(f"{self._ends.client[0]} {found}"):
            logger.info("%s: %s, first bytes %r", self._ends.name, found, header)

    # -- clients of several workers ----------------------------------------------------------------

    def _receive_guided(self, guide: Guide, data: bytes) -> None:
        """Handle the bytes of a client that may move to another worker."""
        connection = self._connection
        assert connection is not None
        now_ms = self._node.clock.now_ms()
        guide.feed(data)
        while frame := guide.next_frame():
            number = guide.judge(frame, connection)
            if number >= 0 and self._hand_over(number, guide, connection, frame + guide.rest):
                return
            if number != GO_ON:
                self._guide = None
                connection.receive(frame + guide.rest, now_ms)
                return
            connection.receive(frame, now_ms)
        if not guide.is_patient():
            self._guide = None
            connection.receive(guide.rest, now_ms)

    def _hand_over(self, number: int, guide: Guide, connection: Connection, rest: bytes) -> bool:
        """Pass the client on to the worker `number`; False if it has to stay.

        It stays if answers to what it has sent are missing, or if it was told that it is blocked:
        only this worker will tell it of the end of that.
        """
        transport, steering = self._transport, self._node.steering
        assert transport is not None and steering is not None
        self.write_out()
        channels = connection.channels
        if (
            connection.state != RUNNING
            or connection.throttle.is_blocked
            or any([channel.is_suspended or channel.is_closing for channel in channels.values()])
            or transport.get_write_buffer_size()
        ):
            return False
        last_queues = {each: channel.last_queue for each, channel in channels.items()}
        handover = Handover(number, PROTOCOL_HEADER + guide.replay, rest, last_queues)
        if not steering.hand_over(transport.get_extra_info("socket").fileno(), handover):
            return False
        connection.log.handed_over(number)
        connection.shell = None
        self._connection = None
        self._guide = None
        self._node.broker.disconnect(connection, self._node.clock.now_ms())
        # The other worker has the socket, too, so the connection is not closed.
        transport.abort()
        return True

    def _take_over(self, handover: Handover) -> None:
        """Become the connection of a client of another worker."""
        self._receive_header(handover.replay)
        connection = self._connection
        if connection is None or connection.state != RUNNING:
            # What the other worker has permitted is refused here: it may have changed meanwhile.
            self.abort()
            return
        # The client has these answers.
        connection.take_output()
        for number, channel in connection.channels.items():
            channel.last_queue = handover.last_queues[number]
        connection.receive(handover.rest, self._node.clock.now_ms())
        self._node.schedule_turn()

    # -- turns and timers --------------------------------------------------------------------------

    def write_out(self) -> None:
        """Write the connection's gathered output, then stop reading or close as it asks."""
        connection = self._connection
        transport = self._transport
        if connection is None or transport is None or transport.is_closing():
            return
        parts = connection.take_output()
        if len(parts) == 1:
            transport.write(parts[0])
        elif parts:
            transport.writelines(parts)
        connection.out.set_unsent(transport.get_write_buffer_size())
        if connection.is_writable:
            connection.on_written(self._node.clock.now_ms())
        self._apply_reading()
        if connection.state == CLOSED and connection.close_at_ms <= connection.now_ms:
            transport.close()

    def count_unsent(self) -> None:
        """Report to the connection how many bytes its socket has not taken yet."""
        if self._connection is not None and self._transport is not None:
            self._connection.out.set_unsent(self._transport.get_write_buffer_size())

    def read_on(self) -> None:
        """Resume reading: the turn in which this socket used up its share is over."""
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def is_ahead(self) -> bool:
        """See `Connection.is_ahead`."""
        return self._connection is not None and self._connection.is_ahead()

    def _apply_reading(self) -> None:
        assert self._transport is not None and self._connection is not None
        unread = 0 if self._connection.is_writable else self._transport.get_write_buffer_size()
        wanted = self._connection.is_reading and unread < _UNREAD_OUTPUT_MAX
        self._connection.is_unread = not wanted
        if wanted != self._is_reading and not self._transport.is_closing():
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close_if_due(self, now_ms: int) -> None:
        """Abort the socket when its deadline has passed or when a blocked client has hung up."""
        connection = self._connection
        if connection is not None:
            self.count_unsent()
            due = connection.close_at_ms != NEVER and connection.close_at_ms <= now_ms
            due = due or (connection.is_paused() and self._is_gone(connection))
        else:
            due = self._close_at_ms != NEVER and self._close_at_ms <= now_ms
        if due:
            self.abort()

    def _is_gone(self, connection: Connection) -> bool:
        """True when the client of a paused connection has gone.

        asyncio notices the end of a stream only while it reads, so this method polls the socket
        when it is not read:

        * A reset counts always. The system of a client that has closed its end also answers our
          next heartbeat with a reset, while bytes that the client sent before still wait to be
          read.
        * The end of the stream (POLLRDHUP) counts for a blocked client only: its unread bytes are
          not confirmed. A client that merely waits for a lagging disk is read to the end.
        * A client whose system acks no heartbeat for `silence_max_ms` is as dead as one that sends
          none.
        """
        assert self._transport is not None
        if self._transport.is_closing():
            return False
        client = self._transport.get_extra_info("socket")
        if not self._is_reading:
            poll = select.poll()
            poll.register(
                client.fileno(), select.POLLRDHUP if connection.throttle.is_blocked else 0
            )
            if poll.poll(0):
                return True
        silence_ms = connection.heartbeats.silence_max_ms()
        if silence_ms == 0:
            return False
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        unacked, last_ack_ms = (
            int.from_bytes(info[at : at + 4], sys.byteorder) for at in (_UNACKED_AT, _LAST_ACK_AT)
        )
        return unacked > 0 and last_ack_ms > silence_ms

    def shut_down(self) -> None:
        """Close an AMQP connection with 320 because the node stops; abort any other socket."""
        if self._connection is not None:
            self._connection.fail(
                ConnectionException(
                    CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'"
                )
            )
        else:
            self.abort()

    def abort(self) -> None:
        """Close the socket without flushing its output."""
        if self._transport is not None:
            self._transport.abort()
