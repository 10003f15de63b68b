"""Thousands of lost messages, or of damaged places, give a few lines in the log (T78)."""

import re

import pytest

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.queue import Queue

LARGE = 5000
COUNT = 300


class LoggedNode:
    """A node in memory, and its log of lost messages and damaged files."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.node = MemoryNode(MemoryDisk())
        self.caplog = caplog
        self._started_ms = self.node.clock.now_ms()

    @property
    def seconds(self) -> int:
        """The seconds that have begun since the start."""
        return 1 + (self.node.clock.now_ms() - self._started_ms) // 1000

    def lines(self, text: str) -> list[str]:
        """Return the log lines that contain `text`."""
        lines = [record.getMessage() for record in self.caplog.records]
        return [line for line in lines if text in line]

    def counted(self, what: str) -> int:
        """Return the sum of the counts before `what` in all log lines."""
        return sum(
            int(count) for line in self.lines(what) for count in re.findall(rf"(\d+) {what}", line)
        )

    def paged(self, name: bytes, size: int) -> Queue:
        """Return a new queue of COUNT messages, all of them on disk."""
        queue = self.node.declare(name)
        self.publish(name, size)
        queue.backing.memory.set_mode(True)
        for _ in range(20):
            self.node.work()
        assert queue.backing.ready.delta.count == COUNT
        return queue

    def publish(self, name: bytes, size: int) -> None:
        for number in range(COUNT):
            self.node.publish(name, b"%0*d" % (size, number))
        self.node.commit()

    def lose_contents(self) -> None:
        files = self.node.disk.files
        for name in files.list_names("msg_store_persistent"):
            files.unlink(f"msg_store_persistent/{name}")
        # Sync the deletion: another program makes it, so it survives a crash of the node.
        files.sync_directory("msg_store_persistent")

    def drain(self, queue: Queue) -> int:
        """Take all messages that can be read; return their number."""
        taken = 0
        while queue.ready_count > 0:
            found: list[int] = []

            def look(now_ms: int, found: list[int] = found) -> None:
                if queue.get(True, now_ms) is not None:
                    found.append(1)
                elif queue.head_state(now_ms) == EMPTY:
                    found.append(0)
                else:
                    queue.when_head(look)

            look(self.node.clock.now_ms())
            for _ in range(5000):
                if found:
                    break
                self.node.work()
                self.node.clock.advance(10)
            taken += found[0]
        return taken


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> LoggedNode:
    return LoggedNode(caplog)


def test_lost_contents_are_one_line_a_second(logged: LoggedNode) -> None:
    node = logged.node
    first, second = logged.paged(b"first", LARGE), logged.paged(b"second", LARGE)
    logged.lose_contents()
    assert logged.drain(first) + logged.drain(second) == 0
    assert 1 <= len(logged.lines("messages are lost")) <= 2 * logged.seconds
    node.clock.advance(1000)
    node.work()
    assert (
        logged.counted("messages are lost") == node.vhost.store.files.losses.lost_count == 2 * COUNT
    )
    for queue in ("first", "second"):
        lines = logged.lines(f"queue '{queue}'")
        assert len(lines) <= logged.seconds
        assert f"vhost '/': queue '{queue}': " in lines[0]
        assert "messages are lost: their contents cannot be read (ids 1 to " in lines[0]
        assert lines[-1].endswith(f" to {COUNT})")
    # Failed reads of a file give at most one line a second.
    assert 1 <= len(logged.lines("0.rdq cannot be read")) <= logged.seconds
    told = len(logged.caplog.records)
    node.clock.advance(10_000)
    node.work()
    assert len(logged.caplog.records) == told


def test_damage_is_one_line_a_second(logged: LoggedNode) -> None:
    node = logged.node
    queue = logged.paged(b"q", 200)
    (name,) = node.disk.files.list_names(f"queues/{queue.id}")
    path = f"queues/{queue.id}/{name}"
    for offset in range(1000, node.disk.files.size(path) - 1000, 1000):
        node.disk.files.flip(path, offset, 1)
    assert 0 < logged.drain(queue) < COUNT
    node.clock.advance(1000)
    node.work()
    store = node.vhost.store
    assert store.files.losses.damaged_count > 40 and store.files.losses.lost_count > 40
    assert logged.counted("damaged stretches") == store.files.losses.damaged_count
    assert (
        logged.counted("messages are lost: their records are damaged")
        == store.files.losses.lost_count
    )
    lines = logged.lines("queue 'q'")
    assert len(lines) <= logged.seconds
    assert f" of {path}; copied to lost+found" in lines[0]


def test_what_a_start_finds_is_one_line_for_a_queue(logged: LoggedNode) -> None:
    for name in (b"first", b"second"):
        logged.node.declare(name)
        logged.publish(name, LARGE)
    logged.lose_contents()
    after = logged.node.crash()
    after.vhost.losses.report_all()
    assert after.vhost.store.files.losses.lost_count == 2 * COUNT
    for queue in ("first", "second"):
        (line,) = logged.lines(f"queue '{queue}'")
        assert line.endswith(
            f"{COUNT} messages are lost: their contents are not there (ids 1 to {COUNT})"
        )


def test_nothing_is_left_untold_when_the_node_stops(logged: LoggedNode) -> None:
    queue = logged.paged(b"q", LARGE)
    logged.lose_contents()
    assert logged.drain(queue) == 0
    logged.node.vhost.losses.report_all()
    assert logged.counted("messages are lost") == COUNT
