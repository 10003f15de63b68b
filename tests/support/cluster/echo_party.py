"""A party that pings others: `echo_party.py HOST PORT ME NAME=HOST:PORT...`.

It answers pings at its own address, and sends pings to each peer all the time, over one connection
that it opens again when it breaks: `pong NAME` for an answer, `lost NAME` for a broken connection,
`heard NAME` for a ping of somebody else.
"""

import asyncio
import os
import sys

_PAUSE_S = 0.005
_CONNECT_TIMEOUT_S = 1.0


def say(line: str) -> None:
    """One event, whole, at once."""
    os.write(1, f"{line}\n".encode())


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say and send back each line of a peer."""
    try:
        while line := await reader.readline():
            say(f"heard {line.decode().strip()}")
            writer.write(line)
    except OSError:
        pass
    writer.close()


async def ping(me: str, name: str, host: str, port: int) -> None:
    """Send a ping after the other, without waiting for the answers."""
    while True:
        try:
            opening = asyncio.open_connection(host, port)
            reader, writer = await asyncio.wait_for(opening, _CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)
            continue
        reading = asyncio.create_task(hear(reader, name))
        try:
            while not reading.done():
                writer.write(f"{me}\n".encode())
                await asyncio.sleep(_PAUSE_S)
        except OSError:
            pass
        await reading
        say(f"lost {name}")
        writer.close()


async def hear(reader: asyncio.StreamReader, name: str) -> None:
    """Say each answer, until the connection ends."""
    try:
        while await reader.readline():
            say(f"pong {name}")
    except OSError:
        pass


async def main(host: str, port: int, me: str, peers: list[str]) -> None:
    """Answer and ping for ever."""
    server = await asyncio.start_server(answer, host, port)
    say("ready")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve_forever())
        for peer in peers:
            name, _, address = peer.partition("=")
            peer_host, _, peer_port = address.rpartition(":")
            tasks.create_task(ping(me, name, peer_host, int(peer_port)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
