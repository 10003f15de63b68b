"""A node that has nothing but links, on real sockets; as a program, it sends back what it gets.

    python socket_node.py JSON

The argument has `name`, `incarnation`, `port`, and `peers` by name. The program prints its port
when it listens, and runs until it is killed.
"""

import asyncio
import json
import secrets
import sys
import time

import uvloop
from msgspec.structs import replace
from mypy_extensions import i64

from tests.cluster.links.pairs import SECRET, Recorder, identity
from warrenmq.cluster.links.frames import DATA
from warrenmq.cluster.links.handshake import Identity
from warrenmq.cluster.links.link import Link
from warrenmq.cluster.links.link_secrets import LinkSecrets
from warrenmq.cluster.links.links import Address, Links
from warrenmq.cluster.links.shell import LinkShell
from warrenmq.cluster.links.tls import LinkTls

HOST = "127.0.0.1"
KINDS = 18


class SocketNode:
    """The turns of a node, without anything else."""

    def __init__(
        self,
        own: Identity,
        secret: bytes = SECRET,
        tls: LinkTls | None = None,
        handler: Recorder | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.name = own.node_name
        self.handler = handler or Recorder()
        self.links = Links(own, LinkSecrets(0, secret), self.handler, secrets.token_bytes)
        self.shell = LinkShell(
            self.loop,
            self.links,
            self.now_ms,
            self.schedule_turn,
            memoryview(bytearray(262144)),
            tls,
        )
        self.address: Address = (HOST, 0)
        self._is_turn_scheduled = False

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def start(self, port: int = 0) -> None:
        self.address = self.shell.start(HOST, port)

    def meet(self, *others: "SocketNode") -> None:
        """Make `others` the other nodes of the cluster."""
        self.links.set_peers({other.name: other.address for other in others}, self.now_ms())

    def schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_scheduled = False
        self.shell.write_out()


class Echo(Recorder):
    """Sends each frame back; a frame of KINDS with the kinds of all frames so far, as bytes."""

    def on_frame(self, link: Link, kind: i64, payload: bytes) -> None:
        super().on_frame(link, kind, b"")
        kinds = bytes([each for each, _ in self.frames])
        link.send(DATA, kind, kinds if kind == KINDS else payload)


async def main(name: str, incarnation: int, port: int, peers: dict[str, Address]) -> None:
    node = SocketNode(replace(identity(name), incarnation=incarnation), handler=Echo())
    node.links.set_peers({name: (host, port) for name, (host, port) in peers.items()}, 0)
    node.start(port)
    print(node.address[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(**json.loads(sys.argv[1])))
