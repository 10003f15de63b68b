"""Exactly once, as a state machine: a driver like Spark's and a node, which crash at any moment.

The driver knows only the content of Spark's checkpoint: planned offsets and committed batches. The
sink keeps the first content of each batch number, as an idempotent sink does. The node loses
unsynced data, commits fail, consumers take and requeue messages, and a zombie of an older epoch
interferes. Queues, named or found by a pattern, are declared and deleted; only unread messages of a
deleted queue are lost. Invariants: a batch that is read again is the same; in the end the sink has
each confirmed message exactly once, except those that consumers acked. A queue may be lazy or
paged, so the messages that a group reads are often on disk. Unconfirmed messages that were paged
out before the queue had a reader group do not outlive a crash, and leave a batch that it follows.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.spark.blocks import read_block
from warrenmq.admin.protocol.requests import (
    Ack,
    Acked,
    ErrorReply,
    Fetch,
    Fetched,
    GroupOpened,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
)
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import QueueLedger
from warrenmq.vocabulary.error_codes import DATA_LOSS, FENCED, STORAGE_FAILED

SLICE = 4
NAMES = (b"qa", b"qb", b"qc")
MANY = 1 << 40
# Positions by incarnation, as in a checkpoint.
Offset = dict[int, int]


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = MemoryNode(MemoryDisk())
        self.pattern = ""
        for name in NAMES[:2]:
            self.node.declare(name)
        # Queues outside of the group.
        self.node.declare(b"other")
        self.node.declare(b"q-transient", durable=False)
        # Number of the next body; each body is unique.
        self.next_body = 0
        # Persistent bodies without a confirm: they may or may not be on disk.
        self.unconfirmed: list[bytes] = []
        # Bodies that must arrive.
        self.confirmed: set[bytes] = set()
        # Bodies that a consumer acked.
        self.consumed: set[bytes] = set()
        # Bodies that were purged or deleted with their queue.
        self.lost: set[bytes] = set()
        self.has_lost_queue = False
        # Bodies that came when their queue had no reader group. Unless confirmed, they may be gone
        # after a crash.
        self.early: set[bytes] = set()
        self.may_be_gone: set[bytes] = set()
        # Bodies published to each queue, by incarnation and seq id.
        self.published: dict[int, dict[int, bytes]] = {}
        self.out: list[Entry] = []
        self.bodies_out: dict[tuple[int, int], bytes] = {}
        # Spark's checkpoint: start of batch 0, ends of the planned batches (offsets), and the
        # number of finished batches (commits).
        self.initial: Offset = {}
        self.offsets: list[Offset] = []
        self.commits = 0
        self.sink: list[list[bytes]] = []
        self.seen: dict[tuple[int, int, int], list[bytes]] = {}
        self.zombies: list[GroupOpened] = []
        self.group: GroupOpened | None = None
        # Incarnations of the group that the driver knows from replies.
        self.known: set[int] = set()
        self.connect()

    @initialize(pattern=st.sampled_from(["", "q.*"]))
    def choose(self, pattern: str) -> None:
        self.pattern = pattern

    def connect(self) -> None:
        self.client = MemoryClient(self.node)
        # The node has no channels; `out` holds the consumers' unacked messages.
        finders = self.node.vhost.host.unacked_finders
        if self.out_between not in finders:
            finders.append(self.out_between)

    def out_between(self, ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        return [entry for entry in self.out if entry.ledger is ledger and first <= entry.seq < end]

    @property
    def queues(self) -> list[Queue]:
        known = self.node.vhost.queues
        return [known[name] for name in NAMES if name in known]

    def any_queue(self, data: st.DataObject) -> Queue:
        return data.draw(st.sampled_from(self.queues))

    # -- publishers, consumers, and whoever manages queues -----------------------------------------

    @precondition(lambda self: self.queues)
    @rule(
        data=st.data(),
        count=st.integers(1, 6),
        persistent=st.booleans(),
        size=st.sampled_from([1, 1, 5000]),
    )
    def publish(self, data: st.DataObject, count: int, persistent: bool, size: int) -> None:
        queue = self.any_queue(data)
        for _ in range(count):
            body = (b"%d" % self.next_body).ljust(size, b".")
            self.next_body += 1
            seq = self.node.publish(queue.name, body, persistent)
            self.published.setdefault(queue.id, {})[seq] = body
            if not queue.backing.journals_transient:
                self.early.add(body)
            if persistent:
                self.unconfirmed.append(body)

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), is_lazy=st.booleans(), most=st.sampled_from([0, 3, int(UNLIMITED)]))
    def page(self, data: st.DataObject, is_lazy: bool, most: int) -> None:
        """Set the mode and the memory target of a queue, and let it page."""
        queue = self.any_queue(data)
        queue.backing.memory.set_mode(is_lazy)
        queue.backing.memory.set_target(most)
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
        # The messages are nacked; the queue keeps them in memory.
        self.unconfirmed.clear()

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def consumer_gets(self, data: st.DataObject) -> None:
        queue = self.any_queue(data)
        entry = queue.get(False, self.node.clock.now_ms())
        if entry is None and queue.ready_count > 0:
            queue.when_head(lambda now_ms: None)
            self.node.work()
            entry = queue.get(False, self.node.clock.now_ms())
        if entry is not None:
            self.out.append(entry)
            # The body may leave memory while the message is unacked.
            self.bodies_out[int(queue.id), int(entry.seq)] = entry.message.body

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def consumer_acks(self, data: st.DataObject) -> None:
        entry = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.consumed.add(self.bodies_out[int(entry.ledger.queue_id), int(entry.seq)])
        entry.queue.leave(entry, ACKED, self.node.clock.now_ms())
        self.node.commit()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def consumer_requeues(self, data: st.DataObject) -> None:
        entry = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        entry.queue.requeue([entry], self.node.clock.now_ms())

    @precondition(lambda self: len(self.queues) < len(NAMES))
    @rule(data=st.data())
    def queue_comes(self, data: st.DataObject) -> None:
        known = [queue.name for queue in self.queues]
        self.node.declare(data.draw(st.sampled_from([name for name in NAMES if name not in known])))

    @precondition(lambda self: len(self.queues) > 1)
    @rule(data=st.data())
    def queue_goes(self, data: st.DataObject) -> None:
        queue = self.any_queue(data)
        self.has_lost_queue = True
        self.lost.update(self.published.get(queue.id, {}).values())
        self.node.delete(queue.name)
        # Consumers may still ack messages of a deleted queue, but cannot requeue them.
        self.out = [entry for entry in self.out if entry.queue is not queue]

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        """A purge removes ready messages; reserved and unacked messages stay."""
        queue = self.any_queue(data)
        held = queue.unacked_count
        groups = self.node.groups.reader_groups
        out = {
            entry.seq
            for entry in self.out_between(queue.ledger, 0, MANY)
            + groups.find_unacked(queue.ledger, 0, MANY)
        }
        published = self.published.get(queue.id, {})
        self.lost.update(body for seq, body in published.items() if seq not in out)
        queue.purge(self.node.clock.now_ms())
        self.node.commit()
        assert (queue.ready_count, queue.unacked_count) == (0, held)

    # -- the driver --------------------------------------------------------------------------------

    def open(self) -> GroupOpened:
        if self.group is None:
            self.group = self.open_again()
            self.run_again()
        return self.group

    def open_again(self) -> GroupOpened:
        """Open the group; when that is refused as data loss, open it again and accept the loss."""
        names = [] if self.pattern else [queue.name for queue in self.queues]
        reply = self.client.ask(OpenGroup("g", names, self.pattern))
        if isinstance(reply, ErrorReply) and reply.code == DATA_LOSS:
            reply = self.client.ask(OpenGroup("g", names, self.pattern, may_rebind=True))
        assert isinstance(reply, GroupOpened), reply
        self.known = {member.incarnation for member in reply.members}
        return reply

    def members(self) -> Offset:
        assert self.group is not None
        return {member.incarnation: member.acked for member in self.group.members}

    def run_again(self) -> None:
        """Run the batch that was planned and not committed, as Spark does after a start."""
        acked = self.members()
        if self.commits == 0:
            if self.offsets:
                for incarnation, position in self.initial.items():
                    assert acked.get(incarnation, position) == position, (
                        "the start of batch 0 moved"
                    )
            self.initial = acked
        if len(self.offsets) > self.commits:
            self.run_batch()

    def start_of(self, batch: int) -> Offset:
        return self.offsets[batch - 1] if batch > 0 else self.initial

    @rule(
        max_messages=st.integers(1, 9),
        min_messages=st.sampled_from([1, 1, 4]),
        answer_is_lost=st.booleans(),
        commit_ok=st.booleans(),
        is_torn=st.booleans(),
    )
    def latest_offset(
        self,
        max_messages: int,
        min_messages: int,
        answer_is_lost: bool,
        commit_ok: bool,
        is_torn: bool = False,
    ) -> None:
        self.open()
        if len(self.offsets) > self.commits:
            self.run_batch()
        reply = self.reserve(max_messages, min_messages, commit_ok, is_torn)
        if isinstance(reply, ErrorReply) and reply.code == DATA_LOSS:
            assert self.has_lost_queue, reply
            self.group = self.open_again()
            reply = self.reserve(max_messages, min_messages, commit_ok, is_torn)
        if isinstance(reply, ErrorReply) and commit_ok:
            # A lazy queue's messages of a failed batch are safe after the next checkpoint, which
            # the refused call has requested.
            assert reply.code == STORAGE_FAILED, reply
            reply = self.reserve(max_messages, min_messages, commit_ok, is_torn)
        if isinstance(reply, ErrorReply):
            assert not commit_ok, reply
            # The failed commit nacked the unconfirmed messages too.
            self.unconfirmed.clear()
            return
        assert isinstance(reply, Reserved)
        assert [part.queue for part in reply.members] == sorted(
            part.queue for part in reply.members
        )
        if any(part.end > part.start for part in reply.members) and not answer_is_lost:
            self.offsets.append({part.incarnation: part.end for part in reply.members})

    def reserve(
        self, most: int, least: int, commit_ok: bool, is_torn: bool
    ) -> Reserved | ErrorReply:
        assert self.group is not None
        start = {
            key: seq for key, seq in self.start_of(len(self.offsets)).items() if key in self.known
        }
        request = Reserve("g", self.group.epoch, start, most, MANY, least, 1000 if least > 1 else 0)
        reply = self.client.ask(request, commit_ok, is_torn)
        assert isinstance(reply, Reserved | ErrorReply)
        if isinstance(reply, Reserved):
            self.known.update(part.incarnation for part in reply.members)
        return reply

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
            ends = self.offsets[data.draw(st.integers(0, self.commits - 1))]
            reply = self.client.ask(Ack("g", group.epoch, ends))
            if isinstance(reply, ErrorReply):
                assert reply.code == DATA_LOSS and self.has_lost_queue, reply
            else:
                assert isinstance(reply, Acked)
                assert all(reply.acked[incarnation] >= end for incarnation, end in ends.items())

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
        ends = {member.incarnation: 1 << 62 for member in zombie.members}
        assert self.client.refused(Ack("g", zombie.epoch, ends)) == FENCED

    @rule()
    def node_crashes(self) -> None:
        self.crash()
        self.unconfirmed.clear()
        self.out.clear()

    def crash(self) -> None:
        self.node = self.node.crash()
        self.may_be_gone |= self.early - self.confirmed
        self.connect()

    def read_batch(self) -> list[bytes]:
        bodies: list[bytes] = []
        starts = self.start_of(self.commits)
        for incarnation, end in self.offsets[self.commits].items():
            start = starts.get(incarnation, 0)
            found = self.read_range(incarnation, start, end)
            if found is not None:
                seen = self.seen.setdefault((incarnation, start, end), found)
                gone = self.may_be_gone
                assert [body for body in seen if body not in gone] == [
                    body for body in found if body not in gone
                ], "a range changed between two reads"
                bodies += found
        return bodies

    def read_range(self, incarnation: int, start: int, end: int) -> list[bytes] | None:
        """Return the bodies of a range of one queue, or None when the queue is deleted."""
        group = self.open()
        bodies: list[bytes] = []
        plan = self.client.ask(PlanRange("g", group.epoch, incarnation, start, end, SLICE))
        if isinstance(plan, ErrorReply):
            assert plan.code == DATA_LOSS and incarnation not in self.node.vhost.queues_by_id, plan
            return None
        assert isinstance(plan, RangePlan)
        for part in plan.slices:
            at = part.start
            while at < part.end:
                reply = self.client.must(
                    Fetch("g", group.epoch, incarnation, at, part.end, 3, 12000)
                )
                assert isinstance(reply, Fetched)
                bodies += [message.body or b"" for message in read_block(reply.block)]
                at = reply.next
        return bodies

    def run_batch(self, sink_is_reached: bool = True, commit_is_reached: bool = True) -> None:
        bodies = self.read_batch()
        if not sink_is_reached:
            return
        if len(self.sink) == self.commits:
            self.sink.append(bodies)
        if commit_is_reached:
            self.commits += 1

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def groups_are_sound(self) -> None:
        for group in self.node.groups.reader_groups.by_name.values():
            group.check()

    def teardown(self) -> None:
        """Requeue all unacked messages and read the rest: each confirmed message arrived once."""
        for entry in self.out:
            entry.queue.requeue([entry], self.node.clock.now_ms())
        self.out.clear()
        self.crash()
        self.group = None
        while True:
            before = len(self.offsets), self.commits
            self.latest_offset(5, 1, False, True)
            if (len(self.offsets), self.commits) == before:
                break
        self.run(True, True)
        arrived = [body for batch in self.sink for body in batch]
        assert len(arrived) == len(set(arrived)), "a message arrived twice"
        missing = self.confirmed - set(arrived) - self.consumed - self.lost
        assert missing == set(), "a confirmed message is lost"
        assert [queue.ready_count for queue in self.queues] == [0] * len(self.queues)


GroupMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroupMachine = GroupMachine.TestCase
