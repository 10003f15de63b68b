"""Options of the commands that talk to a running node, the address that they make, and a client of the node there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import quote

import typer

from warren.admin.client import AdminClient, AdminRefusedError, NodeAddress, NodeUnreachableError
from warren.cli.output import fail

Host = Annotated[str, typer.Option(metavar="HOST", help="Where the node listens.")]
Port = Annotated[int, typer.Option(metavar="PORT", help="Its AMQP port.")]
User = Annotated[str, typer.Option(metavar="NAME", help="Who asks.")]
Password = Annotated[str, typer.Option(metavar="TEXT", envvar="WARREN_PASSWORD", help="Their password.")]
VhostName = Annotated[str, typer.Option("--vhost", metavar="NAME", help="A vhost they may enter.")]


def node_address(host: str, port: int, user: str, password: str, vhost: str) -> NodeAddress:
    """The address, from parts that may hold any character. Raises ValueError when they make none."""
    where = f"[{host}]" if ":" in host else host
    return NodeAddress(f"amqp://{quote(user, '')}:{quote(password, '')}@{where}:{port}/{quote(vhost, '')}")


@contextmanager
def node_client(
    host: str, port: int, user: str, password: str, vhost: str, purpose: str
) -> Iterator[AdminClient]:
    """A client for `purpose` (a command's name). When the node does not answer or refuses, the command ends with one line."""
    try:
        with AdminClient(node_address(host, port, user, password, vhost), purpose) as client:
            yield client
    except (AdminRefusedError, NodeUnreachableError, ValueError) as error:
        fail(error)
