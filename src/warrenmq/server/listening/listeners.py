"""The listening sockets of a node, and the way of a client from accept to its protocol.

    accept -> PROXY header, if configured -> TLS handshake, on a TLS listener -> protocol

Each client takes this way in a task of its own, within `ssl_handshake_timeout`, so that a slow one
holds up nobody. The steps before TLS read no byte of what follows them, with the help of MSG_PEEK:
the loop's TLS then sees an untouched stream.
"""

import asyncio
import errno
import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from warrenmq.admin.protocol.requests import PROTOCOL_HEADER as ADMIN_HEADER
from warrenmq.server.config.options.tcp import TcpOptions
from warrenmq.server.listening.addresses import Ends, ends_of, shown
from warrenmq.server.listening.amqp_protocol import SocketHost
from warrenmq.server.listening.proxy_protocol import (
    V2_BYTES_MAX,
    Address,
    ProxyError,
    ProxyHeader,
    parse_header,
)
from warrenmq.server.listening.tls import ListenerTls, PeerChains

logger = logging.getLogger("warren.listener")

# Clients that one listener accepts in a turn of the loop.
_ACCEPTS_PER_TURN: Final = 64
# Pause of a listener when the system has no room for another socket (s).
_ACCEPT_PAUSE_S: Final = 1.0
# First byte of every TLS connection: the type of a handshake record.
_TLS_FIRST: Final = b"\x16"
# Time for a client to answer the end of its TLS connection (s).
_TLS_SHUTDOWN_S: Final = 3.0
# The limit of uvloop on a TLS handshake, which must have one (s). The task of the client keeps the
# limit that counts.
_NO_LIMIT_S: Final = 86400.0

NewProtocol = Callable[[Ends, PeerChains | None], asyncio.BufferedProtocol]

HANDSHAKES_PER_TURN: Final = 2


class HandshakeTurns:
    """A queue of clients whose first bytes have arrived; each turn of the loop lets a few pass.

    The node's part of a TLS handshake costs about a millisecond of CPU (with an RSA key), and it
    cannot be interrupted. When hundreds of clients connect at once, a few handshakes a turn leave
    room for everybody else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def wait(self) -> None:
        """Return when it is the caller's turn; the caller may also be cancelled."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)
        await turn

    def _next_turn(self) -> None:
        passed = 0
        while self._waiting and passed < HANDSHAKES_PER_TURN:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                passed += 1
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._next_turn)


@dataclass(frozen=True)
class Listener:
    """A listening socket."""

    socket: socket.socket
    is_tls: bool

    @property
    def address(self) -> Address:
        """(host, port)."""
        host, port = self.socket.getsockname()[:2]
        return host, port


class ListenError(Exception):
    """The node cannot listen on an address; the text says why, and what to do."""


class _SilentClientError(Exception):
    """The client left before it said anything, as health checks do; the log gets no line."""


class _NotTlsError(Exception):
    """The first byte on a TLS listener begins no TLS handshake."""


class Listeners:
    """All listeners of `host`; `new_protocol` makes the protocol of a client.

    The constructor reads the certificates and raises TlsError.
    """

    def __init__(self, host: SocketHost, new_protocol: NewProtocol) -> None:
        config = host.config
        self._host = host
        self._loop = host.loop
        self._new_protocol = new_protocol
        self._turns = HandshakeTurns(host.loop)
        self._arrivals: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._tls: ListenerTls | None = ListenerTls(config.tls) if config.ssl_listeners else None
        self.all: list[Listener] = []

    def bind(self) -> None:
        """Take the addresses; nobody can connect yet.

        Raises ListenError, and leaves no socket open then.
        """
        config = self._host.config
        for is_tls, addresses in ((False, config.tcp_listeners), (True, config.ssl_listeners)):
            for address in addresses:
                try:
                    self.all.append(bound_listener(address, is_tls, config.tcp.shares_ports))
                except ListenError:
                    self.close()
                    raise

    def start(self) -> None:
        """Accept clients. Raises ListenError, and leaves no socket open then."""
        for listener in self.all:
            try:
                listener.socket.listen(self._host.config.tcp.backlog)
            except OSError as error:
                # Two programs may have taken an address as long as neither accepted clients.
                address = listener.address
                self.close()
                raise ListenError(_listen_fault(address, listener.is_tls, error)) from None
            kind = "TLS (SSL)" if listener.is_tls else "TCP"
            logger.info("started %s listener on %s", kind, shown(listener.address))
            self._resume(listener)
        if self._tls is not None:
            watching = self._tls.watch(lambda: self._host.config.tls)
            self._watch = self._loop.create_task(watching)

    def ready_text(self) -> str:
        """`amqp=HOST:PORT amqps=HOST:PORT`: the first listener of each kind that there is."""
        first = {listener.is_tls: listener.address for listener in reversed(self.all)}
        return " ".join(_named(is_tls, first[is_tls]) for is_tls in sorted(first))

    def all_text(self) -> str:
        """All listeners, in the form of `ready_text`."""
        return " ".join(_named(each.is_tls, each.address) for each in self.all)

    def reload_tls(self) -> str:
        """Read certificates and options again; returns why the old ones stay, or ""."""
        return "" if self._tls is None else self._tls.reload(self._host.config.tls)

    def certificates(self) -> tuple[str, str]:
        """The certificates in use and the trusted ones, as PEM; "" without TLS."""
        return ("", "") if self._tls is None else self._tls.certificates

    def close(self) -> None:
        """Close the listening sockets; drop the clients that have no protocol yet."""
        for listener in self.all:
            self._loop.remove_reader(listener.socket)
            listener.socket.close()
        if self._watch is not None:
            self._watch.cancel()
        for arrival in self._arrivals:
            arrival.cancel()

    # -- accept ------------------------------------------------------------------------------------

    def _resume(self, listener: Listener) -> None:
        if listener.socket.fileno() >= 0:
            self._loop.add_reader(listener.socket, self._accept, listener)

    def _accept(self, listener: Listener) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                client, _ = listener.socket.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                # The client left while it waited to be accepted.
                continue
            except OSError as error:
                # The socket stays readable: without a pause the loop would be here all the time.
                self._loop.remove_reader(listener.socket)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._resume, listener)
                logger.error("no client accepted for %g s: %s", _ACCEPT_PAUSE_S, error)
                return
            if not self._host.has_room_for_socket():
                client.close()
                continue
            try:
                ends = ends_of(client)
            except OSError:
                # The client has reset its connection.
                client.close()
                continue
            self._host.arriving.add(ends)
            arrival = self._loop.create_task(self._welcome(client, ends, listener.is_tls))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    async def _welcome(self, client: socket.socket, ends: Ends, is_tls: bool) -> None:
        """Give the client its protocol, or close its socket and log why."""
        timeout_ms = self._host.config.ssl_handshake_timeout_ms
        fault = ""
        try:
            # A configured 0 means no limit.
            async with asyncio.timeout(timeout_ms / 1000 or None):
                await self._hand_over(client, ends, is_tls)
            return
        except TimeoutError:
            fault = f"closed, because its handshake took more than {timeout_ms} ms"
        except (ProxyError, _NotTlsError) as error:
            fault = f"closed, because {error}"
        except ssl.SSLError as error:
            fault = f"TLS handshake failed: {error.reason or error}"
        except OSError as error:
            fault = f"left during its handshake: {error.strerror or 'connection reset'}"
        except _SilentClientError:
            pass
        except asyncio.CancelledError:
            # The node stops.
            client.close()
            raise
        finally:
            self._host.arriving.discard(ends)
        client.close()
        if fault and self._host.lines.allows(f"{ends.client[0]} {fault}"):
            logger.warning("%s: %s", ends.name, fault)

    async def _hand_over(self, client: socket.socket, ends: Ends, is_tls: bool) -> None:
        config = self._host.config
        client.setblocking(False)
        _set_options(client, config.tcp)
        if config.proxy_protocol:
            ends.replace_by(await self._read_proxy_header(client, ends))
        tls: dict[str, Any] = {}
        chains: PeerChains | None = None
        if is_tls:
            await self._await_hello(client)
            assert self._tls is not None
            chains = self._tls.chains
            tls = {
                "ssl": self._tls.context,
                "ssl_handshake_timeout": _NO_LIMIT_S,
                "ssl_shutdown_timeout": _TLS_SHUTDOWN_S,
            }
        await self._loop.connect_accepted_socket(
            lambda: self._new_protocol(ends, chains), client, **tls
        )
        if not config.tcp.nodelay:
            # uvloop always sets the option.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    # -- the first bytes ---------------------------------------------------------------------------

    async def _read_proxy_header(self, client: socket.socket, ends: Ends) -> ProxyHeader:
        """Read the PROXY header and not one byte more. Raises ProxyError.

        A local client of the admin protocol needs none: it is a command of the node's own machine,
        and a proxy would have sent a header.
        """
        data = b""
        while True:
            arrived = await self._peek(client, V2_BYTES_MAX)
            if not arrived:
                if data:
                    raise ProxyError("its PROXY header has no end")
                raise _SilentClientError
            if ends.is_loopback and not data and arrived.startswith(ADMIN_HEADER):
                return ProxyHeader(0)
            header = parse_header(data + arrived)
            if header is not None:
                client.recv(header.size_bytes - len(data))
                return header
            data += client.recv(len(arrived))

    async def _await_hello(self, client: socket.socket) -> None:
        """Return when the client has begun its TLS handshake and it is its turn."""
        first = await self._peek(client, 1)
        if not first:
            raise _SilentClientError
        if first != _TLS_FIRST:
            raise _NotTlsError(f"it does not speak TLS: first byte {first!r}")
        await self._turns.wait()

    async def _peek(self, client: socket.socket, size: int) -> bytes:
        """Up to `size` arrived bytes, which stay in the socket; b"" when the client has left."""
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(client, _wake, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(client)
        return client.recv(size, socket.MSG_PEEK)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _set_options(client: socket.socket, options: TcpOptions) -> None:
    if options.keepalive:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.sndbuf:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.sndbuf)
    if options.recbuf:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.recbuf)
    if options.linger:
        linger = struct.pack("ii", 1, options.linger_timeout_s)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def bound_listener(address: Address, is_tls: bool, shares_port: bool = False) -> Listener:
    """A listener that has its address and does not listen yet. Raises ListenError."""
    try:
        return Listener(bound_socket(*address, shares_port), is_tls)
    except OSError as error:
        raise ListenError(_listen_fault(address, is_tls, error)) from None


def bound_socket(host: str, port: int, shares_port: bool = False) -> socket.socket:
    """A socket that has its address and does not listen yet. Raises OSError.

    The hosts "" and "::" mean every address, IPv4 and IPv6, on one port. With `shares_port` other
    sockets of this user that say the same may have the address, too.
    """
    is_every = host in ("", "::")
    is_dual = is_every and socket.has_dualstack_ipv6()
    if is_every:
        family, address = (socket.AF_INET6, "::") if is_dual else (socket.AF_INET, "0.0.0.0")
    else:
        # Python encodes a str as IDNA, whose tables take milliseconds to load.
        name = host.encode() if host.isascii() else host
        family, _, _, _, found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        address = str(found[0])
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_dual)
        listener.bind((address, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _named(is_tls: bool, address: Address) -> str:
    return f"{'amqps' if is_tls else 'amqp'}={shown(address)}"


def _listen_fault(address: Address, is_tls: bool, error: OSError) -> str:
    """Why the node cannot listen on `address`, and what to do."""
    host, port = address
    where = shown(address) if host else f"port {port} of every address"
    key = "listeners.ssl.NAME" if is_tls else "listeners.tcp.NAME"
    choice = f"choose another with {key}" + ("" if is_tls else " or --listen HOST:PORT")
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {where}: no host has this name; {choice}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {where}: another program uses it, perhaps another node; "
            f"stop that program, or {choice}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {where}: this machine has no such address; {choice}"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: the system permits it to root only; {choice}"
    return f"cannot listen on {where}: {error.strerror}"
