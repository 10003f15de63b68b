"""A queue with its messages in very many runs is looked through in short slices, while it works."""

import random
from collections.abc import Iterator

import pytest

from tests.queues.backing.test_queue_on_store import fill, forget_gets, held_out, take
from tests.queues.mirror.test_copies import held_by, open_copy, page_out, publish
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.mirror.sliced_runs import merged, subtracted
from warrenmq.queues.mirror.sliced_work import PIECE_STEPS, SLICE_STEPS, SlicedWork
from warrenmq.queues.mirror.snapshot import LiveScan, LiveSearch
from warrenmq.queues.queue import Queue
from warrenmq.queues.turn import DONE, MORE
from warrenmq.store.model.runs import Runs, merge_runs, subtract


@pytest.fixture
def node() -> MemoryNode:
    return MemoryNode(MemoryDisk())


def seqs_of(runs: Runs) -> set[int]:
    return {seq for first, last in runs for seq in range(int(first), int(last) + 1)}


def live_seqs(queue: Queue, published: set[int], settled: set[int]) -> set[int]:
    live = published - settled
    assert len(live) == queue.backing.ready.count + queue.backing.unacked.count
    return live


def take_out(node: MemoryNode, queue: Queue, count: int) -> list[Entry]:
    return [entry for _ in range(count) if (entry := take(node, queue)) is not None]


@pytest.mark.parametrize("is_paged", [False, True])
def test_no_slice_is_long_however_many_gaps_there_are(node: MemoryNode, is_paged: bool) -> None:
    queue = node.declare(b"q")
    fill(node, 4000)
    out = take_out(node, queue, 4000)
    for entry in out[::2]:
        queue.leave(entry, ACKED, node.clock.now_ms())
    queue.requeue(out[1::2], node.clock.now_ms())
    if is_paged:
        forget_gets(node)
        page_out(node, queue)
    search = LiveSearch(queue.backing, queue.backing.ledger.next_seq)
    steps = list(search.pieces())
    assert search.is_exact and len(search.runs) == 2000
    assert max(steps) < 2 * PIECE_STEPS and sum(steps) > 4 * SLICE_STEPS
    found: list[Runs] = []
    LiveScan(queue.backing, found.append).start()
    assert found == []
    for _ in range(20):
        node.work()
    assert found == [search.runs]


def test_work_goes_on_where_it_was(node: MemoryNode) -> None:
    done: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(5):
            done.append(number)
            yield SLICE_STEPS // 2

    work = SlicedWork(node.vhost.host, pieces())
    assert work.run_slice(0) == MORE
    assert done == [0, 1]
    assert work.run_slice(0) == MORE
    assert work.run_slice(0) == DONE
    assert done == [0, 1, 2, 3, 4] and not work.is_listed


def test_messages_that_go_to_the_disk_meanwhile_are_found(node: MemoryNode) -> None:
    queue = node.declare(b"q")
    fill(node, 1000)
    out = take_out(node, queue, 1000)
    for entry in out[::2]:
        queue.leave(entry, ACKED, node.clock.now_ms())
    queue.requeue(out[1::2], node.clock.now_ms())
    forget_gets(node)
    search = LiveSearch(queue.backing, queue.backing.ledger.next_seq)
    pieces = search.pieces()
    for _ in range(3):
        assert next(pieces, 0) > 0
    page_out(node, queue)
    for _ in pieces:
        pass
    assert search.is_exact
    assert search.runs == [(seq, seq) for seq in range(2, 1001, 2)]


@pytest.mark.parametrize("seed", range(25))
def test_a_queue_that_changes_meanwhile_hides_nothing(node: MemoryNode, seed: int) -> None:
    """All that is there throughout is found, and nothing that was gone before."""
    choice = random.Random(seed)
    queue = node.declare(b"q")
    out: list[Entry] = []
    held_out(node, out)
    settled: set[int] = set()
    first = queue.backing.ledger.next_seq

    def disturb() -> None:
        kind = choice.randrange(7)
        now_ms = node.clock.now_ms()
        if kind == 0:
            fill(node, choice.randrange(1, 20))
        elif kind == 1:
            out.extend(take_out(node, queue, choice.randrange(1, 20)))
        elif kind == 2 and out:
            entry = out.pop(choice.randrange(len(out)))
            settled.add(int(entry.seq))
            queue.leave(entry, ACKED, now_ms)
        elif kind == 3 and out:
            back = choice.sample(out, choice.randrange(len(out)) + 1)
            for entry in back:
                out.remove(entry)
            queue.requeue(sorted(back), now_ms)
        elif kind == 4:
            queue.backing.memory.set_mode(choice.random() < 0.5)
        elif kind == 5:
            node.work()
        else:
            node.commit()

    for _ in range(60):
        disturb()
    forget_gets(node)
    bound = int(queue.backing.ledger.next_seq)
    before = live_seqs(queue, set(range(int(first), bound)), settled)
    search = LiveSearch(queue.backing, bound)
    for _ in search.pieces():
        for _ in range(choice.randrange(4)):
            disturb()
    after = before - settled
    if search.is_exact:
        found = seqs_of(search.runs)
        assert after <= found
        assert {seq for seq in found if seq < bound} <= before
        assert search.runs == merge_runs(search.runs.copy())
    queue.check()


@pytest.mark.parametrize("seed", range(20))
def test_lists_of_runs_are_joined_and_subtracted(seed: int) -> None:
    choice = random.Random(seed)
    lists = [
        merge_runs([(at, at + choice.randrange(4)) for at in choice.sample(range(300), 40)])
        for _ in range(3)
    ]
    found: Runs = []
    for _ in subtracted(lists[0], lists[1:], found):
        pass
    left = [part for run in lists[0] for part in subtract(*run, lists[1])]
    assert seqs_of(found) == seqs_of(left) - seqs_of(lists[2])
    assert merge_runs(found.copy()) == found
    joined: Runs = []
    for _ in merged(lists[0], lists[1], joined):
        pass
    assert joined == merge_runs(lists[0] + lists[1])


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_drops_scattered_messages_wherever_they_are(node: MemoryNode, seed: int) -> None:
    choice = random.Random(seed)
    copy = open_copy(node)
    publish(node, copy, range(1, 301))
    node.commit()
    if choice.random() < 0.7:
        copy.queue.backing.memory.set_mode(True)
        for _ in range(choice.randrange(3)):
            node.work()
        copy.queue.backing.memory.set_mode(False)
        publish(node, copy, range(301, 401))
    (level,) = copy.levels()
    live = held_by(copy)
    for _ in range(4):
        seqs = choice.sample(range(1, 401), choice.choice([2, 40, 200]))
        runs = merge_runs([(seq, seq + choice.randrange(3)) for seq in seqs])
        level.settle(runs, node.clock.now_ms())
        live = [part for run in live for part in _without(run, runs)]
        assert seqs_of(held_by(copy)) == seqs_of(live)
        assert level.backing.ready.count == len(seqs_of(live))
        copy.check()


def _without(run: tuple[int, int], runs: Runs) -> Runs:
    return subtract(run[0], run[1], runs)
