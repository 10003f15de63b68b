"""Links on real sockets: nodes that die, freeze and come back; refusals and certificates."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.cluster.links import socket_node
from tests.cluster.links.pairs import SECRET, identity
from tests.cluster.links.socket_node import HOST, SocketNode
from tests.support.awaiting import eventually_in_loop
from tests.support.certificates import Authority, encrypted_key
from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.links.frames import CHUNK_BYTES, CONTROL, DATA
from warrenmq.cluster.links.link import WRITABLE_BYTES
from warrenmq.cluster.links.links import Address
from warrenmq.cluster.links.tls import LinkTls, LinkTlsError, link_tls

ROOT = Path(__file__).parent.parent.parent.parent
A, B = "a@one", "b@two"
LARGE_BYTES = 64 * 1048576


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that runs on a loop as nodes have it."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))  # type: ignore[arg-type]  # every async function returns a coroutine

    return run


@asynccontextmanager
async def running(*nodes: SocketNode) -> AsyncIterator[None]:
    """Nodes that know each other."""
    for node in nodes:
        node.start()
    for node in nodes:
        node.meet(*[other for other in nodes if other is not node])
    try:
        yield
    finally:
        for node in nodes:
            await node.shell.stop("the test is over")


async def all_up(*nodes: SocketNode) -> None:
    await eventually_in_loop(
        lambda: all([len(node.handler.up) == len(nodes) - 1 for node in nodes]), "all links"
    )


async def have_frames(count: int, *nodes: SocketNode) -> None:
    await eventually_in_loop(
        lambda: all([len(node.handler.frames) == count for node in nodes]), f"{count} frames"
    )


@on_loop
async def test_a_port_in_use_is_said_in_words() -> None:
    one, other = SocketNode(identity(A)), SocketNode(identity(B))
    async with running(one):
        with pytest.raises(ClusterError, match=r": Address already in use; choose another"):
            other.start(one.address[1])


@pytest.mark.parametrize("host", ["", "::"])
@on_loop
async def test_every_address_is_ipv4_and_ipv6(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log shows an IPv4 address as people write it, not as ::ffff:127.0.0.1."""
    caplog.set_level(logging.WARNING)
    node = SocketNode(identity(A))
    _, port = node.shell.start(host, 0)
    for address in ("127.0.0.1", "[::1]"):
        with socket.create_connection((address.strip("[]"), port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await eventually_in_loop(lambda: len(caplog.messages) > 0, "the stranger is logged")
        (line,) = caplog.messages
        assert line.startswith(f"no link from {address}: the other side broke the protocol")
        caplog.clear()
    other = SocketNode(identity(B))
    with pytest.raises(ClusterError, match=f"on port {port} of every address: Address already in"):
        other.shell.start(host, port)
    await node.shell.stop("the test is over")


@on_loop
async def test_three_nodes_have_a_link_for_each_pair() -> None:
    nodes = [SocketNode(identity(name)) for name in (A, B, "c@three")]
    async with running(*nodes):
        await all_up(*nodes)
        for node in nodes:
            for other in nodes:
                if other is not node:
                    link = node.links.link_to(other.name)
                    assert link is not None
                    link.send(DATA, 16, f"{node.name} to {other.name}".encode() * 100_000)
            node.schedule_turn()
        await have_frames(2, *nodes)
        for node in nodes:
            sent = [f"{other.name} to {node.name}".encode() for other in nodes if other is not node]
            assert sorted(payload for _, payload in node.handler.frames) == [
                each * 100_000 for each in sorted(sent)
            ]


@on_loop
async def test_an_urgent_frame_passes_a_large_one_that_is_on_its_way() -> None:
    one, other = SocketNode(identity(A)), SocketNode(identity(B))
    async with running(one, other):
        await all_up(one, other)
        (link,) = one.handler.up
        link.send(DATA, 16, bytes(LARGE_BYTES))
        assert not link.is_writable
        one.schedule_turn()
        await eventually_in_loop(lambda: link.unsent_bytes < LARGE_BYTES - CHUNK_BYTES, "chunks")
        assert link.unsent_bytes > WRITABLE_BYTES
        link.send(CONTROL, 17, b"urgent")
        one.schedule_turn()
        await have_frames(2, other)
        assert [kind for kind, _ in other.handler.frames] == [17, 16]
        await eventually_in_loop(lambda: link.unsent_bytes == 0, "everything is sent")


@on_loop
async def test_a_node_that_stops_says_so() -> None:
    one, other = SocketNode(identity(A)), SocketNode(identity(B))
    async with running(one, other):
        await all_up(one, other)
        await one.shell.stop("node a@one stops")
        await eventually_in_loop(lambda: other.handler.reasons != [], "the link is down")
        assert other.handler.reasons == ["ended by the other side: node a@one stops"]


@on_loop
async def test_a_refusal_reaches_both_logs(caplog: pytest.LogCaptureFixture) -> None:
    one, other = SocketNode(identity(A), b"guessed"), SocketNode(identity(B))
    async with running(one, other):
        await eventually_in_loop(lambda: len(caplog.messages) == 2, "a line of each node")
        host, port = other.address
        text = "node b@two and node a@one have different secrets"
        assert sorted(caplog.messages) == [
            f"no link from {host}: {text}",
            f"no link to node b@two at {host}:{port}: ended by the other side: {text}",
        ]
        assert one.handler.reasons == other.handler.reasons == []


@on_loop
async def test_a_stranger_is_disconnected() -> None:
    """One that speaks another protocol at once, and whatever it sends."""
    node = SocketNode(identity(B))
    async with running(node):
        reader, writer = await asyncio.open_connection(*node.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"broke the protocol of the links" in await reader.read()
        writer.close()


@on_loop
async def test_a_probe_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nodes ask whether a silent one still listens: they connect and say nothing."""
    node = SocketNode(identity(B))
    async with running(node):
        _, writer = await asyncio.open_connection(*node.address)
        writer.close()
        _, writer = await asyncio.open_connection(*node.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await eventually_in_loop(lambda: len(caplog.messages) > 0, "a stranger is logged")
        assert "broke the protocol of the links" in caplog.messages[0]
        writer.close()


# -- processes -------------------------------------------------------------------------------------


class EchoProcess:
    """`socket_node.py` as a process of its own."""

    def __init__(self, name: str, peers: dict[str, Address], port: int, incarnation: int) -> None:
        options = {"name": name, "peers": peers, "port": port, "incarnation": incarnation}
        self._process = subprocess.Popen(
            [sys.executable, socket_node.__file__, json.dumps(options)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
        assert self._process.stdout is not None
        self.address = (HOST, int(self._process.stdout.readline()))

    def freeze(self) -> None:
        """Stop the process by SIGSTOP, and return when it stands still."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


NewProcess = Callable[..., EchoProcess]


@pytest.fixture
def new_process() -> Iterator[NewProcess]:
    """Starts processes, which end with the test."""
    processes = []

    def start(
        name: str, peers: dict[str, Address], port: int = 0, incarnation: int = 1
    ) -> EchoProcess:
        processes.append(EchoProcess(name, peers, port, incarnation))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


async def answers(node: SocketNode) -> None:
    """Return when the process on the only link of `node` has sent a frame back."""
    await eventually_in_loop(lambda: len(node.handler.up) == 1, "a link")
    node.handler.frames.clear()
    node.handler.up[0].send(DATA, 16, b"x" * 1_000_000)
    node.schedule_turn()
    await eventually_in_loop(
        lambda: node.handler.frames == [(16, b"x" * 1_000_000)], "the frame comes back"
    )


@pytest.mark.kill
@on_loop
async def test_a_killed_node_is_noticed_and_dialled_again(new_process: NewProcess) -> None:
    node = SocketNode(identity(A))
    process = new_process(B, {A: (HOST, 1)})
    async with running(node):
        node.links.set_peers({B: process.address}, node.now_ms())
        await answers(node)
        process.kill()
        await eventually_in_loop(lambda: node.handler.up == [], "the link is down")
        new_process(B, {A: (HOST, 1)}, process.address[1], 2)
        await answers(node)
        assert len(node.handler.reasons) == 1


@pytest.mark.kill
@on_loop
async def test_a_killed_node_that_dials_comes_back(new_process: NewProcess) -> None:
    node = SocketNode(identity(B))
    async with running(node):
        node.links.set_peers({A: (HOST, 1)}, node.now_ms())
        for incarnation in (1, 2):
            process = new_process(A, {B: node.address}, 0, incarnation)
            await answers(node)
            process.kill()
            await eventually_in_loop(lambda: node.handler.up == [], "the link is down")


@pytest.mark.slow
@on_loop
async def test_a_frozen_node_is_silent_and_comes_back(new_process: NewProcess) -> None:
    """The link is half-open, and what waits for the frozen node does not keep it.

    What was sent to it counts as lost, so it must not read that when it wakes: its consumers would
    get messages that consumers of other nodes have acked meanwhile.
    """
    node = SocketNode(identity(A))
    process = new_process(B, {A: (HOST, 1)})
    async with running(node):
        node.links.set_peers({B: process.address}, node.now_ms())
        await answers(node)
        (half_open,) = node.shell.protocols
        process.freeze()
        node.handler.up[0].send(CONTROL, 17, b"lost")
        node.handler.up[0].send(DATA, 16, bytes(LARGE_BYTES))
        node.schedule_turn()
        await eventually_in_loop(lambda: node.handler.up == [], "the link is down")
        assert node.handler.reasons == ["the other side has been silent for 3000 ms"]
        await eventually_in_loop(
            lambda: half_open not in node.shell.protocols, "the socket is closed"
        )
        process.thaw()
        await answers(node)
        node.handler.up[0].send(CONTROL, socket_node.KINDS, b"")
        node.schedule_turn()
        await have_frames(2, node)
        assert node.handler.frames[1] == (socket_node.KINDS, bytes([16, 16, socket_node.KINDS]))


@on_loop
async def test_a_node_that_is_not_there_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server((HOST, 0)) as unused:
        address: Address = unused.getsockname()
    node = SocketNode(identity(A))
    async with running(node):
        dials = 0
        take_dials = node.links.take_dials

        def counted(now_ms: int) -> list[tuple[str, Address]]:
            nonlocal dials
            due = take_dials(now_ms)
            dials += len(due)
            return due

        node.links.take_dials = counted  # type: ignore[method-assign]  # counts the dials
        node.links.set_peers({B: address}, node.now_ms())
        await eventually_in_loop(lambda: dials == 3, "three dials")
        host, port = address
        (message,) = caplog.messages
        assert message.startswith(f"no link to node b@two at {host}:{port}: ")
        assert "refused" in message.lower()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """The authority of the cluster, and a stranger's."""
    directory = tmp_path_factory.mktemp("certificates")
    return Authority(directory / "cluster"), Authority(directory / "other", "stranger")


def issued(trusted: Authority, issuer: Authority, name: str) -> LinkTls:
    own = issuer.issue(name, names="DNS:nodes.example")
    return link_tls(trusted.certfile, own.certfile, own.keyfile, "")


@on_loop
async def test_nodes_with_certificates_of_the_cluster(
    authorities: tuple[Authority, Authority],
) -> None:
    """The certificates need not name the hosts. Large frames pass in both directions."""
    cluster, _ = authorities
    nodes = [SocketNode(identity(n), tls=issued(cluster, cluster, n)) for n in (A, B)]
    async with running(*nodes):
        await all_up(*nodes)
        for node in nodes:
            node.handler.up[0].send(DATA, 16, bytes(LARGE_BYTES // 8))
            node.schedule_turn()
        await have_frames(1, *nodes)
        for node in nodes:
            assert node.handler.frames == [(16, bytes(LARGE_BYTES // 8))]


@pytest.mark.parametrize(
    ("one", "other", "dialler", "acceptor"),
    [
        ("other", "cluster", "perhaps because it refuses this node's", "certificate is refused"),
        ("cluster", "other", "certificate is refused", "perhaps because it refuses this node's"),
        ("", "cluster", "perhaps because it demands TLS", "the other side does not speak TLS"),
        ("cluster", "", "the other side does not speak TLS", "the other side speaks TLS"),
    ],
    ids=["dialler of a stranger", "acceptor of a stranger", "dialler without", "acceptor without"],
)
@on_loop
async def test_nodes_with_wrong_certificates_or_none(
    authorities: tuple[Authority, Authority],
    caplog: pytest.LogCaptureFixture,
    one: str,
    other: str,
    dialler: str,
    acceptor: str,
) -> None:
    """Nothing is joined, and each log has one line."""
    cluster, stranger = authorities
    issuers = {"cluster": cluster, "other": stranger}
    sides = [
        SocketNode(
            identity(name), SECRET, issued(cluster, issuers[issuer], name) if issuer else None
        )
        for name, issuer in ((A, one), (B, other))
    ]
    async with running(*sides):
        await eventually_in_loop(
            lambda: {message[:11] for message in caplog.messages} >= {"no link to ", "no link fro"},
            "a line of each node",
        )
    to = [message for message in caplog.messages if message.startswith("no link to node b@two")]
    came = [message for message in caplog.messages if message.startswith("no link from")]
    assert (len(to), len(came)) == (1, 1), caplog.messages
    assert dialler in to[0] and acceptor in came[0]
    assert all(side.handler.reasons == [] for side in sides)


def test_files_that_cannot_be_used_are_named(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    cluster, stranger = authorities
    mine, other = cluster.issue("mine"), stranger.issue("visitor")
    gone = tmp_path / "gone.pem"
    locked = encrypted_key(mine, "sesame")
    assert link_tls(cluster.certfile, mine.certfile, locked, "sesame")
    for arguments, name in (
        ((gone, mine.certfile, mine.keyfile, ""), gone),
        ((mine.keyfile, mine.certfile, mine.keyfile, ""), mine.keyfile),
        ((cluster.certfile, gone, mine.keyfile, ""), gone),
        ((cluster.certfile, mine.certfile, other.keyfile, ""), other.keyfile),
        ((cluster.certfile, mine.certfile, locked, "open"), locked),
    ):
        with pytest.raises(LinkTlsError, match=str(name)):
            link_tls(*arguments)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Lines about links that come up are not looked at here."""
    caplog.set_level(logging.WARNING, "warren.cluster")
