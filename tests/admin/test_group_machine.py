"""Exactly once, as a state machine: a driver as Spark's, on a node that both crash whenever they like.

The driver knows what Spark's checkpoint knows: offsets that were planned, batches that were committed; the sink remembers
what each batch number wrote first, as an idempotent sink does. The node loses what was not synced, commits fail,
consumers take messages and give them back, a zombie of an older epoch interferes. Whatever happens: a batch read again
is the same, and in the end the sink has each confirmed message exactly once, those consumers acked apart. The queue may
be lazy, or be told to give up its memory, so what a group wants is on disk as often as not.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.blocks import read_block
from tests.support.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.one_queue_group import OneQueue, end_of, open_one
from warren.admin.protocol import (
    ErrorReply,
    Fetch,
    Fetched,
    PlanRange,
    RangePlan,
)
from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.queues.reader_group import FENCED
from warren.queues.variable_queue import INFINITE

SLICE = 4


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = MemoryNode(MemoryDisk())
        self.node.declare(b"q")
        # Bodies by fate. Confirmed: must arrive. Maybe: synced or not, nobody was told.
        self.next_body = 0
        self.unconfirmed: list[bytes] = []
        self.confirmed: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.out: list[Entry] = []
        self.bodies_out: dict[int, bytes] = {}
        # Spark's checkpoint: ends of the batches planned (offsets), number of batches done (commits).
        self.initial: int | None = None
        self.offsets: list[int] = []
        self.commits = 0
        self.sink: list[list[bytes]] = []
        self.seen: dict[tuple[int, int], list[bytes]] = {}
        self.zombies: list[OneQueue] = []
        self.group: OneQueue | None = None
        self.connect()

    def connect(self) -> None:
        self.client = MemoryClient(self.node)
        # There are no channels here; the consumer's messages are in `out`.
        setattr(self.node.groups, "first_unacked_seq", self.first_unacked)  # noqa: B010 - mypy takes no assignment
        self.node.vhost.held_entries[1:] = [self.out_between]

    def first_unacked(self, queue: Queue, from_seq: int) -> int:
        return min((entry.seq for entry in self.out if entry.seq >= from_seq), default=-1)

    def out_between(self, queue: Queue, first: int, end: int) -> list[Entry]:
        return [entry for entry in self.out if first <= entry.seq < end]

    @property
    def queue(self) -> Queue:
        return self.node.vhost.queues[b"q"]

    # -- publishers and consumers ------------------------------------------------------------------------------

    @rule(count=st.integers(1, 6), persistent=st.booleans(), size=st.sampled_from([1, 1, 5000]))
    def publish(self, count: int, persistent: bool, size: int) -> None:
        for _ in range(count):
            body = (b"%d" % self.next_body).ljust(size, b".")
            self.next_body += 1
            self.node.publish(b"q", body, persistent)
            if persistent:
                self.unconfirmed.append(body)

    @rule(is_lazy=st.booleans(), most=st.sampled_from([0, 3, int(INFINITE)]))
    def page(self, is_lazy: bool, most: int) -> None:
        """Memory is short, or plentiful again."""
        self.queue.set_mode(is_lazy)
        self.queue.set_target(most)
        self.node.clock.time_ms += 2000
        self.node.work()

    @rule()
    def sync(self) -> None:
        self.node.commit()
        self.confirmed.update(self.unconfirmed)
        self.unconfirmed.clear()

    @rule(is_torn=st.booleans())
    def failing_sync(self, is_torn: bool) -> None:
        self.node.commit(ok=False, is_torn=is_torn)
        # Nacked; they stay in memory.
        self.unconfirmed.clear()

    @rule()
    def consumer_gets(self) -> None:
        entry = self.queue.get(False, self.node.clock.now_ms())
        if entry is None and self.queue.ready_count > 0:
            self.queue.when_head(lambda now_ms: None)
            self.node.work()
            entry = self.queue.get(False, self.node.clock.now_ms())
        if entry is not None:
            self.out.append(entry)
            # It may leave memory while it is out.
            self.bodies_out[int(entry.seq)] = entry.message.body

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def consumer_acks(self, data: st.DataObject) -> None:
        entry = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.consumed.add(self.bodies_out[int(entry.seq)])
        self.queue.settle(entry, self.node.clock.now_ms())
        self.node.commit()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def consumer_requeues(self, data: st.DataObject) -> None:
        entry = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.queue.requeue([entry], self.node.clock.now_ms())

    # -- the driver ----------------------------------------------------------------------------------------------

    def open(self) -> OneQueue:
        if self.group is None:
            self.group = open_one(self.client)
            self.run_again()
        return self.group

    def run_again(self) -> None:
        """What Spark does first after a start: the batch that was planned and not committed."""
        assert self.group is not None
        if self.commits == 0:
            if self.initial is not None and self.offsets:
                assert self.group.acked == self.initial, "the start of batch 0 moved"
            self.initial = self.group.acked
        if len(self.offsets) > self.commits:
            self.run_batch()

    def start_of(self, batch: int) -> int:
        assert self.initial is not None
        return self.offsets[batch - 1] if batch > 0 else self.initial

    @rule(
        max_messages=st.integers(1, 9),
        answer_is_lost=st.booleans(),
        commit_ok=st.booleans(),
        is_torn=st.booleans(),
    )
    def latest_offset(
        self, max_messages: int, answer_is_lost: bool, commit_ok: bool, is_torn: bool = False
    ) -> None:
        group = self.open()
        if len(self.offsets) > self.commits:
            self.run_batch()
        start = self.start_of(len(self.offsets))
        request = group.reserve(start, max_messages)
        reply = self.client.ask(request, commit_ok, is_torn)
        if isinstance(reply, ErrorReply):
            assert not commit_ok, reply
            # The same failure nacked what was published.
            self.unconfirmed.clear()
            return
        end = end_of(reply)
        if end > start and not answer_is_lost:
            self.offsets.append(end)

    @rule()
    def fetch_batch(self) -> None:
        self.open()
        if len(self.offsets) > self.commits:
            self.read_batch()

    @rule(sink_is_reached=st.booleans(), commit_is_reached=st.booleans())
    def run(self, sink_is_reached: bool, commit_is_reached: bool) -> None:
        self.open()
        if len(self.offsets) > self.commits:
            self.run_batch(sink_is_reached, commit_is_reached)

    @rule(data=st.data())
    def commit_late_or_twice(self, data: st.DataObject) -> None:
        group = self.open()
        if self.commits:
            end = self.offsets[data.draw(st.integers(0, self.commits - 1))]
            self.client.must(group.ack(end))

    @rule()
    def driver_crashes(self) -> None:
        if self.group is not None:
            self.zombies.append(self.group)
        self.group = None
        self.client.session.connection_lost()
        self.connect()

    @precondition(lambda self: self.zombies and self.group)
    @rule()
    def zombie_acks(self) -> None:
        zombie = self.zombies[-1]
        assert self.client.refused(zombie.ack(1 << 62)) == FENCED

    @rule()
    def node_crashes(self) -> None:
        self.node = self.node.crash()
        self.unconfirmed.clear()
        self.out.clear()
        self.connect()

    def read_batch(self) -> list[bytes]:
        group = self.open()
        start, end = self.start_of(self.commits), self.offsets[self.commits]
        plan = self.client.must(PlanRange("g", group.epoch, group.incarnation, start, end, SLICE))
        assert isinstance(plan, RangePlan)
        bodies: list[bytes] = []
        for part in plan.slices:
            at = part.start
            while at < part.end:
                reply = self.client.must(Fetch("g", group.epoch, group.incarnation, at, part.end, 3, 12000))
                assert isinstance(reply, Fetched)
                bodies += [message.body or b"" for message in read_block(reply.block)]
                at = reply.next
        assert self.seen.setdefault((start, end), bodies) == bodies, "a range changed between two reads"
        return bodies

    def run_batch(self, sink_is_reached: bool = True, commit_is_reached: bool = True) -> None:
        bodies = self.read_batch()
        if not sink_is_reached:
            return
        if len(self.sink) == self.commits:
            self.sink.append(bodies)
        if commit_is_reached:
            self.commits += 1

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def groups_are_sound(self) -> None:
        for group in self.node.groups.reader_groups.by_name.values():
            group.check()

    def teardown(self) -> None:
        """Consumers go away, everything left is read: each confirmed message arrived once."""
        for entry in self.out:
            self.queue.requeue([entry], self.node.clock.now_ms())
        self.out.clear()
        self.node = self.node.crash()
        self.connect()
        self.group = None
        while True:
            before = len(self.offsets), self.commits
            self.latest_offset(5, False, True)
            if (len(self.offsets), self.commits) == before:
                break
        self.run(True, True)
        arrived = [body for batch in self.sink for body in batch]
        assert len(arrived) == len(set(arrived)), "a message arrived twice"
        assert self.confirmed - set(arrived) - self.consumed == set(), "a confirmed message is lost"
        assert self.queue.ready_count == 0


GroupMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroupMachine = GroupMachine.TestCase
