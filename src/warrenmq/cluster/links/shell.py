"""The sockets of the node links: a listener, a dialler, and one asyncio protocol for each socket.

The node ends its turns with `LinkShell.write_out`, before it writes to clients: what other nodes
must know goes out before what follows from it. Nothing is written in the midst of a turn, except
pings.

A socket is read READ_BYTES at most a turn, as those of clients are. It is written chunk by chunk,
and only while it takes them: unsent DATA waits in its link, where urgent frames pass it. For the
same reason the kernel may buffer little that it has not sent (TCP_NOTSENT_LOWAT).

When a link ends, what was on its way counts as lost: a queue hands those messages to other
consumers. So none of these bytes may be read later. A socket to a silent node is reset, and the
kernel drops what it has not sent. A node that stood still may have unread bytes from before the
reset: it looks for the end of its connections before it reads them.
"""

import asyncio
import logging
import select
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.links.frames import CHUNK_BYTES
from warrenmq.cluster.links.link import SILENCE_MS, Link
from warrenmq.cluster.links.links import PROBED, Address, Links, shown
from warrenmq.cluster.links.tls import LinkTls, tls_fault

logger = logging.getLogger("warren.cluster")

_TICK_S: Final = 0.1
# Time without ticks after which other nodes may have ended their links to this one.
_STOOD_STILL_MS: Final = SILENCE_MS // 2
# Time for a dialled node to accept the connection, and for a TLS handshake (s).
_CONNECT_S: Final = 5.0
# Time for a refusal to leave before the socket is closed anyway (s).
_CLOSE_S: Final = 1.0
# Connections that the listener accepts in a turn of the loop.
_ACCEPTS_PER_TURN: Final = 16
# Pause of the listener when the system has no room for another socket (s).
_ACCEPT_PAUSE_S: Final = 1.0
_BACKLOG: Final = 128
# Chunks that a socket is given in one turn, at most.
_CHUNKS_PER_TURN: Final = 8
# Bytes in the transport's buffer above which it gets no more, and below which it does again.
_WRITE_BUFFER_HIGH: Final = CHUNK_BYTES // 2
_WRITE_BUFFER_LOW: Final = CHUNK_BYTES // 4
# First two bytes of a connection that is encrypted.
_TLS_START: Final = b"\x16\x03"
# Guesses about a connection that the other side has ended without a word: TLS 1.3 accepts
# a certificate, or not, when the dialling side has already finished its handshake.
_REFUSES_CERTIFICATE: Final = ", perhaps because it refuses this node's certificate"
_DEMANDS_TLS: Final = ", perhaps because it demands TLS"
# On a socket of both families, IPv4 addresses begin with it.
_MAPPED: Final = "::ffff:"
# Bytes that the kernel buffers without having sent them.
_NOT_SENT_BYTES: Final = CHUNK_BYTES
# The option of SO_LINGER with which a socket is reset when it is closed.
_RESET: Final = struct.pack("ii", 1, 0)


class LinkShell:
    """The sockets of `links`, on `loop`.

    `now_ms` is the node's clock, and `schedule_turn` asks the node for a turn. `read_buffer` may be
    shared with other sockets of the loop. With `tls`, every connection is encrypted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        links: Links,
        now_ms: Callable[[], int],
        schedule_turn: Callable[[], None],
        read_buffer: memoryview,
        tls: LinkTls | None,
    ) -> None:
        self.loop = loop
        self.links = links
        self.now_ms = now_ms
        self.schedule_turn = schedule_turn
        self.read_buffer = read_buffer
        # Sockets that used up their share of reading in this turn.
        self.read_on: list[LinkProtocol] = []
        # Sockets that may be given more of their link's output in the next turn.
        self.write_on: list[LinkProtocol] = []
        # Protocols of open sockets.
        self.protocols: set[LinkProtocol] = set()
        self.is_encrypted = tls is not None
        # For new connections; replaced when there are new certificates.
        self.tls = tls
        self._listener: socket.socket | None = None
        # Dials, and accepted connections that have no protocol yet.
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._ticked_ms = now_ms()

    def start(self, host: str, port: int) -> Address:
        """Listen and begin to dial; returns the address. Raises ClusterError.

        The hosts "" and "::" mean every address, IPv4 and IPv6; port 0 means any free port.
        """
        is_every = host in ("", "::")
        try:
            self._listener = _every_address(port) if is_every else _one_address(host, port)
        except OSError as error:
            where = f"port {port} of every address" if is_every else shown((host, port))
            # Python repeats the address in parentheses.
            reason = str(error.strerror).partition(" (")[0]
            raise ClusterError(
                f"cannot listen for other nodes on {where}: {reason}; "
                "choose another address with cluster.listen"
            ) from None
        self._listener.setblocking(False)
        address = _address_of(self._listener.getsockname())
        logger.info("started listener for other nodes on %s", shown(address))
        self._accept_again()
        self._tick()
        return address

    async def stop(self, reason: str) -> None:
        """Tell all other nodes `reason`, and return when all sockets are closed."""
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        self.links.close(reason)
        self.write_out()
        deadline = self.loop.time() + 2 * _CLOSE_S
        while self.protocols and self.loop.time() < deadline:
            await asyncio.sleep(0.01)

    def write_out(self) -> None:
        """Write what all links have to send; called by the node at the end of each turn."""
        writers = self.write_on
        self.write_on = []
        for link in self.links.take_dirty():
            protocol = link.shell
            if isinstance(protocol, LinkProtocol) and protocol not in writers:
                writers.append(protocol)
        for writer in writers:
            writer.write_out()
        read_on = self.read_on
        self.read_on = []
        for reader in read_on:
            reader.read_on()

    def notice_pause(self, now_ms: int) -> None:
        """If this node stood still, end the links that other nodes have ended since then."""
        if now_ms - self._ticked_ms >= _STOOD_STILL_MS:
            self._ticked_ms = now_ms
            for protocol in self.protocols:
                protocol.end_if_closed()

    def _tick(self) -> None:
        # Schedule the next tick first: an error must not stop the clock.
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        now_ms = self.now_ms()
        self.notice_pause(now_ms)
        self._ticked_ms = now_ms
        self.links.tick(now_ms)
        for name, address in self.links.take_dials(now_ms):
            self._start(self._dial(name, address))
        self.write_out()

    def _start(self, steps: Any) -> None:
        task = self.loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- dial --------------------------------------------------------------------------------------

    async def _dial(self, name: str, address: Address) -> None:
        tls = {} if self.tls is None else _tls_options(self.tls.dialling)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self.loop.create_connection(
                    lambda: LinkProtocol(self, name, shown(address)), *address, **tls
                )
            return
        except TimeoutError:
            fault = f"it has not answered for {_CONNECT_S:g} s"
        except OSError as error:
            fault = tls_fault(error)
        self.links.dial_failed(name, shown(address), fault, self.now_ms())

    # -- accept ------------------------------------------------------------------------------------

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                client, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                # The other side left while it waited to be accepted.
                continue
            except OSError as error:
                # The socket stays readable: without a pause the loop would be here all the time.
                self.loop.remove_reader(self._listener)
                self.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)
                logger.error("no node accepted for %g s: %s", _ACCEPT_PAUSE_S, error)
                return
            if self.links.has_room:
                self._start(self._welcome(client, shown(_address_of(address))))
            else:
                client.close()

    async def _welcome(self, client: socket.socket, address: str) -> None:
        tls = {} if self.tls is None else _tls_options(self.tls.accepting)
        try:
            client.setblocking(False)
            async with asyncio.timeout(_CONNECT_S):
                await self.loop.connect_accepted_socket(
                    lambda: LinkProtocol(self, "", address), client, **tls
                )
            return
        except TimeoutError:
            fault = f"its TLS handshake took more than {_CONNECT_S:g} s"
        except ConnectionError:
            fault = f"it has left the TLS handshake{_REFUSES_CERTIFICATE}"
        except OSError as error:
            fault = tls_fault(error)
        except asyncio.CancelledError:
            client.close()
            raise
        client.close()
        self.links.accept_failed(address, fault)


class LinkProtocol(asyncio.BufferedProtocol):
    """The asyncio protocol of one link: to the node `name`, or from another one if that is "".

    `address` is the other side's, for people.
    """

    def __init__(self, shell: LinkShell, name: str, address: str) -> None:
        self._shell = shell
        self._name = name
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._link: Link | None = None
        self._has_received = False
        # The transport's buffer is full enough.
        self._is_paused = False

    # -- events of the socket ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not registered as asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_HIGH, _WRITE_BUFFER_LOW)
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _NOT_SENT_BYTES)
        links = self._shell.links
        now_ms = self._shell.now_ms()
        if self._name:
            link = links.dialled(self._name, self._address, now_ms)
        else:
            link = links.accepted(self._address, now_ms)
        link.shell = self
        self._link = link
        self._shell.protocols.add(self)
        self._shell.schedule_turn()

    def get_buffer(self, sizehint: int) -> memoryview:
        # Sockets share the buffer: `buffer_updated` copies the bytes before another one is read.
        return self._shell.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        shell = self._shell
        data = bytes(shell.read_buffer[:nbytes])
        assert self._link is not None and self._transport is not None
        # Half of the buffer counts as all of it, because TLS rarely fills it quite.
        if 2 * nbytes >= len(shell.read_buffer):
            self._transport.pause_reading()
            shell.read_on.append(self)
        if not self._has_received:
            self._has_received = True
            if data.startswith(_TLS_START) and not shell.is_encrypted:
                self._link.close("the other side speaks TLS, and this node does not")
        now_ms = shell.now_ms()
        shell.notice_pause(now_ms)
        self._link.receive(data, now_ms)
        shell.schedule_turn()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._shell.write_on.append(self)
        self._shell.schedule_turn()

    def connection_lost(self, error: Exception | None) -> None:
        self._shell.protocols.discard(self)
        assert self._link is not None
        reason = "the other side has closed the connection"
        if isinstance(error, OSError):
            reason = tls_fault(error)
        if not self._has_received and not self._link.is_dialled and not self._shell.is_encrypted:
            reason = PROBED
        elif not self._has_received:
            reason += _REFUSES_CERTIFICATE if self._shell.is_encrypted else _DEMANDS_TLS
        self._link.lost(reason)
        self._link.shell = None
        self._transport = None
        self._shell.schedule_turn()

    def end_if_closed(self) -> None:
        """Take the link down if the other side has closed the connection, read or not."""
        assert self._link is not None and self._transport is not None
        if self._transport.is_closing():
            return
        raw: socket.socket = self._transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(raw, select.POLLRDHUP)
        if poll.poll(0):
            self._link.lost("the other side has closed the connection while this node stood still")

    # -- turns -------------------------------------------------------------------------------------

    def write_out(self) -> None:
        """Write the link's output as far as the socket takes it; close it when the link is down."""
        link = self._link
        transport = self._transport
        if link is None or transport is None or transport.is_closing():
            return
        if link.is_down:
            self._close(link, transport)
            return
        was_writable = link.is_writable
        chunk_count = 0
        while not self._is_paused:
            if chunk_count == _CHUNKS_PER_TURN:
                self._shell.write_on.append(self)
                self._shell.schedule_turn()
                break
            parts = link.take_output()
            if not parts:
                break
            transport.writelines(parts)
            chunk_count += 1
        link.set_socket_bytes(transport.get_write_buffer_size())
        if link.is_writable and not was_writable:
            # The link's handler may have stopped sending in this turn.
            self._shell.schedule_turn()

    def read_on(self) -> None:
        """Resume reading: the turn in which this socket used up its share is over."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close(self, link: Link, transport: asyncio.Transport) -> None:
        parts = link.take_output()
        if not parts:
            # The other side counts as dead. A plain close would leave the unsent bytes to the
            # kernel, which would deliver them when the other side wakes.
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
            return
        transport.writelines(parts)
        transport.close()
        self._shell.loop.call_later(_CLOSE_S, transport.abort)


def _every_address(port: int) -> socket.socket:
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)


def _one_address(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _tls_options(context: ssl.SSLContext) -> dict[str, Any]:
    # The timeout around the whole attempt is the one that counts.
    return {"ssl": context, "ssl_handshake_timeout": 2 * _CONNECT_S}


def _address_of(name: tuple[Any, ...]) -> Address:
    host, port = name[:2]
    return host.removeprefix(_MAPPED) if "." in host else host, port
