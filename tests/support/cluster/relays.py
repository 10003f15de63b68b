"""A network of TCP relays on the loopback: one for each client, server and service.

    link = network.between("n1", "n2")
    link.delay_ms = 50
    link.is_half_open = True

The relays run in a thread of the test's process. What is set holds for open and for new
connections of that link, and counts in both directions.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from bench.ports import held_port
from tests.support.cluster.networks import Address, Network

_HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
# Chunks on their way in one direction; with a delay they are the bytes in flight.
_CHUNKS_MAX = 64
# With a bandwidth, bytes come in so many pieces a second.
_CHUNKS_PER_S = 50
# close() with this option resets the connection.
_RESET = struct.pack("ii", 1, 0)


class RelayLink:
    """All connections that one party opens to another; attributes may change at any time.

    delay_ms: later arrival of every byte. bytes_per_s: bandwidth of each connection in each
    direction; 0 has no limit. is_half_open: bytes vanish, while the connections stay open; `reset`
    them afterwards, as a stream with a hole is of no use.
    """

    def __init__(self, network: "RelayNetwork", client: str, server: str) -> None:
        self.delay_ms = 0
        self.bytes_per_s = 0
        self.is_half_open = False
        self._network = network
        self._client = client
        self._server = server
        self._connections: set[_Connection] = set()

    def reset(self) -> None:
        """Reset all open connections, as a router that forgets them does."""
        self._network.call(self._reset())

    async def _reset(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def gate(self, is_to_server: bool) -> asyncio.Event:
        """The event that is set while the direction is not cut."""
        ends = (self._client, self._server) if is_to_server else (self._server, self._client)
        return self._network.gate(*ends)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Address
    ) -> None:
        """Relay one connection until both sides have ended it."""
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run(target)
        finally:
            self._connections.discard(connection)


class _Connection:
    """One relayed connection."""

    def __init__(
        self, link: RelayLink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._link = link
        self._client = (reader, writer)
        self._writers = [writer]

    async def run(self, target: Address) -> None:
        try:
            # The first packet of a connection needs both directions.
            await self._link.gate(True).wait()
            await self._link.gate(False).wait()
            reader, writer = await asyncio.open_connection(*target)
            self._writers.append(writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(self._client[0], writer, True))
                tasks.create_task(self._pass_on(reader, self._client[1], False))
        except* OSError:
            self.abort()
        finally:
            for each in self._writers:
                each.close()

    def abort(self) -> None:
        """Reset both sides."""
        for writer in self._writers:
            connected = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_to_server: bool
    ) -> None:
        """Pass all bytes and the end on, with a delay that does not limit the bandwidth."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver(chunks, writer, is_to_server))
            data = b"-"
            while data:
                rate = self._link.bytes_per_s
                data = await reader.read(max(1, rate // _CHUNKS_PER_S) if rate else _CHUNK_BYTES)
                if rate:
                    await asyncio.sleep(len(data) / rate)
                now_s = asyncio.get_running_loop().time()
                await chunks.put((now_s + self._link.delay_ms / 1000, data))

    async def _deliver(
        self,
        chunks: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        is_to_server: bool,
    ) -> None:
        while True:
            due_s, data = await chunks.get()
            await asyncio.sleep(due_s - asyncio.get_running_loop().time())
            await self._link.gate(is_to_server).wait()
            if self._link.is_half_open:
                continue
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


class RelayNetwork(Network):
    """See the module."""

    def __init__(self) -> None:
        self._listening: dict[tuple[str, str], Address] = {}
        self._reached: dict[tuple[str, str, str], Address] = {}
        self._links: dict[tuple[str, str], RelayLink] = {}
        self._parties: list[str] = []
        # One for each (sender, receiver); set while nothing is cut.
        self._gates: dict[tuple[str, str], asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def add(self, party: str) -> None:
        self._parties.append(party)

    def listen(self, party: str, service: str) -> Address:
        key = (party, service)
        if key not in self._listening:
            self._listening[key] = (_HOST, held_port(self))
        return self._listening[key]

    def reach(self, client: str, server: str, service: str) -> Address:
        key = (client, server, service)
        if key not in self._reached:
            link, target = self.between(client, server), self.listen(server, service)
            self._reached[key] = self.call(self._open(link, target))
        return self._reached[key]

    def prefix(self, party: str) -> Sequence[str]:
        return ()

    def between(self, client: str, server: str) -> RelayLink:
        """The link for connections that `client` opens to `server`."""
        return self._links.setdefault((client, server), RelayLink(self, client, server))

    def cut_one_way(self, sender: str, receiver: str) -> None:
        self.call(self._set_gates([(sender, receiver)], is_whole=False))

    def heal_one_way(self, sender: str, receiver: str) -> None:
        self.call(self._set_gates([(sender, receiver)], is_whole=True))

    def isolate(self, party: str) -> None:
        others = [other for other in self._parties if other != party]
        pairs = [(party, other) for other in others] + [(other, party) for other in others]
        self.call(self._set_gates(pairs, is_whole=False))

    def heal(self) -> None:
        self.call(self._set_gates(list(self._gates), is_whole=True))

    def gate(self, sender: str, receiver: str) -> asyncio.Event:
        """The gate of one direction; in the relays' thread."""
        gate = self._gates.get((sender, receiver))
        if gate is None:
            gate = self._gates[sender, receiver] = asyncio.Event()
            gate.set()
        return gate

    def close(self) -> None:
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` in the relays' thread; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, link: RelayLink, target: Address) -> Address:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(link.serve(reader, writer, target))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        server = await asyncio.start_server(accept, _HOST, 0)
        self._servers.append(server)
        address: Address = server.sockets[0].getsockname()
        return address

    async def _set_gates(self, pairs: list[tuple[str, str]], is_whole: bool) -> None:
        for pair in pairs:
            gate = self.gate(*pair)
            if is_whole:
                gate.set()
            else:
                gate.clear()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
