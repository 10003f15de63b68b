"""During ten thousand hostile connections the broker serves others, and its memory stays flat."""

import asyncio
import resource
import socket
import time

import pytest

from tests.hostile.strangers import MANNERS, visit
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.watched_broker import MIB, WatchedBroker, WellBehaved
from tests.support.kills.ledger import Confirms

WARM_UP = 1_500
COUNT = 10_000
AT_ONCE = 300
# File descriptors that a node reserves for its disk.
RESERVED = 64
# Memory that may remain after a wave of strangers: fragments of the allocator.
FLAT = 8 * MIB


@pytest.fixture
def node_settings() -> tuple[str, ...]:
    """Small journal files, so that the node opens several."""
    return ("journal_file_size_limit=1MiB",)


def is_refused(client: socket.socket) -> bool:
    """Whether the node has closed the connection."""
    try:
        return client.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# Takes 40 s on a machine without other load.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_strangers(broker: WatchedBroker) -> None:
    node = broker.node
    broker.check_service()
    descriptors = broker.descriptors()
    asyncio.run(visit(node.host, node.port, WARM_UP, AT_ONCE, 0))
    before = broker.settled_rss(descriptors)
    client = WellBehaved(broker)
    client.start()
    started = time.monotonic()
    done = asyncio.run(visit(node.host, node.port, COUNT, AT_ONCE, 1_000_000))
    seconds = time.monotonic() - started
    client.stop()
    after = broker.settled_rss(descriptors)
    assert sum(done.values()) == COUNT
    assert len(done) == len(MANNERS)
    print(
        f"{COUNT} connections in {seconds:.0f} s; memory {before / MIB:.1f} -> {after / MIB:.1f} MiB, "
        f"peak {client.peak / MIB:.1f}; a round trip took {client.slowest * 1000:.0f} ms at most of {client.rounds}, "
        f"{client.longest_work_s * 1000:.0f} ms of the broker's work"
    )
    # The allocator returns freed memory to the system after some idle time; a leak never returns.
    eventually(lambda: broker.rss() - before < FLAT, "the memory of before", 0.2)
    assert client.peak - before < 100 * MIB
    assert client.rounds > 100
    assert client.longest_work_s < 3


def test_more_connections_than_descriptors(broker: WatchedBroker) -> None:
    node = broker.node
    assert node.process is not None
    channel = broker.connect().channel()
    channel.declare(b"q", durable=True)
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (150, hard))
    sockets = [socket.create_connection((node.host, node.port)) for _ in range(400)]
    # Wait until all others are refused, so that none can take the place of a closed connection.
    refused = len(sockets) - (150 - RESERVED)
    eventually(lambda: sum(is_refused(one) for one in sockets) >= refused, "all others refused")
    # Accepted connections are served, and the disk has enough descriptors.
    confirms = Confirms(channel)
    for _ in range(30):
        confirms.publish(b"q", bytes(100_000), PERSISTENT, b"", lambda: None)
    confirms.drain()
    assert broker.descriptors() < 150
    for one in sockets:
        one.close()
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    broker.check_service()
    assert node.log_path.read_text().count("refusing connections") == 1
