"""The redelivered flag is set on exactly the messages that were handed out, wherever they were.

A queue on the real store is used by consumers, a reader group and the office of dead letters; it
pages, its node stops and starts. A model knows which seq ids were handed out. It also knows where
each epoch of the queue began.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.queues.backing.test_queue_on_store import forget_gets, held_out, take
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.backing.loading import RangeLoad
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED, MAXLEN
from warrenmq.queues.queue import Queue
from warrenmq.store.model.epochs import Epochs

SEED = st.integers(0, 1 << 30)


def seal(node: MemoryNode) -> None:
    """Commit, even when nothing has gathered."""
    assert node.driver.flush(node.vhost.journal.seal(), node.clock.now_ms()) is None
    node.work()


def stop(node: MemoryNode) -> MemoryNode:
    """Stop in an orderly way, and start again from the disk."""
    node.commit()
    node.vhost.journal.request_clean_stop()
    seal(node)
    return MemoryNode(node.disk, node.clock)


def epoch_of(epochs: Epochs, seq: int) -> int:
    """The epoch in which the message `seq` was published."""
    return max((int(epoch) for epoch, first in epochs if first <= seq), default=0)


class DeliveredFlags(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.handed_out: set[int] = set()
        self.epochs: Epochs = []
        self.live: set[int] = set()
        self.begin(MemoryNode(MemoryDisk()))

    def begin(self, node: MemoryNode) -> None:
        self.node = node
        # A start begins a journal file before anything is delivered.
        seal(node)
        self.queue: Queue = node.vhost.queues.get(b"q") or node.declare(b"q")
        # Unacked entries, and those that leave as dead letters.
        self.out: list[Entry] = []
        self.leaving: list[Entry] = []
        held_out(node, self.out)
        held_out(node, self.leaving)

    def some(self, seed: int) -> list[Entry]:
        """Some of the unacked entries, taken out."""
        chosen = [entry for place, entry in enumerate(self.out) if seed >> (place % 30) & 1]
        for entry in chosen:
            self.out.remove(entry)
        return chosen

    # -- what happens ------------------------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.live.add(self.node.publish(b"q", b"x"))

    @rule(count=st.integers(1, 5), no_ack=st.booleans())
    def get(self, count: int, no_ack: bool) -> None:
        for _ in range(count):
            entry = take(self.node, self.queue, no_ack)
            if entry is None:
                return
            assert entry.redelivered == (entry.seq in self.handed_out)
            self.handed_out.add(int(entry.seq))
            if no_ack:
                self.live.remove(int(entry.seq))
            else:
                self.out.append(entry)

    @rule(first=st.integers(0, 40), count=st.integers(1, 6))
    def hold(self, first: int, count: int) -> None:
        """A reader group reserves messages at any place, from memory or from disk."""
        backing = self.queue.backing
        first += int(backing.first_ready_seq)
        if backing.ready.is_on_disk(first):
            load = RangeLoad(backing, first, 1 << 40, count, 1 << 40, True, self.on_held)
            backing.loader.submit(load)
            self.node.work()
        else:
            self.on_held(backing.reserve(first, count, 1 << 40))

    def on_held(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.redelivered == (entry.seq in self.handed_out)
        self.handed_out.update(int(entry.seq) for entry in entries)
        self.out.extend(entries)

    @rule(seed=SEED)
    def requeue(self, seed: int) -> None:
        entries = self.some(seed)
        if entries:
            self.queue.requeue(entries, self.node.clock.now_ms())

    @rule(seed=SEED)
    def put_back(self, seed: int) -> None:
        """Some messages return that never reached their client."""
        entries = self.some(seed)
        if entries:
            self.handed_out -= {int(entry.seq) for entry in entries if not entry.redelivered}
            self.queue.backing.requeue(entries, self.node.clock.now_ms(), True)
            # What comes behind a later message is marked, also if that one is gone unseen.
            last = max(self.handed_out, default=0)
            gone = set(range(1, self.queue.next_seq)) - self.live
            for entry in entries:
                if entry.seq < last:
                    assert entry.redelivered
                if entry.redelivered:
                    assert entry.seq in self.handed_out or entry.seq < max({last, *gone})
                    self.handed_out.add(int(entry.seq))

    @rule(seed=SEED)
    def ack(self, seed: int) -> None:
        for entry in self.some(seed):
            self.live.remove(int(entry.seq))
            self.queue.leave(entry, ACKED, self.node.clock.now_ms())

    @precondition(lambda self: self.queue.backing.ready.has_head_entry())
    @rule()
    def lose_head(self) -> None:
        """The queue has no room for its head, which becomes a dead letter."""
        entry = self.queue.backing.ready.fetch()
        self.queue.backing.begin_leaving(entry, self.node.clock.now_ms())
        self.leaving.append(entry)

    @precondition(lambda self: self.leaving)
    @rule()
    def hand_over(self) -> None:
        entry = self.leaving.pop(0)
        self.live.remove(int(entry.seq))
        self.queue.let_go(entry, MAXLEN, self.node.clock.now_ms())

    @rule(is_lazy=st.booleans())
    def page(self, is_lazy: bool) -> None:
        forget_gets(self.node)
        self.queue.backing.memory.set_mode(is_lazy)
        self.node.commit()
        self.node.work()

    @rule(step=st.integers(0, 2))
    def begin_epoch(self, step: int) -> None:
        ledger = self.queue.ledger
        epoch = ledger.epoch + step
        assert self.queue.backing.begin_epoch(epoch) == (step > 0)
        if step > 0:
            self.epochs.append((epoch, ledger.next_seq))
            if self.queue.backing.ready.delta.count == 0:
                # Epochs whose messages may be on disk stay.
                assert len(ledger.epochs) <= len(self.live) + 1

    @rule()
    def take_checkpoint(self) -> None:
        checkpoints = self.node.vhost.store.checkpoints
        before = checkpoints.count
        checkpoints.want()
        self.node.commit()
        seal(self.node)
        assert checkpoints.count > before

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.begin(stop(self.node))
            return
        self.node.commit()
        self.begin(self.node.crash())
        # Nobody knows what was handed out before a crash (W29), which also frees seq ids.
        self.handed_out = set(range(self.queue.next_seq))

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def flags_are_right(self) -> None:
        self.node.vhost.check()
        ready = self.queue.backing.ready
        for place in range(ready.entry_count):
            entry = ready.at(place)
            assert entry.redelivered == (entry.seq in self.handed_out), entry.seq
        epochs = self.queue.ledger.epochs
        assert epochs[-1:] == self.epochs[-1:]
        for seq in self.live:
            assert epoch_of(epochs, seq) == epoch_of(self.epochs, seq)

    def teardown(self) -> None:
        self.begin(stop(self.node))
        while (entry := take(self.node, self.queue, True)) is not None:
            assert entry.redelivered == (entry.seq in self.handed_out)
            self.live.remove(int(entry.seq))
        assert not self.live


TestDeliveredFlags = DeliveredFlags.TestCase
TestDeliveredFlags.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
