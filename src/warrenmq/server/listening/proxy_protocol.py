"""The PROXY protocol, versions 1 and 2: the first bytes in which a proxy names its client.

The parser never needs bytes beyond the header and trusts no length, because any client may connect
to a listener. It accepts what HAProxy's specification allows a proxy to send over TCP.
"""

import re
import socket
import struct
from dataclasses import dataclass
from typing import Final

# (host, port)
Address = tuple[str, int]

V1_BYTES_MAX: Final = 107
# Longest version 2 header with its additional fields (TLVs); warren ignores the fields.
V2_BYTES_MAX: Final = 4096
V1_START: Final = b"PROXY "
V2_START: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD_BYTES: Final = 16
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
# Address families and their address bytes: TCP over IPv4, over IPv6, UNIX streams, unspecified.
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_V2_ADDRESS_BYTES: Final = {_TCP4: 12, _TCP6: 36, 0x31: 216, 0x00: 0}
_V1_TCP: Final = re.compile(rb"PROXY TCP([46]) (\S{1,39}) (\S{1,39}) (\d{1,5}) (\d{1,5})\r\n")


class ProxyError(Exception):
    """The bytes are no PROXY header; the text says why."""


@dataclass(frozen=True)
class ProxyHeader:
    """A whole header; the addresses are None when the proxy speaks for itself or does not know."""

    size_bytes: int
    client: Address | None = None
    server: Address | None = None


def parse_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of `data`; None while `data` is only the beginning of one.

    Raises ProxyError when no header begins so.
    """
    if data.startswith(V2_START):
        return _parse_v2(data)
    if data.startswith(V1_START):
        return _parse_v1(data)
    if V2_START.startswith(data) or V1_START.startswith(data):
        return None
    raise ProxyError("it sent no PROXY header")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyError(f"its PROXY line has more than {V1_BYTES_MAX} bytes")
        return None
    line = data[: end + 2]
    if line.startswith((b"PROXY UNKNOWN\r", b"PROXY UNKNOWN ")):
        return ProxyHeader(len(line))
    match = _V1_TCP.fullmatch(line)
    if match is None:
        raise ProxyError("its PROXY line cannot be read")
    family = socket.AF_INET if match[1] == b"4" else socket.AF_INET6
    client, server = (
        (_host(family, host), _port(port))
        for host, port in ((match[2], match[4]), (match[3], match[5]))
    )
    return ProxyHeader(len(line), client, server)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD_BYTES:
        return None
    command, family, length = struct.unpack_from(">BBH", data, len(V2_START))
    size = _V2_HEAD_BYTES + length
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"its PROXY header has the unknown version and command {command:#04x}")
    if size > V2_BYTES_MAX:
        raise ProxyError(f"its PROXY header has more than {V2_BYTES_MAX} bytes")
    if command == _PROXY and length < _V2_ADDRESS_BYTES.get(family, length + 1):
        if family not in _V2_ADDRESS_BYTES:
            raise ProxyError(f"its PROXY header has the unknown address family {family:#04x}")
        raise ProxyError("its PROXY header is too short for its addresses")
    if len(data) < size:
        return None
    if command == _LOCAL or family not in (_TCP4, _TCP6):
        return ProxyHeader(size)
    layout, kind = ("4s4sHH", socket.AF_INET) if family == _TCP4 else ("16s16sHH", socket.AF_INET6)
    client, server, client_port, server_port = struct.unpack_from(
        ">" + layout, data, _V2_HEAD_BYTES
    )
    return ProxyHeader(
        size,
        (socket.inet_ntop(kind, client), client_port),
        (socket.inet_ntop(kind, server), server_port),
    )


def _host(family: socket.AddressFamily, text: bytes) -> str:
    """The address in its usual spelling."""
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, text.decode("ascii")))
    except (OSError, ValueError):
        raise ProxyError("its PROXY line has no valid address") from None


def _port(text: bytes) -> int:
    port = int(text)
    if port > 65535:
        raise ProxyError("its PROXY line has no valid port")
    return port
