"""A network of TCP relays on the loopback: every connection between two parties goes through one.

A relay knows who connects to it, because it serves one client; a relay that serves all looks the
process up that owns the other end. What an isolated party sends or would receive waits in the
relay, and so do its new connections. The relays of a party that has ended refuse connections, as
its machine would. They run in a thread of the demo.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from typing import Any

import psutil

from demo.cluster.networks import HOST, Network, held_port, text_of

_CHUNK_BYTES = 1 << 16


class RelayNetwork(Network):
    """See the module."""

    means = "relays"

    def __init__(self) -> None:
        # Set while the party is not isolated.
        self._gates: dict[str, asyncio.Event] = {}
        self._processes: dict[str, int] = {}
        self._listening: dict[tuple[str, str], str] = {}
        # The ports of relays by (client, server, service), and those that accept connections.
        self._reached: dict[tuple[str, str, str], int] = {}
        self._servers: dict[tuple[str, str, str], asyncio.Server] = {}
        self._holders: list[socket.socket] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def add(self, party: str) -> None:
        self._call(self._set_gate(party, is_open=True))

    def listen(self, party: str, service: str) -> str:
        key = (party, service)
        if key not in self._listening:
            self._listening[key] = text_of((HOST, self._port()))
        return self._listening[key]

    def reach(self, client: str, server: str, service: str) -> str:
        key = (client, server, service)
        if key not in self._reached:
            self.listen(server, service)
            self._reached[key] = self._port()
            self._call(self._open(key))
        return text_of((HOST, self._reached[key]))

    def prefix(self, party: str) -> list[str]:
        return []

    def follow(self, party: str, pid: int | None) -> None:
        if pid is not None:
            self._processes[party] = pid
            return
        self._processes.pop(party, None)
        for key in self._reached:
            if key[1] == party:
                self._call(self._shut(key))

    def open(self, party: str) -> None:
        for key in self._reached:
            if key[1] == party:
                self._call(self._open(key))

    def isolate(self, party: str) -> None:
        self._call(self._set_gate(party, is_open=False))

    def heal(self) -> None:
        for party in self._gates:
            self._call(self._set_gate(party, is_open=True))

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for holder in self._holders:
            holder.close()

    def _port(self) -> int:
        port, holder = held_port()
        self._holders.append(holder)
        return port

    # -- in the relays' thread ---------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _set_gate(self, party: str, is_open: bool) -> None:
        gate = self._gates.setdefault(party, asyncio.Event())
        if is_open:
            gate.set()
        else:
            gate.clear()

    async def _open(self, key: tuple[str, str, str]) -> None:
        """Accept connections; does nothing if the relay does already."""
        client, server, service = key

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            target = self._listening[server, service]
            task = asyncio.create_task(self._serve(client, server, target, reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        if key not in self._servers:
            self._servers[key] = await asyncio.start_server(accept, HOST, self._reached[key])

    async def _shut(self, key: tuple[str, str, str]) -> None:
        relay = self._servers.pop(key, None)
        if relay is not None:
            relay.close()

    async def _serve(
        self,
        client: str,
        server: str,
        target: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        parties = [client or self._owner(writer.get_extra_info("peername")[1]), server]
        gates = [self._gates[party] for party in parties if party in self._gates]
        writers = [writer]
        try:
            for gate in gates:
                await gate.wait()
            host, _, port = target.rpartition(":")
            other_reader, other_writer = await asyncio.open_connection(host, int(port))
            writers.append(other_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_on(reader, other_writer, gates))
                tasks.create_task(_pass_on(other_reader, writer, gates))
        except* OSError:
            for each in writers:
                each.transport.abort()
        finally:
            for each in writers:
                each.close()

    def _owner(self, port: int) -> str:
        """The party whose process has a connection from the local `port`; "" if nobody has."""
        for party, pid in list(self._processes.items()):
            with contextlib.suppress(psutil.Error):
                for connection in psutil.Process(pid).net_connections("tcp"):
                    if connection.laddr.port == port:
                        return party
        return ""

    async def _end(self) -> None:
        for key in list(self._servers):
            await self._shut(key)
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gates: list[asyncio.Event]
) -> None:
    """Pass all bytes and the end on, while all gates are open."""
    while True:
        data = await reader.read(_CHUNK_BYTES)
        for gate in gates:
            await gate.wait()
        if not data:
            writer.write_eof()
            return
        writer.write(data)
        await writer.drain()
