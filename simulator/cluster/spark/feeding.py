"""Consumers at all nodes of a simulated cluster that live on one mirrored queue.

Each takes a few messages at a time, acks them one by one at its own pace, and asks the queue's node
something now and then, so that the history knows which acks have taken effect. One that has lost
its channel comes back to its node as soon as that takes connections.
"""

from __future__ import annotations

from typing import Final

from simulator.cluster.clients import Consumer, Publisher
from simulator.cluster.world import World

STEP_MS: Final = 100
_PREFETCH: Final = 2
# The chance of a consumer to ack a message in a step, and to ask for an answer.
_ACK_SHARE: Final = 0.24
_ASK_SHARE: Final = 0.12
# Pause of a consumer that was refused (ms).
_PAUSE_MS: Final = 500
_SIZE: Final = 20


class Feeding:
    """The consumers of `queue`, one at each node of `world`; `name`: what they are called."""

    def __init__(self, world: World, queue: bytes, name: str) -> None:
        self._world = world
        self._name = name
        self._queue = queue
        self._consumers: dict[str, Consumer] = {}
        # When each consumer may come again, by node.
        self._again_ms: dict[str, int] = {}
        self._count = 0

    def publish(self, node: str, count: int) -> None:
        """Publish messages through a node, which all get their confirms later."""
        world = self._world
        client = Publisher(
            world.members[node], world.recording, f"{self._name} source{self._count}"
        )
        self._count += 1
        world.clients.append(client)
        world.pump()
        for _ in range(count):
            client.publish(b"", self._queue, _SIZE, True, False)

    def run(self, ms: int, is_quiet: bool = False) -> None:
        """Let the consumers work for a time, or let it pass while they are quiet."""
        for _ in range(ms // STEP_MS):
            for name in self._world.names:
                if not is_quiet:
                    self._step(name)
            self._world.pump()
            # While the consumers are quiet, shorter steps let the nodes alone decide who is first.
            self._world.advance(STEP_MS, STEP_MS // 2 if is_quiet else STEP_MS)

    def end(self) -> None:
        """Let all consumers leave."""
        for client in self._consumers.values():
            if not client.is_lost:
                client.on_lost()

    def _step(self, name: str) -> None:
        world = self._world
        member = world.members.get(name)
        if member is None or member.is_frozen:
            return
        client = self._consumers.get(name)
        if client is None or client.is_lost or client.member is not member:
            if world.now_ms >= self._again_ms.get(name, 0):
                self._again_ms[name] = world.now_ms + _PAUSE_MS
                self._connect(name)
            return
        rng = world.rng
        if not client.queue:
            if not client.is_busy:
                client.consume(self._queue, _PREFETCH)
        elif client.is_doubtful:
            if not client.is_busy:
                client.cancel()
        elif client.unacked and rng.random() < _ACK_SHARE:
            client.settle(0, True, False)
        elif not client.is_busy and rng.random() < _ASK_SHARE:
            client.sync()

    def _connect(self, name: str) -> None:
        world = self._world
        self._count += 1
        client = Consumer(world.members[name], world.recording, f"{self._name}{self._count}")
        self._consumers[name] = client
        world.clients.append(client)
        world.pump()
