"""Runs the API: where the node is, and the server of HTTP."""

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    LocalAddress,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.control_file import ControlFileError, read_control_file
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl
from warrenmq.management.app import make_app
from warrenmq.management.prometheus.pages import make_metrics_app
from warrenmq.management.sessions import NodePlace

# Clients that wait for their connection to be accepted.
_BACKLOG: Final = 128
# Where to reach a listener on every address.
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def place_of_uri(uri: str) -> NodePlace:
    """The node of an AMQP URI, which takes admin sessions at the same port.

    Raises ValueError for a URI that cannot be.
    """
    address = NodeAddress(uri)
    return NodePlace(lambda: address, lambda: address)


def place_of_directory(data_dir: Path) -> NodePlace:
    """The node that runs on `data_dir`, as its control file says."""

    def admin() -> LocalAddress:
        try:
            return LocalAddress(read_control_file(data_dir))
        except ControlFileError as error:
            raise NodeUnreachableError(str(error)) from None

    def amqp() -> NodeAddress:
        try:
            with AdminClient(admin(), "management") as client:
                status = client.request(DescribeControl(), ControlStatus)
        except AdminRefusedError as error:
            raise NodeUnreachableError(error.text) from None
        for listener in status.listeners:
            if listener.protocol == "amqp":
                host = _EVERY_ADDRESS.get(listener.interface, listener.interface)
                where = f"[{host}]" if ":" in host else host
                return NodeAddress(f"amqp://{where}:{listener.port}")
        raise NodeUnreachableError("the node has no AMQP listener without TLS")

    return NodePlace(admin, amqp)


def serve(
    place: NodePlace, host: str, port: int, announce: Callable[[str], None], until_eof: bool = False
) -> None:
    """Serve the API until SIGTERM or SIGINT, and with `until_eof` until standard input ends.

    `host` "" means every address, `port` 0 any free one. `announce` gets one line once clients can
    connect. Raises OSError if the address is not free.
    """
    with _listening(host, port) as listening:
        server = _server(make_app(place))
        if until_eof:
            # A node that is killed tells nobody; but the pipe it holds is closed.
            threading.Thread(target=_end_at_eof, args=[server], daemon=True).start()
        shown, bound = listening.getsockname()[:2]
        where = f"[{shown}]" if ":" in shown else shown
        announce(f"the HTTP API is ready: http://{where}:{bound}/api/")
        server.run(sockets=[listening])


def serve_metrics(place: NodePlace, host: str, port: int) -> None:
    """Serve metrics alone, without logins, in a thread that ends with the process.

    Raises OSError if the address is not free.
    """
    listening = _listening(host, port)
    server = _server(make_metrics_app(place))
    threading.Thread(target=server.run, args=[[listening]], name="metrics", daemon=True).start()


def _server(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_level="warning",
        )
    )


def _listening(host: str, port: int) -> socket.socket:
    if not host:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _end_at_eof(server: uvicorn.Server) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True
