"""When a node seals the next batch: at once, or after it has read its sockets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.node_thread import NodeThread
from warrenmq.store.disk.flusher import FlushJob
from warrenmq.store.journal.batch import Batch


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[NodeThread]:
    thread = NodeThread(tmp_path)
    yield thread
    thread.stop()


def test_sockets_are_read_before_the_next_seal_while_consumers_keep_up(thread: NodeThread) -> None:
    """Consumers acked some of the batch before its seal. If they did not, the turn ends at once."""
    node: Any = thread.node
    (driver,) = node._drivers()
    ended: list[int] = []
    scheduled: list[int] = []

    def finish(settled_count: int) -> None:
        batch = Batch(1)
        batch.settled_count = settled_count
        node._on_flushed(FlushJob(driver.vhost.journal, batch, driver._flusher, lambda _: None))

    def check() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(driver, "on_flushed", lambda job, now_ms: None)
            patched.setattr(node, "_end_turn", lambda: ended.append(1))
            patched.setattr(node, "schedule_turn", lambda: scheduled.append(1))
            patched.setattr(node, "_is_turn_scheduled", False)
            finish(0)
            assert (len(ended), len(scheduled)) == (1, 0)
            finish(1)
            assert (len(ended), len(scheduled)) == (1, 1)

    thread.call(check)
    assert (ended, scheduled) == ([1], [1])
