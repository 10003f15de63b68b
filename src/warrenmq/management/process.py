"""Runs the API: where the node is, and the server of HTTP."""

from pathlib import Path

import uvicorn

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
from warrenmq.management.sessions import NodePlace

# Requests that wait for their turn to connect.
_BACKLOG = 128
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


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


def serve(place: NodePlace, host: str, port: int) -> None:
    """Serve the API until SIGTERM or SIGINT; exits with status 1 if the address is not free."""
    uvicorn.run(
        make_app(place),
        host=host,
        port=port,
        backlog=_BACKLOG,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
    )
