"""`warren sink` lists, shows and deletes sinks, and reports refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.node_thread import NodeThread
from tests.support.brokers.staged import staged_message
from tests.support.command_line import warren, warren_json
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    FinishStage,
    OpenStage,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with a queue `q`: sink `a` has published batch 4, sink `b` has two staged messages."""
    node = NodeThread(tmp_path)
    channel = node.peer().open().channel()
    channel.declare(b"q", durable=True)
    with AdminClient(NodeAddress(f"amqp://localhost:{node.port}")) as client:
        for sink, batch in (("a", 4), ("b", 0)):
            stage = client.request(OpenStage(sink, batch), StageOpened).stage
            client.request(StageMessages(stage, memoryview(staged_message(b"x") * 2)), Staged)
            client.request(FinishStage(stage, 2), StageFinished)
            if sink == "a":
                client.request(CommitBatch(sink, batch, [stage], wait_ms=10_000), BatchCommitted)
    yield node
    node.stop()


def test_sinks(node: NodeThread) -> None:
    a = {
        "sink": "a",
        "batch": 4,
        "is_busy": False,
        "messages_left": 0,
        "stages": 0,
        "staged_messages": 0,
        "node": "",
        "nodes": [],
    }
    b = a | {"sink": "b", "batch": None, "stages": 1, "staged_messages": 2}
    assert warren_json("sink", "list", "--port", node.port) == {"vhost": "/", "sinks": [a, b]}
    assert warren_json("sink", "show", "b", "--port", node.port) == b
    lines = warren("sink", "list", "--port", node.port).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["sink", "state", "batch", "left", "logs", "staged", "moved", "by", "nodes"],
        ["a", "idle", "4", "0", "0", "0", "-", "-"],
        ["b", "idle", "none", "0", "1", "2", "-", "-"],
    ]
    shown = warren("sink", "show", "a", "--port", node.port).stdout.splitlines()
    assert shown[0] == "a: idle; last batch 4, 0 messages of it to be published"
    assert warren("sink", "delete", "b", "--port", node.port).stdout == "b is deleted\n"
    assert warren_json("sink", "list", "--port", node.port)["sinks"] == [a]


def test_refusals(node: NodeThread) -> None:
    for name in ("nobody", "not/a/name"):
        done = warren("sink", "show", name, "--port", node.port)
        assert done.returncode == 2
        assert done.stderr.startswith("warren: ")
