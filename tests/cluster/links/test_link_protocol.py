"""The protocol of one link writes as much as its socket wants, and asks for turns when it must."""

import asyncio
import socket
from typing import Any

import pytest

from tests.cluster.links.pairs import FROM, TO, TestNode, identity
from warrenmq.cluster.links.frames import CHUNK_BYTES, CONTROL, DATA
from warrenmq.cluster.links.link import WRITABLE_BYTES, Link
from warrenmq.cluster.links.shell import LinkProtocol, LinkShell


class ModelTransport(asyncio.Transport):
    """A transport that keeps what is written, and has room for `room` writes."""

    def __init__(self, raw: socket.socket) -> None:
        super().__init__({"socket": raw})
        self.written: list[bytes] = []
        self.room = 1000
        self.buffer_bytes = 0
        self.protocol: LinkProtocol | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffer_bytes

    def is_closing(self) -> bool:
        return False

    def writelines(self, parts: Any) -> None:
        self.written.append(b"".join(parts))
        self.room -= 1
        if self.room == 0:
            assert self.protocol is not None
            self.protocol.pause_writing()


class Ends:
    """A node whose only link is up, over a model of a socket."""

    def __init__(self, raw: socket.socket) -> None:
        self.node = TestNode(identity("a@one"))
        self.turn_count = 0
        self.read_buffer = memoryview(bytearray(65536))
        self.shell = LinkShell(
            asyncio.new_event_loop(), self.node.links, int, self._on_turn, self.read_buffer, None
        )
        self.transport = ModelTransport(raw)
        self.protocol = LinkProtocol(self.shell, "b@two", TO)
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        far_end = TestNode(identity("b@two")).links.accepted(FROM, 0)
        while not self.node.handler.up:
            self.shell.write_out()
            far_end.receive(b"".join(self.transport.written), 0)
            self.transport.written.clear()
            self.receive(b"".join(far_end.take_output()))
        self.shell.write_out()
        self.transport.written.clear()
        self.turn_count = 0

    @property
    def link(self) -> Link:
        return self.node.handler.up[0]

    def receive(self, data: bytes) -> None:
        self.read_buffer[: len(data)] = data
        self.protocol.buffer_updated(len(data))

    def turn(self) -> list[int]:
        """Run a turn; returns the sizes of what was written."""
        self.transport.written.clear()
        self.shell.write_out()
        return [len(written) for written in self.transport.written]

    def _on_turn(self) -> None:
        self.turn_count += 1

    def close(self) -> None:
        self.shell.loop.close()


@pytest.fixture
def ends() -> Any:
    with socket.socket() as raw:
        made = Ends(raw)
        yield made
        made.close()


def test_a_handler_that_stopped_sending_gets_a_turn_when_it_may_send_again(ends: Ends) -> None:
    """Even when the socket took everything at once, so that no event of it will follow."""
    ends.transport.buffer_bytes = WRITABLE_BYTES // 2
    ends.link.send(CONTROL, 16, b"")
    ends.turn()
    assert ends.turn_count == 0, "the link was writable all the time"
    for _ in range(5):
        ends.link.send(DATA, 16, bytes(CHUNK_BYTES))
    assert not ends.link.is_writable
    ends.transport.buffer_bytes = 0
    ends.turn()
    assert ends.turn_count == 1


def test_a_socket_that_wants_no_more_gets_no_more(ends: Ends) -> None:
    """What waits then stays in the link, and an urgent frame passes it."""
    ends.link.send(DATA, 16, bytes(4 * CHUNK_BYTES))
    ends.transport.room = 2
    assert len(ends.turn()) == 2
    ends.link.send(CONTROL, 17, b"urgent")
    assert ends.turn() == []
    ends.transport.room = 1
    ends.protocol.resume_writing()
    assert ends.turn_count == 1
    assert len(ends.turn()) == 1
    assert ends.transport.written[0].startswith(b"\0\0\0\6\x11urgent")


def test_a_turn_writes_a_bounded_number_of_chunks(ends: Ends) -> None:
    ends.link.send(DATA, 16, bytes(20 * CHUNK_BYTES))
    found = []
    for _ in range(4):
        ends.turn_count = 0
        found.append((len(ends.turn()), ends.turn_count > 0))
    assert found == [(8, True), (8, True), (4, False), (0, False)]
