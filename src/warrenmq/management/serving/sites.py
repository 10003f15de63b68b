"""Serves applications on their listeners, all in one event loop, until a signal or the end.

A listener whose port is taken, or whose certificate cannot be read, is tried again and again, and
the others serve meanwhile.
"""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from warrenmq.management.serving.compression import Compressed
from warrenmq.management.serving.protocol import HttpProtocol
from warrenmq.server.config.options.http_listeners import Listening
from warrenmq.server.listening.tls import ListenerTls, TlsError

# Clients that wait for their connection to be accepted.
_BACKLOG: Final = 128
# Pause before a listener that could not listen is tried again (s).
_RETRY_S: Final = 5.0
# Time for requests that are under way at the end (s).
_STOP_GRACE_S: Final = 1.0
# Interval of beats and of the header `date` (s).
_TICK_S: Final = 1.0
# Lines of warning begin so; the node logs them as such.
WARNING: Final = "warning: "


@dataclass(frozen=True)
class Site:
    """An application, and where it is served."""

    # Begins the line in the log that says where the site is: "the HTTP API is".
    subject: str
    app: ASGIApp
    listening: Sequence[Listening]
    # Path of the site's address, behind HOST:PORT.
    path: str
    connections_max: int
    # Prefix of the site's keys for TLS.
    tls_prefix: str


class SiteServer:
    """Serves sites; `announce` gets a line for each listener that listens or cannot.

    `beat` is called about once a second, as long as the loop runs.
    """

    def __init__(self, announce: Callable[[str], None], beat: Callable[[], None]) -> None:
        self._announce = announce
        self._beat = beat
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        # Why a task has ended that should not.
        self._fault: BaseException | None = None
        self._servers: list[asyncio.Server] = []
        self._states: list[ServerState] = []

    async def serve(self, sites: Sequence[Site]) -> None:
        """Serve until `stop_in_thread`, SIGTERM or SIGINT.

        Raises the error of a task that fails: without it the sites would serve less than they seem
        to, and a process that ends is started again.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        for site in sites:
            for listening in site.listening:
                self._run(self._listen(site, listening))
        self._run(self._tick())
        await self._stopping.wait()
        for task in self._tasks:
            task.cancel()
        await self._close()
        if self._fault is not None:
            raise self._fault

    def _run(self, work: Coroutine[None, None, None]) -> None:
        """Run `work` in a task until `serve` ends."""
        task = self._loop.create_task(work)
        task.add_done_callback(self._on_end)
        self._tasks.append(task)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fault = task.exception()
            self._stopping.set()

    def stop_in_thread(self) -> None:
        """End `serve`; for other threads."""
        # The loop may have ended already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _listen(self, site: Site, listening: Listening) -> None:
        """Listen as soon as it is possible; a line says where, or why it is not yet."""
        fault = ""
        while True:
            try:
                where = await self._open(site, listening)
            except (OSError, TlsError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                if fault != str(reason):
                    fault = str(reason)
                    self._announce(f"{WARNING}cannot listen on {listening.where}: {fault}")
                await asyncio.sleep(_RETRY_S)
            else:
                self._announce(f"{site.subject} ready: {where}{site.path}")
                return

    async def _open(self, site: Site, listening: Listening) -> str:
        """Listen; returns where, as a URL without a path. Raises OSError or TlsError."""
        tls = None if listening.tls is None else ListenerTls(listening.tls, site.tls_prefix)
        bound = _bound(listening.host, listening.port)
        options = listening.options
        config = uvicorn.Config(
            Compressed(site.app) if options.compress else site.app,
            lifespan="off",
            ws="none",
            timeout_keep_alive=max(1, options.idle_timeout_ms // 1000),
            proxy_headers=False,
            access_log=False,
            log_level="warning",
        )
        config.load()
        state = ServerState()
        server = await self._loop.create_server(
            partial(HttpProtocol, config, state, options, site.connections_max, tls),
            sock=bound,
            ssl=None if tls is None else _renewing(tls),
            ssl_handshake_timeout=None if tls is None else options.request_timeout_ms / 1000,
        )
        if tls is not None and listening.tls is not None:
            watched = listening.tls
            self._run(tls.watch(lambda: watched))
        self._servers.append(server)
        self._states.append(state)
        host, port = bound.getsockname()[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"http://{where}" if tls is None else f"https://{where}"

    async def _tick(self) -> None:
        while True:
            date = formatdate(usegmt=True).encode()
            for state in self._states:
                state.default_headers = [(b"date", date)]
            self._beat()
            await asyncio.sleep(_TICK_S)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        connections = [each for state in self._states for each in state.connections]
        for connection in connections:
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_GRACE_S):
                while any([state.connections for state in self._states]):
                    await asyncio.sleep(0.01)


def _renewing(tls: ListenerTls) -> ssl.SSLContext:
    """A context whose handshakes show the certificate that `tls` has at the time."""
    first = tls.context

    def choose(client: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        client.context = tls.context

    first.sni_callback = choose
    return first


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address. Raises OSError."""
    if not host:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
