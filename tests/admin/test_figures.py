"""Figures of stores and queues equal those of a model, and only permitted users see them."""

import random

import pytest

from tests.support.brokers.memory_node import USER, MemoryClient, MemoryDisk, MemoryNode
from warrenmq.admin.protocol.figures import (
    DescribeNode,
    ListQueues,
    NodeStatus,
    QueueList,
    QueueStatus,
    VhostStatus,
)
from warrenmq.admin.protocol.requests import Login
from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.entry import ALPHA, BETA, Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.store.figures import StoreFigures
from warrenmq.store.settings import GARBAGE_ALLOWANCE_BYTES
from warrenmq.vocabulary.error_codes import PRECONDITION

SMALL = 10
LARGE = 5000


class Model:
    """A node with three queues, and the test's own account of every live message."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.node = MemoryNode(MemoryDisk())
        store = self.node.vhost.store
        # Small files, so that some are compacted and many deleted.
        store.contents.persistent.file_size_limit = store.contents.transient.file_size_limit = (
            12_000
        )
        self.queues = [
            self.node.declare(b"a"),
            self.node.declare(b"b"),
            self.node.declare(b"transient", durable=False),
        ]
        self.out: list[Entry] = []
        # Live messages of each queue: (body size, is persistent) by seq id.
        self.alive: list[dict[int, tuple[int, bool]]] = [{} for _ in self.queues]
        self.published = [0] * len(self.queues)
        self.settled = [0] * len(self.queues)
        self.requeued = [0] * len(self.queues)
        self.is_ending = False
        self.node.vhost.host.unacked_finders.append(
            lambda ledger, first, end: [
                one for one in self.out if one.ledger is ledger and first <= one.seq < end
            ]
        )

    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    def publish(self, place: int) -> None:
        queue = self.queues[place]
        size = self.choose.choice([SMALL, SMALL, LARGE])
        persistent = self.choose.random() < 0.7
        seq = self.node.publish(queue.name, bytes(size), persistent)
        self.alive[place][seq] = size, persistent
        self.published[place] += 1

    def get(self, place: int) -> None:
        queue = self.queues[place]
        for _ in range(200):
            entry = queue.get(False, self.now_ms())
            if entry is not None:
                self.out.append(entry)
                return
            if queue.head_state(self.now_ms()) == EMPTY:
                return
            queue.when_head(lambda _now_ms: None)
            self.work()
        raise AssertionError("the head never comes")

    def settle(self) -> None:
        # A fifth of the messages stay for long, in files whose rest is garbage.
        quick = [entry for entry in self.out if self.is_ending or entry.seq % 5 > 0]
        if quick:
            entry = self.choose.choice(quick)
            self.out.remove(entry)
            place = [queue is entry.queue for queue in self.queues].index(True)
            self.queues[place].leave(entry, ACKED, self.now_ms())
            del self.alive[place][entry.seq]
            self.settled[place] += 1

    def requeue(self, place: int) -> None:
        queue = self.queues[place]
        mine = [entry for entry in self.out if entry.queue is queue]
        self.out = [entry for entry in self.out if entry.queue is not queue]
        self.requeued[place] += len(mine)
        queue.requeue(mine, self.now_ms())

    def page(self, place: int) -> None:
        queue = self.queues[place]
        if self.choose.random() < 0.5:
            queue.backing.memory.set_mode(not queue.backing.memory.is_lazy)
        else:
            queue.backing.memory.set_target(self.choose.choice([0, 3, 1 << 62]))

    def work(self) -> None:
        self.node.commit()
        self.node.work()

    def step(self) -> None:
        place = self.choose.randrange(len(self.queues))
        what = self.choose.random()
        if what < 0.28:
            self.publish(place)
        elif what < 0.58:
            self.get(place)
        elif what < 0.9:
            self.settle()
        elif what < 0.92:
            self.requeue(place)
        else:
            self.page(place)
            # Let 1.5 s pass without demand.
            self.node.clock.time_ms += 1500

    def file_bytes(self, name: str, kind: str) -> int:
        """Bytes of all files whose path starts with `name` and ends with `kind`."""
        files = self.node.disk.files.files()
        return sum(
            len(file.data) for path, file in files if path.startswith(name) and path.endswith(kind)
        )

    def check_queue(self, place: int, status: QueueStatus) -> None:
        """Compare a queue's figures with a count of its messages one by one."""
        queue = self.queues[place]
        ready = queue.backing.ready
        rings = {"q1": ready.q1, "q2": ready.q2, "q3": ready.q3, "q4": ready.q4}
        entries = {
            name: [ring.at(index) for index in range(ring.count)] for name, ring in rings.items()
        }
        in_memory = [entry for ring in entries.values() for entry in ring]
        alive = self.alive[place]
        out = {entry.seq for entry in self.out if entry.queue is queue}
        on_disk = alive.keys() - out - {entry.seq for entry in in_memory}
        overhead = 3 + 2
        parts = status.parts
        assert {name: getattr(parts, name) for name in rings} == {
            n: len(e) for n, e in entries.items()
        }
        assert parts.delta == len(on_disk)
        forms: dict[str, list[int]] = {"alpha": [], "beta": [], "gamma": []}
        for entry in in_memory:
            form = "alpha" if entry.form == ALPHA else "beta" if entry.form == BETA else "gamma"
            forms[form].append(alive[entry.seq][0] + overhead)
        forms["delta"] = [alive[seq][0] + overhead for seq in on_disk]
        for form, sizes in forms.items():
            found = getattr(status, form)
            assert (found.count, found.bytes) == (len(sizes), sum(sizes)), form
        assert (status.ready, status.unacked) == (len(alive) - len(out), len(out))
        assert status.published == self.published[place] == status.next_seq - 1
        assert (status.settled, status.requeued) == (self.settled[place], self.requeued[place])
        assert status.delivered == len(out) + status.settled + status.requeued
        target = (
            None
            if queue.backing.memory.target_ram_count == 1 << 62
            else queue.backing.memory.target_ram_count
        )
        assert (status.target_ram_count, status.mode) == (
            target,
            "lazy" if queue.backing.memory.is_lazy else "default",
        )

    def check_store(self, status: VhostStatus) -> None:
        """Compare the store's figures with the sizes of its files."""
        persistent, transient = "/msg_store_persistent/", "/msg_store_transient/"
        on_disk = (
            self.file_bytes("", ".wal") + self.file_bytes("", ".idx") + self.file_bytes("", ".rdq")
        )
        assert status.disk_bytes == on_disk
        sizes = status.journal.bytes + status.index.bytes
        sizes += status.persistent.total_bytes + status.transient.total_bytes
        assert status.disk_bytes == sizes + status.deletable_bytes
        assert status.journal.bytes <= self.file_bytes("", ".wal")
        assert status.index.bytes <= self.file_bytes("", ".idx")
        assert status.persistent.total_bytes <= self.file_bytes(persistent, ".rdq")
        assert status.transient.total_bytes <= self.file_bytes(transient, ".rdq")
        indexed = 0
        lasting = 0
        for queue, alive in zip(self.queues, self.alive, strict=True):
            indexed += len([seq for seq in alive if seq < queue.ledger.indexed_upto])
            if queue.durable:
                lasting += len(
                    [size for size, persistent in alive.values() if size == LARGE and persistent]
                )
        assert status.index.live_positions == indexed
        # Each large message has one record, all of the same size.
        assert status.persistent.valid_bytes % max(lasting, 1) == 0
        assert LARGE * lasting <= status.persistent.valid_bytes <= (LARGE + 100) * lasting
        for contents in (status.persistent, status.transient):
            assert contents.garbage_bytes == contents.total_bytes - contents.valid_bytes
        assert status.waiting_bytes == 0 and not status.is_behind
        assert (status.damaged, status.lost, status.failed_checkpoints, status.debt_bytes) == (
            0,
            0,
            0,
            0,
        )

    def check(self) -> None:
        status = self.node.groups.status()
        self.check_store(status)
        for place, queue in enumerate(self.node.groups.queue_list(0, 10).queues):
            self.check_queue(place, queue)


@pytest.mark.parametrize("seed", range(8))
def test_figures_are_those_of_a_model(seed: int) -> None:
    model = Model(seed)
    for _ in range(160):
        for _ in range(model.choose.randrange(1, 30)):
            model.step()
        model.work()
        model.check()
    model.is_ending = True
    for place in range(len(model.queues)):
        model.requeue(place)
        while model.alive[place]:
            model.get(place)
            model.settle()
    # All files are deleted but those in which the store appends.
    for _ in range(5):
        model.node.clock.time_ms += 3000
        model.work()
    model.check()
    figures = StoreFigures(model.node.vhost.store)
    assert figures.live_bytes == 0 and figures.deletable_bytes == 0 and figures.live_positions == 0
    assert figures.checkpoints > 3 and figures.generation == figures.checkpoints


def test_debt_is_what_exceeds_twice_what_is_alive() -> None:
    node = MemoryNode(MemoryDisk())
    store = node.vhost.store
    live = int(StoreFigures(store).live_bytes)
    assert live == 0 and StoreFigures(store).debt_bytes == 0
    rest = int(StoreFigures(store).disk_bytes)
    store.contents.persistent.total_bytes += GARBAGE_ALLOWANCE_BYTES - rest
    assert StoreFigures(store).debt_bytes == 0
    store.contents.persistent.total_bytes += 1000
    assert StoreFigures(store).debt_bytes == 1000
    store.contents.persistent.valid_bytes += 400
    assert StoreFigures(store).debt_bytes == 200


def described(client: MemoryClient) -> NodeStatus:
    reply = client.must(DescribeNode())
    assert isinstance(reply, NodeStatus)
    return reply


@pytest.mark.parametrize(
    ("tags", "sees_all"),
    [([], False), (["management"], False), (["monitoring"], True), (["administrator"], True)],
)
def test_who_sees_which_vhosts(tags: list[str], sees_all: bool) -> None:
    """Only monitoring users and administrators see a vhost that they may not enter."""
    node = MemoryNode(MemoryDisk())
    other = MemoryNode(MemoryDisk())
    node.broker.vhosts[b"other"] = other.vhost
    other.vhost.name = b"other"
    node.broker.access.users[b"guest"] = PutUser(USER.name, USER.password_hash, USER.hashing, tags)
    names = [vhost.vhost for vhost in described(MemoryClient(node)).vhosts]
    assert names == (["/", "other"] if sees_all else ["/"])
    client = MemoryClient(node, log_in=False)
    client.ask(Login("guest", "guest", ""))
    if sees_all:
        assert [vhost.vhost for vhost in described(client).vhosts] == names
    else:
        assert client.refused(DescribeNode()) == PRECONDITION


def test_the_node_says_what_was_measured_and_which_alarms_are_on() -> None:
    node = MemoryNode(MemoryDisk())
    client = MemoryClient(node)
    status = described(client)
    assert (status.memory_used_bytes, status.disk_free_bytes, status.alarms) == (None, None, [])
    now_ms = node.clock.now_ms()
    node.broker.set_vm_memory_high_watermark(1000, 0, now_ms)
    node.broker.set_disk_free_limit(5000, 0, now_ms)
    node.broker.memory_used(2000, now_ms)
    node.broker.disk_free(6000, now_ms)
    status = described(client)
    assert (status.memory_used_bytes, status.disk_free_bytes, status.disk_limit_bytes) == (
        2000,
        6000,
        5000,
    )
    assert status.alarms == ["memory"]
    node.broker.disk_free(4000, now_ms)
    assert described(client).alarms == ["memory", "disk"]


def test_queues_are_listed_in_pages() -> None:
    node = MemoryNode(MemoryDisk())
    names = [b"q%d" % number for number in range(25)] + [b"\xff\xfe"]
    for name in names:
        node.declare(name, durable=False)
    client = MemoryClient(node)
    found: list[str] = []
    after = 0
    while True:
        page = client.must(ListQueues(after, 10))
        assert isinstance(page, QueueList) and len(page.queues) <= 10
        found += [queue.name for queue in page.queues]
        if page.is_last:
            break
        after = page.queues[-1].id
    assert found == [name.decode("utf-8", "replace") for name in names]
    assert client.must(ListQueues(1 << 40)) == QueueList([], True)


def test_rates_are_shown_while_something_happens() -> None:
    node = MemoryNode(MemoryDisk())
    queue: Queue = node.declare(b"q", durable=False)
    for _ in range(40):
        for _ in range(50):
            node.publish(b"q", b"x", False)
        node.work()
        node.clock.time_ms += 500
        node.broker.tick(node.clock.now_ms())
    status = node.groups.queue_list(0, 1).queues[0]
    assert 80 < status.rates.published < 120
    assert (status.rates.taken, status.rates.acked) == (0, 0)
    for _ in range(3):
        node.clock.time_ms += 10_000
        node.broker.tick(node.clock.now_ms())
    assert node.groups.queue_list(0, 1).queues[0].rates.published == 0
    assert queue.ready_count == 2000
