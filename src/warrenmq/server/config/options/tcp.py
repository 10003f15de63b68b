"""The options of TCP listeners and of the sockets they accept."""

from typing import NamedTuple


class TcpOptions(NamedTuple):
    """`tcp_listen_options.*` of rabbitmq.conf; a size of 0 leaves the system's."""

    # Connections that the system completes before the node accepts them.
    backlog: int = 4096
    nodelay: bool = True
    keepalive: bool = False
    # Bytes of the socket's buffers.
    sndbuf: int = 0
    recbuf: int = 0
    # With linger, a close waits `linger_timeout_s` for unsent bytes and then resets the connection.
    linger: bool = False
    linger_timeout_s: int = 0
    # Other nodes of this user listen on the same ports: the system deals connections out to all.
    shares_ports: bool = False
