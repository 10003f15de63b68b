"""Tests exactly-once streaming with a state machine, on a node in memory.

Its rules are the things that Spark, the broker and people may do to a stream, in any order.
"""

import pytest

pytest.importorskip("pyspark")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.spark.links import URI, MemoryLink
from tests.spark.micro_batches import PLACES, Checkpoint, Query, drain
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.spark import batch_reader
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.streams import group_session
from warrenmq.spark.streams.reader import WarrenStreamReader

QUEUES = st.sampled_from(["a", "b", "c", "d"])


class StreamMachine(RuleBasedStateMachine):
    """One stream of all queues named a to z.

    Queues are declared and deleted, batches are cut short, processes and the node are killed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node = MemoryNode(MemoryDisk())
        self.link = MemoryLink(self.node)
        self.patch = pytest.MonkeyPatch()
        for module in (group_session, batch_reader):
            self.patch.setattr(module, "link_to", lambda *arguments: self.link)
        self.checkpoint = Checkpoint()
        self.published: dict[bytes, str] = {}
        # Bodies of transient messages: a crash of the node may lose those that no batch has.
        self.transient: set[bytes] = set()
        # Bodies that were in a queue when it was purged or deleted; they may be missing.
        self.doubtful: set[bytes] = set()
        self.query: Query | None = None

    def teardown(self) -> None:
        try:
            drain(self.make, self.checkpoint)
            drain(self.make, self.checkpoint)
            found = [body for _, _, body in self.checkpoint.rows()]
            assert len(found) == len(set(found))
            missing = self.published.keys() - set(found)
            assert missing <= self.doubtful
            for queue in self.node.vhost.queues.values():
                assert queue.ready_count == 0 and queue.unacked_count == 0
        finally:
            self.patch.undo()

    def make(self) -> WarrenStreamReader:
        source = WarrenDataSource(
            options={
                "uri": URI,
                "queuesPattern": "[a-z]",
                "group": "g",
                "longPollMs": "0",
                "retryTimeoutMs": "0",
                "failOnDataLoss": "false",
            }
        )
        reader = source.streamReader(schema=source.schema())
        assert isinstance(reader, WarrenStreamReader)
        return reader

    @initialize(count=st.integers(0, 2))
    def declare_some(self, count: int) -> None:
        """Declare the queues that exist from the start."""
        for name in "ab"[:count]:
            self.node.declare(name.encode())

    @rule(queue=QUEUES, count=st.integers(1, 8), persistent=st.booleans())
    def publish(self, queue: str, count: int, persistent: bool) -> None:
        """Publish to a queue, which is declared first when it does not exist."""
        if queue.encode() not in self.node.vhost.queues:
            self.node.declare(queue.encode())
        for _ in range(count):
            body = b"m%d" % len(self.published)
            self.node.publish(queue.encode(), body, persistent)
            self.published[body] = queue
            if not persistent:
                self.transient.add(body)
        # The commit confirms the messages.
        self.node.commit()

    @rule(dies=st.sampled_from([None, None, None, *PLACES]), commits=st.booleans())
    def batch(self, dies: str | None, commits: bool) -> None:
        """Run a batch in the query's process, or in a new process when it has died."""
        if self.query is None:
            self.query = Query(self.make(), self.checkpoint)
        self.query.run_batch(dies, commits)
        if dies is not None:
            self.query = None

    @rule()
    def available_now(self) -> None:
        """Stop the query, and drain the queues with an availableNow run."""
        self.query = None
        drain(self.make, self.checkpoint)

    @rule()
    def kill_the_node(self) -> None:
        """Crash the node: it may lose transient messages that no batch has, but no persistent ones.

        The query's process survives.
        """
        read = {body for _, _, body in self.checkpoint.rows()}
        self.doubtful |= self.transient - read
        self.node = self.node.crash()
        self.link.use(self.node)

    @rule(queue=QUEUES)
    def purge(self, queue: str) -> None:
        """Purge a queue; messages that a batch has reserved stay."""
        target = self.node.vhost.queues.get(queue.encode())
        if target is not None:
            self.doubt(queue)
            target.purge(self.node.clock.now_ms())
            self.node.commit()

    @rule(queue=QUEUES)
    def delete(self, queue: str) -> None:
        """Delete a queue with all its messages."""
        if queue.encode() in self.node.vhost.queues:
            self.checkpoint.gone |= self.doubt(queue)
            self.node.delete(queue.encode())

    def doubt(self, queue: str) -> set[bytes]:
        """Note that all messages that were published to `queue` may be lost."""
        bodies = {body for body, name in self.published.items() if name == queue}
        self.doubtful |= bodies
        return bodies


StreamMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestStream = StreamMachine.TestCase


def test_a_killed_node_keeps_what_the_stream_has_not_read() -> None:
    """Several confirmed messages, a kill, then the first batch: random walks may miss this case."""
    machine = StreamMachine()
    try:
        machine.declare_some(1)
        machine.publish("a", 8, True)
        machine.kill_the_node()
        machine.batch(None, True)
    finally:
        machine.teardown()
