"""In which order a lone node ends a turn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.node_thread import NodeThread


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[NodeThread]:
    thread = NodeThread(tmp_path)
    yield thread
    thread.stop()


def test_answers_leave_before_the_next_batch_is_encoded(thread: NodeThread) -> None:
    (driver,) = thread.node._drivers()
    unwritten: list[int] = []
    end_turn = driver.end_turn

    def watched(now_ms: int) -> bool:
        unwritten.append(len(thread.node.broker.dirty_connections))
        return end_turn(now_ms)

    watching: Any = driver
    watching.end_turn = watched
    channel = thread.peer().open().channel()
    queue = channel.declare(b"q", durable=True).queue
    for count in (1, 2):
        channel.publish(queue, b"x", PERSISTENT)
        assert channel.count(queue) == count
    channel.peer.drop()
    assert len(unwritten) > 4 and not any(unwritten)
