"""Every message of a sink exists once, wherever the node is killed.

The subjects are broker/vhost/sinks/staging.py and store/journal/moves.py.
"""

from random import Random

import pytest

from simulator.simulated.file_system import KILL, ORDERED, POWER, Crash
from tests.support.brokers.memory_node import USER, MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.staged import PERSISTENT, bodies, stage, staged_message
from warrenmq.admin.protocol.sinks import BatchCommitted, CommitBatch
from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.properties import Properties

BATCHES = 2
TO_BOTH = Properties(
    headers=encode_table(fields_from_python({"CC": ["r"]})), delivery_mode=2
).encode()
# Small and large bodies.
BODIES = [b"%d:" % number + b"." * (5000 if number % 3 == 0 else 5) for number in range(6)]


def started(disk: MemoryDisk) -> MemoryNode:
    """Start a node on `disk`, and declare its queues when they are missing."""
    node = MemoryNode(disk)
    node.broker.access.users[b"guest"] = PutUser(
        USER.name, USER.password_hash, USER.hashing, ["administrator"]
    )
    for name in (b"q", b"r", b"t"):
        if name not in node.vhost.queues:
            node.declare(name)
    return node


def messages_of(batch: int) -> list[bytes]:
    return [
        staged_message(b"%d:" % batch + body, b"q", properties=PERSISTENT if place % 2 else TO_BOTH)
        for place, body in enumerate(BODIES)
    ]


def placed(batch: int) -> list[bytes]:
    """Messages to stage for the queue t; their addresses lead elsewhere."""
    return [staged_message(b"%d:" % batch + body, b"q", b"gone") for body in BODIES[2:4]]


def expected(queue: bytes) -> list[bytes]:
    if queue == b"t":
        return [b"%d:" % batch + body for batch in range(BATCHES) for body in BODIES[2:4]]
    return [
        b"%d:" % batch + body
        for batch in range(BATCHES)
        for place, body in enumerate(BODIES)
        if queue == b"q" or place % 2 == 0
    ]


def write_all(node: MemoryNode) -> None:
    """Stage and commit all batches again, like a program that does not know its progress."""
    client = MemoryClient(node)
    for batch in range(BATCHES):
        messages = messages_of(batch)
        logs = [
            stage(client, "s", batch, messages[:3]),
            stage(client, "s", batch, placed(batch), b"t"),
        ]
        logs.append(stage(client, "s", batch, messages[3:]))
        assert isinstance(client.must(CommitBatch("s", batch, logs)), BatchCommitted)
    for _ in range(10):
        node.work()
        node.commit()


@pytest.mark.parametrize("rule", [KILL, POWER, ORDERED])
@pytest.mark.parametrize("index_early", [False, True])
def test_each_message_once_whatever_call_is_the_last(rule: str, index_early: bool) -> None:
    crashes = 0
    for calls in range(1000):
        disk = MemoryDisk()
        node = started(disk)
        rng = Random(calls)
        disk.files.rng = rng
        disk.files.crash_after = calls
        try:
            write_all(node)
            disk.files.crash_after = -1
            break
        except Crash:
            crashes += 1
        disk.files.crash_after = -1
        disk.files.crash(rng, rule)
        node = started(disk)
        if index_early:
            for queue in node.vhost.queues.values():
                queue.backing.memory.set_target(0)
        write_all(node)
        node = started(disk)
        for name in (b"q", b"r", b"t"):
            found = bodies(node, name)
            assert len(set(found)) == len(found), (calls, "twice")
            assert set(found) == set(expected(name)), (calls, "missing, or not asked for")
            if rule == KILL:
                assert found == expected(name), (calls, "out of order")
        assert node.vhost.staging.stages == {}
    assert crashes > 20
