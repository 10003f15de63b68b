"""Copies of a queue on the real store: restarts, cuts, synchronisation, and what is durable."""

import random

import pytest

from tests.queues.backing.test_queue_on_store import bodies, fill, forget_gets, held_out, take
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.stores.model_store import ModelHost
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup, Reserve, Reserved
from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.durable_marks import DurableMarks, MarkHost
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.queues.mirror.snapshot import LevelCopy, LiveScan, LiveSearch, describe_copy
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs, merge_runs

ADDRESS = b"\x00\x01q"


class Marks(MarkHost):
    def __init__(self) -> None:
        self.raised: list[int] = []
        self.failures = 0

    def mark_raised(self, upto: int) -> None:
        self.raised.append(int(upto))

    def mark_failed(self) -> None:
        self.failures += 1


def open_copy(node: MemoryNode, held_bytes: int = 1 << 20) -> MirrorApplier:
    """The copy of queue q on `node`, opened anew."""
    queue = node.vhost.queues.get(b"q") or node.declare(b"q")
    queue.begin_hidden()
    applier = MirrorApplier(queue, held_bytes)
    opened: list[bool] = []
    applier.reopen(lambda: opened.append(True))
    node.work()
    assert opened
    applier.check()
    return applier


def page_out(node: MemoryNode, queue: Queue) -> None:
    """Move everything to disk."""
    node.commit()
    queue.backing.memory.set_mode(True)
    for _ in range(20):
        node.work()
    assert queue.backing.ready.entry_count == 0


def publish(node: MemoryNode, copy: MirrorApplier, seqs: range, persistent: bool = True) -> None:
    (level,) = copy.levels()
    for seq in seqs:
        message = Message(ADDRESS, b"\x00\x00", b"%d" % seq, persistent, node.clock.now_ms())
        level.publish_at(seq, message, 0, False, node.clock.now_ms())


def fill_copy(node: MemoryNode, copy: MirrorApplier, seqs: range) -> None:
    for seq in seqs:
        message = Message(ADDRESS, b"\x00\x00", b"%d" % seq, True, node.clock.now_ms())
        copy.fill(0, seq, message, 0, False, node.clock.now_ms())


def held_by(copy: MirrorApplier) -> Runs:
    described: list[list[LevelCopy]] = []
    describe_copy(copy.queue, described.append)
    ((level,),) = described
    return level.runs


def live_runs(contents: QueueContents) -> Runs | None:
    """Seq ids of all messages, if memory knows them."""
    search = LiveSearch(contents, contents.ledger.next_seq)
    for _ in search.pieces():
        pass
    return search.runs if search.is_exact else None


@pytest.fixture
def node() -> MemoryNode:
    return MemoryNode(MemoryDisk())


@pytest.mark.parametrize("is_paged", [False, True])
def test_a_crash_leaves_a_copy_what_was_durable(node: MemoryNode, is_paged: bool) -> None:
    copy = open_copy(node)
    publish(node, copy, range(1, 41))
    copy.settle(0, [(3, 5), (20, 20)], node.clock.now_ms())
    node.commit()
    if is_paged:
        page_out(node, copy.queue)
        copy.settle(0, [(30, 32)], node.clock.now_ms())
        node.work()
        node.commit()
    publish(node, copy, range(41, 44))
    node = node.crash()
    copy = open_copy(node)
    gone = [3, 4, 5, 20] + ([30, 31, 32] if is_paged else [])
    live = [seq for seq in range(1, 41) if seq not in gone]
    assert expand(held_by(copy)) == live
    # Operations of before the crash may come again.
    publish(node, copy, range(30, 41))
    copy.settle(0, [(1, 2), (33, 33), (3, 5)], node.clock.now_ms())
    copy.check()
    node.work()
    live = [seq for seq in live if seq not in (1, 2, 33)]
    assert expand(held_by(copy)) == live
    copy.queue.is_hidden = False
    assert bodies(node, copy.queue) == live


def expand(runs: Runs) -> list[int]:
    return [seq for first, last in runs for seq in range(int(first), int(last) + 1)]


def test_a_copy_that_lost_transient_messages_finds_out_which(node: MemoryNode) -> None:
    copy = open_copy(node)
    for seq in range(1, 41):
        publish(node, copy, range(seq, seq + 1), persistent=seq % 3 == 0)
    page_out(node, copy.queue)
    assert held_by(copy) == [(1, 40)]
    node.commit()
    node = node.crash()
    queue = node.vhost.queues[b"q"]
    assert queue.ready_count == 13
    copy = open_copy(node)
    left = list(range(3, 41, 3))
    assert expand(held_by(copy)) == left
    copy.settle(0, [(1, 9), (37, 40)], node.clock.now_ms())
    copy.check()
    node.work()
    assert queue.ready_count == 9
    copy.queue.is_hidden = False
    assert bodies(node, queue) == left[3:-1]


def test_a_copy_keeps_transient_messages_that_a_group_has_reserved(node: MemoryNode) -> None:
    """Those that came before the group are in memory only; they outlive a crash of all copies."""
    master = MemoryNode(MemoryDisk())
    queue = master.declare(b"q")
    feed = RingFeed(queue, lambda: None)
    feed.begin(1, next_start(queue, 0))
    fill(master, 6, persistent=False)
    copy = open_copy(node)
    assert copy.apply(feed.take(1), node.clock.now_ms())
    node.commit()
    client = MemoryClient(master)
    opened = client.must(OpenGroup("g", [b"q"]))
    assert isinstance(opened, GroupOpened)
    for upto in (2, 4):
        reserve = Reserve("g", opened.epoch, {queue.incarnation: 0}, upto, 1 << 20, acks=False)
        assert isinstance(client.must(reserve), Reserved)
        assert copy.apply(feed.take(1), node.clock.now_ms())
        node.commit()
    # The group reserves them again as the queue starts, here as a master.
    queue = node.crash().vhost.queues[b"q"]
    assert (queue.backing.unacked.count, queue.ready_count) == (4, 0)


def test_f6_a_tail_that_is_cut_does_not_come_back(node: MemoryNode) -> None:
    copy = open_copy(node)
    (level,) = copy.levels()
    publish(node, copy, range(1, 11))
    assert level.begin_epoch(2, 50, node.clock.now_ms())
    publish(node, copy, range(50, 61))
    page_out(node, copy.queue)
    publish(node, copy, range(61, 64))
    node.commit()
    level.cut(50, node.clock.now_ms())
    assert held_by(copy) == [(1, 10)] and copy.queue.ledger.epochs == [(2, 50)]
    copy.check()
    node.work()
    node.commit()
    node = node.crash()
    copy = open_copy(node)
    assert held_by(copy) == [(1, 10)] and copy.epoch == 2
    (level,) = copy.levels()
    assert not level.begin_epoch(2, 90, node.clock.now_ms())
    assert level.begin_epoch(3, 100, node.clock.now_ms())
    publish(node, copy, range(100, 103))
    copy.queue.is_hidden = False
    assert bodies(node, copy.queue) == [*range(1, 11), *range(100, 103)]


def test_f7_an_interrupted_synchronisation_keeps_what_arrived(node: MemoryNode) -> None:
    copy = open_copy(node)
    copy.begin_sync(4, node.clock.now_ms())
    publish(node, copy, range(100, 105))
    fill_copy(node, copy, range(10, 40))
    copy.settle(0, [(12, 12), (50, 50), (101, 101)], node.clock.now_ms())
    copy.check()
    node.commit()
    node = node.crash()
    copy = open_copy(node)
    assert held_by(copy) == [(10, 11), (13, 39)] and copy.epoch == 4
    copy.begin_sync(4, node.clock.now_ms())
    publish(node, copy, range(105, 108))
    fill_copy(node, copy, range(13, 60))
    assert copy.end_sync([(0, 105)], node.clock.now_ms()) and not copy.is_syncing
    assert expand(held_by(copy)) == [10, 11, *range(13, 60), 105, 106, 107]
    copy.check()
    copy.queue.is_hidden = False
    assert bodies(node, copy.queue) == [10, 11, *range(13, 60), 105, 106, 107]


def test_a_mirror_that_holds_too_much_asks_for_another_pass(node: MemoryNode) -> None:
    copy = open_copy(node, held_bytes=2000)
    now_ms = node.clock.now_ms()
    copy.begin_sync(1, now_ms)
    fill_copy(node, copy, range(1, 5))
    publish(node, copy, range(5, 8))
    # The master read 5 and 6 before it published on. The mirror holds them, and forgets them later.
    fill_copy(node, copy, range(5, 7))
    publish(node, copy, range(8, 100))
    copy.check()
    fill_copy(node, copy, range(7, 50))
    assert not copy.end_sync([(0, 50)], now_ms)
    assert copy.queue.next_seq == 5 and expand(held_by(copy)) == [1, 2, 3, 4]
    fill_copy(node, copy, range(5, 100))
    copy.check()
    assert copy.end_sync([(0, 100)], now_ms)
    assert expand(held_by(copy)) == list(range(1, 100))
    copy.queue.is_hidden = False
    assert bodies(node, copy.queue) == list(range(1, 100))


def test_operations_are_newer_than_messages_that_were_read_before(node: MemoryNode) -> None:
    """Whichever link is faster: a message arrives settled, delivered, or not delivered."""
    copy = open_copy(node)
    now_ms = node.clock.now_ms()
    copy.begin_sync(1, now_ms)
    (level,) = copy.levels()
    level.settle([(1, 1)], now_ms)
    level.mark_delivered([(2, 3)])
    level.unmark_delivered([(3, 4)])
    for seq, was_delivered in ((1, False), (2, False), (3, True), (4, True), (5, True)):
        message = Message(ADDRESS, b"\x00\x00", b"x", True, now_ms)
        copy.fill(0, seq, message, 0, was_delivered, now_ms)
    assert copy.end_sync([(0, 6)], now_ms)
    ready = copy.queue.backing.ready
    found = [(ready.at(place).seq, ready.at(place).redelivered) for place in range(4)]
    assert found == [(2, True), (3, False), (4, False), (5, True)]


def test_a_master_knows_its_messages_on_disk_and_unacked(node: MemoryNode) -> None:
    queue = node.declare(b"q")
    fill(node, 30)
    out = [entry for _ in range(5) if (entry := take(node, queue)) is not None]
    held_out(node, out)
    forget_gets(node)
    page_out(node, queue)
    queue.leave(out.pop(1), ACKED, node.clock.now_ms())
    queue.requeue([out.pop(0)], node.clock.now_ms())
    node.work()
    # Delta begins at the message that came back, before the unacked ones.
    assert queue.backing.ready.delta.start == 1
    assert live_runs(queue.backing) == [(1, 1), (3, 30)]
    node.commit()
    assert live_runs(queue.backing) == [(1, 1), (3, 30)]
    found: list[Runs] = []
    LiveScan(queue.backing, found.append).start()
    assert found == [[(1, 1), (3, 30)]]


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_messages_are_found_among_gaps_of_any_width(node: MemoryNode, seed: int) -> None:
    choice = random.Random(seed)
    queue = node.declare(b"q")
    fill(node, 60)
    entries = [entry for _ in range(60) if (entry := take(node, queue)) is not None]
    kept = [entry for entry in entries if choice.random() < choice.choice([0.1, 0.5, 0.95])]
    for entry in entries:
        if entry not in kept:
            queue.leave(entry, ACKED, node.clock.now_ms())
    queue.requeue(kept, node.clock.now_ms())
    runs = live_runs(queue.backing)
    assert runs is not None and runs == merge_runs(runs.copy())
    assert [seq for first, last in runs for seq in range(first, last + 1)] == sorted(
        entry.seq for entry in kept
    )


def test_positions_are_read_where_memory_does_not_know_the_messages() -> None:
    """The model of the store keeps no settled seq ids in memory."""
    host = ModelHost(page_batch=4)
    queue = host.declare(is_lazy=True)
    for number in range(20):
        message = Message(ADDRESS, b"\x00\x00", b"%d" % number, True, 0)
        queue.publish(message, -1, host.now_ms)
    host.settle_down()
    taken = [entry for _ in range(6) if (entry := host.take(queue)) is not None]
    host.settle(taken[2])
    host.settle(taken[4])
    host.requeue(taken[0], taken[5])
    host.now_ms += 2000
    host.settle_down()
    assert queue.backing.ready.delta.start <= 1 and live_runs(queue.backing) is None
    found: list[Runs] = []
    LiveScan(queue.backing, found.append).start()
    assert found == []
    host.settle_down()
    assert found == [[(1, 2), (4, 4), (6, 20)]]


def test_a_master_that_was_deposed_becomes_a_copy(node: MemoryNode) -> None:
    """What it acked and what it published alone is settled when it joins the new master."""
    queue = node.declare(b"q")
    feed = RingFeed(queue, lambda: None)
    first = next_start(queue, 0)
    feed.begin(1, first)
    fill(node, 20)
    page_out(node, queue)
    assert [take(node, queue, True) is not None for _ in range(3)] == [True] * 3
    forget_gets(node)
    feed.end()
    page_out(node, queue)
    copy = open_copy(node)
    assert held_by(copy) == [(first + 3, first + 19)]
    copy.begin_sync(2, node.clock.now_ms())
    copy.settle(0, [(first + 15, first + 19)], node.clock.now_ms())
    assert copy.end_sync([(0, next_start(queue, first))], node.clock.now_ms())
    assert held_by(copy) == [(first + 3, first + 14)]
    copy.check()


# -- what is durable -------------------------------------------------------------------------------


def test_the_mark_rises_with_the_batch_of_the_journal(node: MemoryNode) -> None:
    copy = open_copy(node)
    owner = Marks()
    marks = DurableMarks(node.vhost.journal, owner)
    marks.note(1, False)
    assert owner.raised == [1]
    publish(node, copy, range(1, 3))
    marks.note(2, True)
    marks.note(3, True)
    batch = node.vhost.journal.seal()
    publish(node, copy, range(3, 4))
    marks.note(4, True)
    # Nothing of this one is for the disk, but an earlier one still waits.
    marks.note(5, False)
    assert owner.raised == [1]
    node.driver.flush(batch, node.clock.now_ms())
    assert owner.raised == [1, 3] and marks.durable_upto == 3
    node.commit()
    assert owner.raised == [1, 3, 5] and owner.failures == 0


def test_the_mark_stays_after_a_failed_batch(node: MemoryNode) -> None:
    copy = open_copy(node)
    owner = Marks()
    marks = DurableMarks(node.vhost.journal, owner)
    publish(node, copy, range(1, 3))
    marks.note(1, True)
    node.commit(ok=False)
    publish(node, copy, range(3, 4))
    marks.note(2, True)
    marks.note(3, False)
    node.commit()
    assert (owner.raised, owner.failures, marks.has_failed) == ([], 1, True)


@pytest.mark.parametrize("ok", [True, False])
def test_the_next_mirror_of_a_copy_waits_for_what_the_last_one_wrote(
    node: MemoryNode, ok: bool
) -> None:
    copy = open_copy(node)
    before = DurableMarks(node.vhost.journal, Marks())
    publish(node, copy, range(1, 3))
    before.note(1, True)
    batch = node.vhost.journal.seal()
    publish(node, copy, range(3, 4))
    before.note(2, True)
    owner = Marks()
    marks = DurableMarks(node.vhost.journal, owner, before)
    marks.note(1, False)
    assert (owner.raised, owner.failures) == ([], 0)
    (node.driver.flush if ok else node.driver.fail)(batch, node.clock.now_ms())
    node.commit()
    assert (owner.raised, owner.failures) == (([1], 0) if ok else ([], 1))
    assert DurableMarks(node.vhost.journal, Marks(), marks).has_failed is not ok


def test_the_mark_waits_while_a_mirror_is_synchronised(node: MemoryNode) -> None:
    copy = open_copy(node)
    owner = Marks()
    marks = DurableMarks(node.vhost.journal, owner)
    copy.begin_sync(1, node.clock.now_ms())
    marks.pause()
    publish(node, copy, range(5, 8))
    marks.note(1, False)
    node.commit()
    assert owner.raised == []
    fill_copy(node, copy, range(1, 5))
    assert copy.end_sync([(0, 5)], node.clock.now_ms())
    marks.resume()
    assert owner.raised == []
    node.commit()
    assert owner.raised == [1]
    node = node.crash()
    assert held_by(open_copy(node)) == [(1, 7)]


def test_a_batch_that_fails_while_a_mirror_is_synchronised_counts(node: MemoryNode) -> None:
    """What was in it is not on disk, though the batch in which the mark rises again is."""
    copy = open_copy(node)
    owner = Marks()
    marks = DurableMarks(node.vhost.journal, owner)
    marks.pause()
    publish(node, copy, range(1, 3))
    marks.note(1, True)
    node.commit(ok=False)
    assert (owner.raised, owner.failures) == ([], 1)
    marks.resume()
    publish(node, copy, range(3, 4))
    marks.note(2, True)
    node.commit()
    assert (owner.raised, owner.failures) == ([], 1)


def test_apply_says_whether_something_is_for_the_disk(node: MemoryNode) -> None:
    master = MemoryNode(MemoryDisk())
    queue = master.declare(b"q")
    feed = RingFeed(queue, lambda: None)
    feed.begin(1, next_start(queue, 0))
    copy = open_copy(node)
    now_ms = node.clock.now_ms()
    assert copy.apply(feed.take(1), now_ms)
    fill(master, 2, persistent=False)
    assert not copy.apply(feed.take(1), now_ms)
    fill(master, 2)
    payload = feed.take(1)
    assert copy.apply(payload, now_ms)
    assert not copy.apply(payload, now_ms)
    assert take(master, queue, True) is not None
    assert not copy.apply(feed.take(1), now_ms)
