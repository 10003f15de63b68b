"""The broker notices closed, reset and vanished clients whose sockets it does not read."""

import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.node_thread import NodeThread
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.flow.throttle import WINDOW_BYTES
from warrenmq.wire.methods import ConnectionBlocked

BODY = bytes(100_000)
CAPABILITIES: dict[str, object] = {"connection.blocked": True}
SO_ATTACH_FILTER = 26


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def set_memory_low(node: NodeThread, is_low: bool) -> None:
    now_ms = node.node.clock.now_ms()
    node.call(
        lambda: node.node.broker.set_vm_memory_high_watermark(0 if is_low else 1 << 59, 0, now_ms)
    )


def first(node: NodeThread) -> Connection:
    """The oldest connection."""
    return next(iter(node.node.broker.connections))


def blocked(node: NodeThread, heartbeat: int) -> tuple[Peer, socket.socket]:
    """Return a blocked client whose socket the broker does not read, with no data in flight."""
    set_memory_low(node, True)
    peer = node.peer().open(capabilities=CAPABILITIES, heartbeat=heartbeat)
    channel = peer.channel()
    for _ in range(WINDOW_BYTES // len(BODY) + 1):
        channel.publish(b"nowhere", BODY)
    peer.expect(ConnectionBlocked)
    eventually(lambda: node.call(lambda: not first(node).is_reading), "not read")
    assert isinstance(peer.link, SocketLink)
    return peer, peer.link.socket


def await_gone(node: NodeThread) -> None:
    eventually(lambda: node.call(lambda: not node.node.broker.connections), "gone")
    assert node.node.broker.alarms.kept_bytes == 0
    assert node.node.broker.alarms.is_on


def test_a_client_whose_end_is_behind_what_is_not_read(node: NodeThread) -> None:
    _, client = blocked(node, 600)
    client.setblocking(False)
    # Fill the buffers of both ends: the end of the stream is behind data that nobody reads.
    with pytest.raises(BlockingIOError):
        while True:
            client.send(bytes(1 << 20))
    client.close()
    await_gone(node)


def test_a_client_that_is_reset(node: NodeThread) -> None:
    _, client = blocked(node, 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_gone(node)


def waiting(node: NodeThread, heartbeat: int) -> tuple[Peer, socket.socket]:
    """Return a blocked client that waits for its confirm, and whose socket the broker reads."""
    set_memory_low(node, True)
    peer = node.peer().open(capabilities=CAPABILITIES, heartbeat=heartbeat)
    peer.channel().publish(b"nowhere", BODY)
    peer.expect(ConnectionBlocked)
    assert isinstance(peer.link, SocketLink)
    return peer, peer.link.socket


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_leaves_while_it_waits_for_a_confirm(
    node: NodeThread, is_reset: bool
) -> None:
    _, client = waiting(node, 0)
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_gone(node)


@pytest.mark.parametrize("client_of", [blocked, waiting])
def test_a_client_that_vanishes(
    node: NodeThread, client_of: Callable[[NodeThread, int], tuple[Peer, socket.socket]]
) -> None:
    _, client = client_of(node, 1)
    # The client's system now drops all packets for it: no ack, no reset, as behind a cut cable.
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(drop_all))
    client.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    await_gone(node)
    client.close()


def test_a_client_that_is_there_stays(node: NodeThread) -> None:
    peer, _ = blocked(node, 1)
    # The client's system acks the broker's heartbeats. The client need not read them, and the
    # broker does not read the client's heartbeats.
    connection = first(node)
    started_ms = node.node.clock.now_ms()
    eventually(
        lambda: (
            node.node.clock.now_ms() - started_ms > connection.heartbeats.silence_max_ms() + 500
        ),
        "a while",
    )
    assert node.call(lambda: len(node.node.broker.connections)) == 1
    set_memory_low(node, False)
    channel = peer.channels[1]
    channel.declare(b"q")
    peer.drop()
