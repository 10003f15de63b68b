"""The two ends of a client's connection, as its name, the log and the login rules need them."""

import socket
from dataclasses import dataclass
from typing import Final

from warrenmq.server.listening.proxy_protocol import Address, ProxyHeader

# On a dual-stack listener, IPv4 clients have IPv4-mapped addresses.
_MAPPED: Final = "::ffff:"


@dataclass(eq=False)
class Ends:
    """The addresses of one socket's client and of the node, or those of its PROXY header."""

    client: Address
    server: Address
    # Whether the socket itself was accepted on a loopback address. As in RabbitMQ, neither the
    # client's own address nor a PROXY header counts.
    is_loopback: bool

    @property
    def name(self) -> str:
        """`CLIENT -> SERVER`, the connection's name in the log and in listings."""
        return f"{shown(self.client)} -> {shown(self.server)}"

    def replace_by(self, header: ProxyHeader) -> None:
        """Take the addresses of `header` if it has some."""
        if header.client is not None and header.server is not None:
            self.client = header.client
            self.server = header.server


def ends_of(client: socket.socket) -> Ends:
    """The addresses of an accepted socket. Raises OSError when the client has left."""
    remote = _unmapped(client.getpeername())
    local = _unmapped(client.getsockname())
    return Ends(remote, local, local[0].startswith("127.") or local[0] == "::1")


def shown(address: Address) -> str:
    """HOST:PORT, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unmapped(address: tuple[str, int]) -> Address:
    host, port = address[:2]
    return host.removeprefix(_MAPPED) if "." in host else host, port
