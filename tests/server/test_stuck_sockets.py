"""Clients that do not read their sockets take no output room from clients that do."""

import logging
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from tests.support.brokers.node_thread import NodeThread
from warrenmq.queues.memory.transit import CLOSE_AFTER_MS

MIB = 1 << 20
ROOM = 4 * MIB
BODY = bytes(MIB)


def test_a_healthy_consumer_goes_on_beside_sockets_that_nobody_reads(tmp_path: Path) -> None:
    node = NodeThread(tmp_path)
    try:
        transit = node.node.broker.memory_account.transit
        # Disable the closing of stuck sockets, however slow the machine is.
        transit.close_after_ms = 1 << 40
        node.call(lambda: transit.set_room(ROOM))
        publisher = node.peer().open().channel()
        unread = publisher.declare(b"unread").queue
        # Three readers fill the room, but less than twice the room, the limit once they are stuck.
        readers = [node.peer().open().channel() for _ in range(3)]
        for reader in readers:
            reader.consume(unread)
        for _ in range(60):
            publisher.publish(unread, BODY, PERSISTENT)
            if node.call(lambda: transit.used_bytes > ROOM - MIB):
                break
        eventually(lambda: node.call(lambda: transit.used_bytes > ROOM - MIB), "there is room")
        healthy = node.peer().open().channel()
        healthy.declare(b"read")
        healthy.consume(b"read", no_ack=True)
        for _ in range(3):
            publisher.publish(b"read", BODY, PERSISTENT)
        assert healthy.bodies(3) == [BODY] * 3
        # Stuck readers stay connected, and get their messages when they read again.
        assert len(node.call(lambda: node.node.broker.connections)) == 5
        assert readers[0].bodies(1) == [BODY]
    finally:
        node.stop()


def unread(memory: MemoryBroker, queue: bytes) -> EngineLink:
    """Return a consumer that stops reading before its first message."""
    link = EngineLink(memory, True)
    channel = Peer(link).open().channel()
    channel.consume(queue)
    link.is_stuck = True
    return link


@pytest.fixture
def memory() -> MemoryBroker:
    memory = MemoryBroker()
    memory.broker.memory_account.transit.set_room(ROOM)
    return memory


def channel_of(memory: MemoryBroker) -> ChannelPeer:
    return Peer(memory.connect()).open().channel()


def test_of_sockets_that_fill_both_rooms_those_with_most_are_closed(
    memory: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = channel_of(memory)
    links: list[EngineLink] = []
    # The last client has the most bytes; together they exceed twice the room.
    for number, size in enumerate((MIB + 1, 2 * MIB, 6 * MIB)):
        queue = publisher.declare(b"q%d" % number).queue
        links.append(unread(memory, queue))
        publisher.publish(queue, bytes(size))
        memory.advance(2000)
    transit = memory.broker.memory_account.transit
    assert transit.stuck_bytes > 2 * ROOM
    memory.advance(2 * CLOSE_AFTER_MS)
    assert [link.is_at_end for link in links] == [False, False, False]
    # A healthy consumer now needs the room.
    healthy = channel_of(memory)
    healthy.declare(b"read")
    healthy.consume(b"read", no_ack=True)
    with caplog.at_level(logging.WARNING, "warren.connection"):
        publisher.publish(b"read", bytes(5 * MIB))
        assert healthy.bodies(1) == [bytes(5 * MIB)]
    assert [link.is_at_end for link in links] == [False, False, True]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "client has not read its socket for" in warning
    assert publisher.count(b"q2") == 1


def test_nobody_is_closed_before_its_time(memory: MemoryBroker) -> None:
    publisher = channel_of(memory)
    healthy = channel_of(memory)
    healthy.declare(b"read")
    healthy.consume(b"read", no_ack=True)
    queue = publisher.declare(b"q").queue
    link = unread(memory, queue)
    publisher.publish(queue, bytes(3 * ROOM))
    publisher.publish(b"read", bytes(ROOM))
    memory.advance(CLOSE_AFTER_MS - 1000)
    assert not link.is_at_end
    assert memory.broker.memory_account.transit.is_wanted()
    assert healthy.bodies(1) == [bytes(ROOM)]
    assert link.is_at_end
