"""The parser of PROXY headers reads what a proxy may send, in any pieces, and nothing else."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.server.listening.proxy_protocol import (
    V1_BYTES_MAX,
    V2_BYTES_MAX,
    V2_START,
    ProxyError,
    ProxyHeader,
    parse_header,
)

PORTS = st.integers(0, 65535)
PAIRS = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)),
    st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6)),
)
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def version_2(command: int, family: int, payload: bytes) -> bytes:
    return V2_START + struct.pack(">BBH", command, family, len(payload)) + payload


def v1_header(hosts: tuple[IpAddress, IpAddress], ports: tuple[int, int]) -> bytes:
    client, server = hosts
    return b"PROXY TCP%d %s %s %d %d\r\n" % (
        client.version, str(client).encode(), str(server).encode(), *ports,
    )  # fmt: skip


def v2_header(hosts: tuple[IpAddress, IpAddress], ports: tuple[int, int], extra: bytes) -> bytes:
    client, server = hosts
    payload = client.packed + server.packed + struct.pack(">HH", *ports)
    return version_2(0x21, 0x11 if client.version == 4 else 0x21, payload + extra)


@given(PAIRS, st.tuples(PORTS, PORTS), st.binary(max_size=300), st.booleans(), st.binary())
def test_a_header_is_read_at_its_end_and_no_byte_earlier(
    hosts: tuple[IpAddress, IpAddress],
    ports: tuple[int, int],
    extra: bytes,
    is_new: bool,
    rest: bytes,
) -> None:
    header = v2_header(hosts, ports, extra) if is_new else v1_header(hosts, ports)
    for size in range(len(header)):
        assert parse_header(header[:size]) is None
    found = parse_header(header + rest)
    assert found is not None and found.size_bytes == len(header)
    for address, host, port in zip((found.client, found.server), hosts, ports, strict=True):
        assert address is not None
        assert (ipaddress.ip_address(address[0]), address[1]) == (host, port)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda rest: V2_START + rest),
        st.binary(max_size=200).map(lambda rest: b"PROXY TCP" + rest),
        st.text("PROXYTC46 .:0123456789\r\n", max_size=200).map(str.encode),
    )
)
def test_any_bytes_are_a_header_a_beginning_or_refused(data: bytes) -> None:
    """The parser never reads past the end and never waits for more than the longest header."""
    try:
        found = parse_header(data)
    except ProxyError:
        return
    if found is None:
        assert len(data) < (V2_BYTES_MAX if data.startswith(V2_START[:1]) else V1_BYTES_MAX)
    else:
        assert 0 < found.size_bytes <= len(data)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
        version_2(0x20, 0x00, b""),
        version_2(0x20, 0x11, b"local"),
        version_2(0x21, 0x00, b""),
        version_2(0x21, 0x31, bytes(216)),
    ],
)
def test_a_proxy_may_speak_for_itself_or_not_know(header: bytes) -> None:
    assert parse_header(header + b"AMQP") == ProxyHeader(len(header))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"AMQP\x00\x00\x09\x01", "it sent no PROXY header"),
        (b"\x16\x03\x01", "it sent no PROXY header"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n", "no valid port"),
        (b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n", "no valid address"),
        (b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", "no valid address"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", "cannot be read"),
        (b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", "cannot be read"),
        (b"PROXY TCP4 " + b"1" * 100, "more than 107 bytes"),
        (V2_START + b"\x31\x11\x00\x0c", "version and command 0x31"),
        (V2_START + b"\x22\x11\x00\x0c", "version and command 0x22"),
        (V2_START + b"\x21\x12\x00\x0c", "address family 0x12"),
        (V2_START + b"\x21\x11\x00\x0b", "too short"),
        (V2_START + b"\x21\x11\xff\xff", "more than 4096 bytes"),
    ],
)
def test_what_is_no_header(data: bytes, text: str) -> None:
    with pytest.raises(ProxyError, match=text):
        # Lengths are judged before the bytes that they announce have come.
        parse_header(data)
