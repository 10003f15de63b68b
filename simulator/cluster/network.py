"""The network between simulated nodes: connections that are slow, broken, cut or half-open.

A connection carries bytes in order, in both directions, as TCP does. A *path* joins two nodes; each
of its directions may be cut. While a direction is cut, bytes wait in it, as TCP would send them
again; neither side learns of the cut except by silence. A side that has closed a connection is told
to the other side behind the bytes that are on their way; behind a cut, some of them are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from warrenmq.cluster.links.link import Link

# Bytes that a socket takes from its link before it has sent them.
SOCKET_BYTES: Final = 65536


class LinkedNode(Protocol):
    """A node, as the network knows it."""

    name: str
    # A frozen node receives nothing, and its connections stay.
    is_frozen: bool

    def link_moved(self) -> None:
        """A link of the node has received something, or has room again."""


class Stream:
    """One direction of a connection: bytes on their way, each piece with the time it arrives."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[int, bytes]] = deque()
        self.unsent_bytes = 0
        # The sender has closed the connection; the receiver learns it behind the last piece.
        self.is_closed = False
        self.free_at_ms = 0

    def put(self, data: bytes, due_ms: int) -> None:
        """Send bytes, which arrive at `due_ms` or when those before them have arrived."""
        if self.pieces:
            due_ms = max(due_ms, self.pieces[-1][0])
        self.pieces.append((due_ms, data))
        self.unsent_bytes += len(data)

    def take(self, now_ms: int) -> bytes:
        """The bytes that have arrived."""
        found = b""
        while self.pieces and self.pieces[0][0] <= now_ms:
            found += self.pieces.popleft()[1]
        self.unsent_bytes -= len(found)
        return found

    def close(self, rng: Random, loses: bool) -> None:
        """Close the sender's side; `loses`: a part of what is on its way is lost."""
        if not self.is_closed:
            self.is_closed = True
            if loses:
                for _ in range(rng.randrange(len(self.pieces) + 1)):
                    self.unsent_bytes -= len(self.pieces.pop()[1])


class Connection:
    """A connection of two nodes; side 0 has dialled."""

    def __init__(self, path: Path, nodes: tuple[LinkedNode, LinkedNode]) -> None:
        self.path = path
        self.nodes = nodes
        self.links: list[Link | None] = [None, None]
        # The bytes that each side sends.
        self.streams = (Stream(), Stream())

    def is_over(self) -> bool:
        """Whether both sides have left."""
        return self.links[0] is None and self.links[1] is None


class Path:
    """The network between two nodes, whose names are sorted."""

    def __init__(self, names: tuple[str, str]) -> None:
        self.names = names
        self.delay_ms = 0
        # Bytes that pass in a ms; 0: no limit.
        self.bytes_per_ms = 0
        # Which directions are cut: from the first node, from the second.
        self.is_cut = [False, False]

    def heal(self) -> None:
        """Be as fast and as whole as at the beginning."""
        self.delay_ms = 0
        self.bytes_per_ms = 0
        self.is_cut = [False, False]

    def cuts(self, sender: str) -> bool:
        """Whether nothing that `sender` sends arrives."""
        return self.is_cut[self.names.index(sender)]


class Network:
    """All paths between the nodes `names`; `rng` decides what a broken connection loses."""

    def __init__(self, names: list[str], rng: Random) -> None:
        self.rng = rng
        self.paths = {
            (one, other): Path((one, other)) for one in names for other in names if one < other
        }
        self.connections: list[Connection] = []

    def path(self, one: str, other: str) -> Path:
        """The path between two nodes."""
        return self.paths[(one, other) if one < other else (other, one)]

    def connect(
        self,
        dialer: LinkedNode,
        acceptor: LinkedNode,
        dialled: Callable[[], Link],
        accepted: Callable[[], Link],
    ) -> str:
        """Connect two nodes; returns why there is no connection, or ""."""
        path = self.path(dialer.name, acceptor.name)
        if any(path.is_cut) or acceptor.is_frozen:
            return "it has not answered"
        connection = Connection(path, (dialer, acceptor))
        self.connections.append(connection)
        for side, make in enumerate((dialled, accepted)):
            link = make()
            link.shell = connection
            connection.links[side] = link
        return ""

    def write_out(self, node: LinkedNode, links: list[Link], now_ms: int) -> None:
        """Take the output of the links of `node`, and close those that are down."""
        for link in links:
            connection = link.shell
            if isinstance(connection, Connection):
                self._write_out(connection, connection.links.index(link), link, now_ms)

    def _write_out(self, connection: Connection, side: int, link: Link, now_ms: int) -> None:
        stream, path = connection.streams[side], connection.path
        while stream.unsent_bytes < SOCKET_BYTES or link.is_down:
            data = b"".join(link.take_output())
            if not data:
                break
            due_ms = now_ms + path.delay_ms
            if path.bytes_per_ms:
                stream.free_at_ms = max(stream.free_at_ms, now_ms) + len(data) // path.bytes_per_ms
                due_ms += stream.free_at_ms - now_ms
            stream.put(data, due_ms)
        link.set_socket_bytes(stream.unsent_bytes)
        if link.is_down:
            self._leave(connection, side)

    def _leave(self, connection: Connection, side: int) -> None:
        link = connection.links[side]
        if link is not None:
            link.shell = None
            connection.links[side] = None
            loses = connection.path.cuts(connection.nodes[side].name)
            connection.streams[side].close(self.rng, loses)
            # Nobody reads what still comes.
            other = connection.streams[1 - side]
            other.pieces.clear()
            other.unsent_bytes = 0

    def is_idle(self) -> bool:
        """Whether nothing is on its way to a node."""
        return not any(
            connection.streams[side].pieces and connection.links[1 - side]
            for connection in self.connections
            for side in (0, 1)
        )

    def deliver(self, now_ms: int) -> bool:
        """Let everything arrive that is due; False if there was nothing."""
        has_moved = False
        for connection in list(self.connections):
            for side in (0, 1):
                has_moved |= self._deliver(connection, side, now_ms)
            if connection.is_over():
                self.connections.remove(connection)
        return has_moved

    def _deliver(self, connection: Connection, side: int, now_ms: int) -> bool:
        stream, receiver = connection.streams[side], connection.nodes[1 - side]
        if receiver.is_frozen or (not stream.pieces and not stream.is_closed):
            return False
        link = connection.links[1 - side]
        if link is None or connection.path.cuts(connection.nodes[side].name):
            return False
        data = stream.take(now_ms)
        if data:
            link.receive(data, now_ms)
        elif stream.is_closed and not stream.pieces:
            link.lost("the other side has closed the connection")
            self._leave(connection, 1 - side)
        else:
            return False
        receiver.link_moved()
        sender = connection.links[side]
        if sender is not None:
            was_writable = sender.is_writable
            sender.set_socket_bytes(stream.unsent_bytes)
            self._write_out(connection, side, sender, now_ms)
            if sender.is_writable and not was_writable:
                connection.nodes[side].link_moved()
        return True

    def break_off(self, one: str, other: str, now_ms: int) -> None:
        """Reset the connections of two nodes: both sides learn it at once, or when they go on."""
        for connection in list(self.connections):
            if {node.name for node in connection.nodes} == {one, other}:
                for side in (0, 1):
                    if not connection.nodes[side].is_frozen:
                        self._reset(connection, side)
                if connection.is_over():
                    self.connections.remove(connection)

    def _reset(self, connection: Connection, side: int) -> None:
        link = connection.links[side]
        if link is not None:
            link.lost("connection reset")
            self._leave(connection, side)
            connection.nodes[side].link_moved()

    def crash(self, node: LinkedNode) -> None:
        """The process of `node` has ended; the system closes its sockets."""
        for connection in list(self.connections):
            for side in (0, 1):
                if connection.nodes[side] is node:
                    self._leave(connection, side)

    def vanish(self, node: LinkedNode) -> None:
        """The machine of `node` is off: the others do not hear it."""
        for connection in list(self.connections):
            if node in connection.nodes:
                side = connection.nodes.index(node)
                self._leave(connection, side)
                connection.streams[side].pieces.clear()
                # The other side waits for bytes that never come.
                connection.streams[side].pieces.append((1 << 62, b""))
