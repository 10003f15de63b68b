"""Sockets of a node with TLS and PROXY headers: who is served or refused, and what is logged."""

import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tls_process import TlsBroker
from tests.support.brokers.watched_broker import MIB, WatchedBroker
from tests.support.certificates import Authority, chain_file
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.server.listening.listeners import bound_socket
from warrenmq.wire.encode import PROTOCOL_HEADER

HEADER_1 = b"PROXY TCP4 10.0.0.5 10.0.0.6 1111 2222\r\n"
HEADER_2 = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11"
    + struct.pack(">H", 15)
    + bytes([10, 0, 0, 5, 10, 0, 0, 6])
    + struct.pack(">HH", 1111, 2222)
    + b"\x04\x00\x00"
)
# How every connection.start begins: a method frame on channel 0.
START = b"\x01\x00\x00"
# Milliseconds of ssl_handshake_timeout: tests wait for it, and a loaded machine needs some time.
HANDSHAKE_MS = 2000


@contextlib.contextmanager
def running(broker: TlsBroker) -> Iterator[TlsBroker]:
    """The node while it runs; it must stop cleanly, without an internal error."""
    broker.start()
    try:
        yield broker
        assert broker.stop() == 0
    finally:
        broker.kill()
    log = broker.log_path.read_text()
    assert "Traceback" not in log and "internal error" not in log, log[-4000:]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A node that several tests share."""
    directory = tmp_path_factory.mktemp("tls")
    with running(TlsBroker(directory, f"ssl_handshake_timeout={HANDSHAKE_MS}")) as node:
        yield node


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A node whose listeners require PROXY headers."""
    directory = tmp_path_factory.mktemp("proxy")
    settings = ("proxy_protocol=true", f"ssl_handshake_timeout={HANDSHAKE_MS}")
    with running(TlsBroker(directory, *settings)) as node:
        yield node


def by_pika(
    port: int, context: ssl.SSLContext | None = None
) -> pika.adapters.blocking_connection.BlockingConnection:
    tls = None if context is None else pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, ssl_options=tls))


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(60)
    return client


def is_dropped(client: socket.socket) -> bool:
    """Read until the node closes the connection."""
    with contextlib.suppress(ConnectionError):
        while client.recv(65536):
            pass
    return True


def greeting(client: socket.socket) -> bytes:
    """The first bytes of connection.start, after the client's AMQP header."""
    client.sendall(PROTOCOL_HEADER)
    return client.recv(4096)[: len(START)]


def test_pika_over_tls_and_without(broker: TlsBroker) -> None:
    """Large messages go both ways, so that either side's buffers fill up."""
    body = bytes(range(256)) * 40_000
    with (
        by_pika(broker.tls_port, broker.client_context()) as publisher,
        by_pika(broker.port) as consumer,
    ):
        channel = publisher.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("").method.queue
        for _ in range(3):
            channel.basic_publish("", queue, body)
        reader = publisher.channel()
        for _ in range(3):
            assert reader.basic_get(queue, auto_ack=True)[2] == body
        assert consumer.is_open
    for text in ("started TCP listener on ", "started TLS (SSL) listener on "):
        assert len(broker.log_lines(text)) == 1


def test_plain_bytes_on_the_tls_port_end_quickly(broker: TlsBroker) -> None:
    with connected(broker.tls_port) as client:
        client.sendall(b"A")
        assert is_dropped(client)
    eventually(lambda: broker.has_logged("it does not speak TLS: first byte b'A'"), "a line")


def test_tls_on_the_plain_port_ends_quickly(broker: TlsBroker) -> None:
    with connected(broker.port) as client, pytest.raises(ssl.SSLError, match="WRONG_VERSION"):
        broker.client_context().wrap_socket(client, server_hostname="localhost")
    eventually(lambda: broker.has_logged("TLS on a listener without TLS"), "a line")


def test_slow_handshakes_end_and_hold_up_nobody(broker: TlsBroker) -> None:
    hello = ssl.MemoryBIO()
    half = broker.client_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    octets = hello.read()
    slow = [connected(broker.tls_port) for _ in range(20)]
    for number, client in enumerate(slow):
        # Nothing, a beginning, or the whole first flight.
        client.sendall(octets[: (0, 5, len(octets))[number % 3]])
    with by_pika(broker.tls_port, broker.client_context()) as other:
        assert other.is_open
    for client in slow:
        assert is_dropped(client)
        client.close()
    text = f"its handshake took more than {HANDSHAKE_MS} ms"
    eventually(lambda: broker.has_logged(text), "a line")
    assert len(broker.log_lines(text)) < len(slow)


def test_broken_handshakes(broker: TlsBroker, tmp_path: Path) -> None:
    with connected(broker.tls_port) as client:
        client.sendall(b"\x16\x03\x01\x00\x05hello")
        assert is_dropped(client)
    eventually(lambda: broker.has_logged("TLS handshake failed"), "a line")
    stranger = broker.client_context(Authority(tmp_path, "other").issue("stranger"))
    stranger.maximum_version = ssl.TLSVersion.TLSv1_2
    with connected(broker.tls_port) as client, pytest.raises(OSError, match=r"."):
        stranger.wrap_socket(client, server_hostname="localhost")
    eventually(lambda: broker.has_logged("CERTIFICATE_VERIFY_FAILED"), "a line")
    # A client that says nothing leaves no line.
    connected(broker.tls_port).close()
    with by_pika(broker.tls_port, broker.client_context()) as other:
        assert other.is_open


def test_memory_and_descriptors_of_closed_connections_are_free_at_once(broker: TlsBroker) -> None:
    """OpenSSL's buffers of 600 connections are 10 MiB; they do not wait for a garbage collector."""
    watched = WatchedBroker(broker)
    context = broker.client_context()

    def come_and_go(count: int) -> None:
        for _ in range(count):
            with connected(broker.tls_port) as client:
                context.wrap_socket(client, server_hostname="localhost").close()
        with by_pika(broker.tls_port, context) as last:
            assert last.is_open

    come_and_go(200)
    memory, descriptors = watched.rss(), watched.descriptors()
    come_and_go(600)
    assert watched.rss() - memory < 5 * MIB
    eventually(lambda: watched.descriptors() <= descriptors, "closed sockets")


def test_new_certificates_without_a_restart(tmp_path: Path) -> None:
    """New connections get the new certificate; old ones live on; broken files change nothing."""
    with running(TlsBroker(tmp_path)) as broker:
        files = broker.identity

        def name() -> str:
            with connected(broker.tls_port) as client:
                wrapped = broker.client_context().wrap_socket(client, server_hostname="localhost")
                certificate = wrapped.getpeercert()
                assert certificate is not None
                return str(certificate["subject"])

        first = name()
        with by_pika(broker.tls_port, broker.client_context()) as old:
            new = broker.authority.issue("new")
            shutil.copy(new.certfile, files.certfile)
            # The files do not belong together now.
            text = "the certificates in use stay, because the new ones are faulty"
            eventually(lambda: broker.has_logged(text), "the fault in the log")
            assert name() == first
            shutil.copy(new.keyfile, files.keyfile)
            eventually(lambda: "new" in name(), "the new certificate")
            assert len(broker.log_lines(text)) == 1
            assert old.channel().queue_declare("", exclusive=True).method.message_count == 0


def test_a_start_with_faulty_certificates(tmp_path: Path) -> None:
    broker = TlsBroker(tmp_path)
    broker.identity.keyfile.write_text("nothing")
    assert broker.refused() != 0
    text = broker.log_path.read_text()
    fault = f"ssl_options.keyfile: {broker.identity.keyfile} holds no usable private key"
    assert fault in text and "Traceback" not in text
    # `warren config check` finds the same fault.
    file = tmp_path / "warren.conf"
    file.write_text("".join(f"{line}\n" for line in broker.settings))
    checked = subprocess.run(
        [sys.executable, "-m", "warrenmq", "config", "check", str(file)],
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stderr) == (2, f"warren: {fault}\n")


def test_a_chain_that_is_too_long(tmp_path: Path) -> None:
    with running(TlsBroker(tmp_path, "ssl_options.depth=0")) as broker:
        middle = Authority(tmp_path / "certificates", "middle", broker.authority)
        leaf = middle.issue("leaf")
        chain_file(leaf.certfile, leaf, middle)
        with connected(broker.tls_port) as client:
            wrapped = broker.client_context(leaf).wrap_socket(client, server_hostname="localhost")
            assert is_dropped(wrapped)
        eventually(lambda: broker.has_logged("longer than ssl_options.depth allows"), "a line")


@pytest.mark.parametrize("header", [HEADER_1, HEADER_2])
@pytest.mark.parametrize("is_tls", [False, True])
def test_addresses_come_from_the_proxy(
    behind_proxy: TlsBroker, header: bytes, is_tls: bool
) -> None:
    """The header comes before TLS and in any pieces."""
    text = "accepting AMQP connection"
    before = len(behind_proxy.log_lines(text))
    port = behind_proxy.tls_port if is_tls else behind_proxy.port
    with connected(port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in header:
            client.send(bytes([octet]))
        if is_tls:
            context = behind_proxy.client_context()
            with context.wrap_socket(client, server_hostname="localhost") as wrapped:
                assert greeting(wrapped) == START
        else:
            assert greeting(client) == START
    eventually(lambda: len(behind_proxy.log_lines(text)) > before, "a line")
    assert "(10.0.0.5:1111 -> 10.0.0.6:2222)" in behind_proxy.log_lines(text)[before]


def test_a_header_in_one_piece_with_what_follows(behind_proxy: TlsBroker) -> None:
    with connected(behind_proxy.port) as client:
        client.sendall(HEADER_2 + PROTOCOL_HEADER)
        assert client.recv(len(START)) == START


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (PROTOCOL_HEADER, "it sent no PROXY header"),
        (b"PROXY TCP4 1.2.3.4 x 1 2\r\n", "its PROXY line has no valid address"),
        (HEADER_2[:20], f"its handshake took more than {HANDSHAKE_MS} ms"),
    ],
)
def test_without_a_header_nobody_is_served(
    behind_proxy: TlsBroker, octets: bytes, text: str
) -> None:
    with connected(behind_proxy.port) as client:
        client.sendall(octets)
        assert is_dropped(client)
    eventually(lambda: behind_proxy.has_logged(text), "a line")


def test_local_commands_need_no_header(behind_proxy: TlsBroker) -> None:
    # The constructor logs in.
    AdminClient(NodeAddress(behind_proxy.uri), "test").close()


def server(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A start that fails."""
    command = [sys.executable, "-m", "warrenmq", "server", "--data-dir", str(tmp_path / "data")]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)


def test_a_port_in_use_stops_the_start_in_words_and_leaves_no_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for listen in (f"127.0.0.1:{port}", str(port)):
            done = server(tmp_path, "--listen", listen)
            where = listen if ":" in listen else f"port {port} of every address"
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.endswith(
                f"cannot start: cannot listen on {where}: another program uses it, perhaps another "
                "node; stop that program, or choose another with listeners.tcp.NAME or --listen "
                "HOST:PORT\n"
            )
            assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("listen", "fault"),
    [
        ("192.0.2.1:5672", "this machine has no such address"),
        ("no-such-host.invalid:5672", "no host has this name"),
    ],
)
def test_an_address_that_cannot_be_had_is_named(tmp_path: Path, listen: str, fault: str) -> None:
    done = server(tmp_path, "--listen", listen)
    assert done.returncode == 1
    assert f"cannot listen on {listen}: {fault}; choose another with" in done.stderr


@pytest.mark.parametrize("host", ["", "::"])
def test_every_address_is_ipv4_and_ipv6(host: str) -> None:
    with bound_socket(host, 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port)).close()


def test_several_listeners_of_each_kind(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "listeners.tcp.2=127.0.0.1:0", "listeners.tcp.3=[::1]:0")
    broker.start()
    try:
        lines = broker.log_path.read_text().splitlines()
        opened = [line.rpartition(" ")[2] for line in lines if "started TCP listener on" in line]
        for address in opened:
            host, _, port = address.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port))) as client:
                assert greeting(client) == START
        assert broker.stop() == 0
    finally:
        broker.kill()
