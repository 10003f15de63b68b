"""Ends a node: gives away everything in its queues, then checks that nothing is left."""

from __future__ import annotations

from typing import Final

from simulator.models.messages import Violation, number_of
from simulator.models.oracle import Oracle
from simulator.simulated.client import SimulatedClient, method_frame
from simulator.simulated.node import SimulatedNode
from warrenmq.queues.queue import Queue
from warrenmq.wire.method import Method
from warrenmq.wire.methods import BasicConsume, BasicDeliver

# Checkpoints until an empty broker is clean: each releases files that the one before it needed.
REST_ROUNDS: Final = 4
# Patience with a node that tries a write or a read again: rounds, and the time (ms) of each.
_RETRY_ROUNDS: Final = 8
_RETRY_MS: Final = 250


def drain_queues(node: SimulatedNode, oracle: Oracle) -> dict[int, list[int]]:
    """Consume every queue until it is empty; message numbers by queue id, in delivery order.

    The time of the node moves on while it waits to try something again.
    """
    found: dict[int, list[int]] = {}
    queues: list[Queue] = list(node.vhost.queues.values())

    def receive(_channel: int, method: Method, properties: bytes, body: bytes) -> None:
        if not isinstance(method, BasicDeliver):
            return
        number = number_of(body)
        content = oracle.contents.get(number)
        if content is None or content.body != body or content.properties != properties:
            raise Violation(
                "corrupt", f"{body[:16]!r}... came after a restart, which nobody published"
            )
        if (
            not method.redelivered
            and not oracle.is_damaged
            and any(
                number in queue.copies and queue.copies[number].was_delivered
                for queue in oracle.queues.values()
                if str(queue.id).encode() == method.consumer_tag
            )
        ):
            raise Violation(
                "redelivered", f"message {number} came after a restart without the redelivered flag"
            )
        found[int(method.consumer_tag)].append(number)

    client = SimulatedClient(node.broker, receive, node.now_ms)
    client.open_channel(1, node.now_ms)
    for queue in queues:
        found[queue.id] = []
        tag = str(queue.id).encode()
        consume = BasicConsume(queue.name, tag, False, True, False, True, b"")
        client.send(method_frame(1, consume), node.now_ms)
    node.drain()
    for _ in range(_RETRY_ROUNDS):
        if node.has_more and any(queue.ready_count for queue in queues):
            # The store waits before it tries a failed write or read again.
            node.now_ms += _RETRY_MS
            node.drain()
    for queue in queues:
        if queue.ready_count:
            raise Violation(
                "starved", f"queue {queue.name.decode()} keeps {queue.ready_count} messages"
            )
    client.engine.shell = None
    node.broker.disconnect(client.engine, node.now_ms)
    return found


def check_rest(node: SimulatedNode) -> None:
    """Violation unless a drained node has an empty store with correct accounts (T34)."""
    for _ in range(REST_ROUNDS):
        node.now_ms += 3000
        node.tick()
        node.drain()
    store = node.store
    definitions = node.disk.metadata.load()
    if definitions.stages or definitions.sinks:
        raise Violation(
            "leak", f"{len(definitions.stages)} stages are still defined in an empty broker"
        )
    if node.journal.live_bytes() != 0:
        raise Violation(
            "leak",
            f"{node.journal.live_bytes()} bytes of the journal count as live in an empty broker",
        )
    for contents in (store.contents.persistent, store.contents.transient):
        contents.check()
        if contents.valid_bytes != 0:
            raise Violation(
                "leak",
                f"{contents.valid_bytes} bytes of {contents.directory_name} count as live in an empty broker",
            )
        # A failed batch may leave a reference on disk without its content.
        is_lacking = node.failed_commits > 0 or store.files.losses.lost_count > 0
        if contents.unknown_releases != 0 and not is_lacking:
            raise Violation(
                "accounts", f"a reference in {contents.directory_name} was given up twice"
            )
    known = node.file_sizes()
    for path, file in node.disk.files.files():
        name = path.removeprefix("/")
        size = known.pop(name, -1)
        if size < 0 and not name.startswith(("lost+found/", "checkpoint", "store_id")):
            raise Violation("stale" if name.endswith(".idx") else "leak", f"{name} is nobody's")
        if file.size < size:
            raise Violation("accounts", f"{name} has {file.size} bytes and should have {size}")
    if any(known.values()):
        raise Violation("accounts", f"{sorted(known)} should be there")
