"""The long kill test: a node under every kind of load is killed again and again, and checked.

Files are small, so journal files retire, checkpoints are taken, and segments and content files are
deleted and compacted all the time. The settings change from start to start: which queues page,
which contents are small, and how much moves at once. After each start every confirmed message must
be there, byte for byte, in order and once. Messages with durable acks must stay away, and so must
purged, deleted, rolled-back, transient and expired ones. Sometimes the start itself is killed, or a
clean stop follows. At the end everything is drained, and nothing may be left of it.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.awaiting import PATIENCE_S
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import (
    TICKS,
    Confirms,
    body_of,
    connect,
    exists,
    let_work,
    number_of,
)
from tests.support.kills.mixed_load import (
    CYCLED,
    EXPIRING,
    LASTING,
    MIXED_WORKERS,
    VOLATILE,
    MixedLedger,
    MixedWorker,
    begin_near_a_segment_end,
    declare_lasting,
)

MIB = 1 << 20
# Time (s) between the node's reading of its clock and the delivery that follows: almost 0, unless
# the machine is busy.
SLACK_S = 2.0
# Bytes that may be on disk when all queues are empty: the journal file in use, allocated ahead, and
# one that waits for its checkpoint.
EMPTY_BYTES = 18 * MIB
RECLAIM_TIMEOUT_S = 60.0
# Pieces of work that each worker does before the kill.
LEAST = 10
# Texts in the log that report damage, which a kill must not cause. (A file that was created and not
# written yet is moved aside.)
COMPLAINTS = (
    "Traceback",
    "internal error",
    "is damaged",
    "missing:",
    "lost their content",
    "no usable",
)


class MixedKills:
    """One node and its ledger through any number of rounds; `done` counts events by name."""

    def __init__(self, node: BrokerProcess, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.ledger = MixedLedger()
        self.done: Counter[str] = Counter()
        # A copy of the data as the latest kill left it, for the search for a bug.
        self.image = node.directory / "image"

    def run(self, kills: int, on_round: Callable[[int], None] = lambda _: None) -> None:
        """Kill the node `kills` times; AssertionError for the first broken promise."""
        self._start()
        peer = connect(self.node)
        channel = peer.channel()
        declare_lasting(channel)
        begin_near_a_segment_end(channel)
        for number in range(1, kills + 1):
            peer.drop()
            self._load_and_kill()
            self._keep_image()
            if self.random.random() < 0.1:
                self._kill_a_start()
            self._start()
            peer = connect(self.node)
            if self.random.random() < 0.1:
                self._check(peer, 0.0)
                peer.close()
                assert self.node.stop() == 0
                self.done["clean stops"] += 1
                self._start()
                peer = connect(self.node)
            self._check(peer, self.random.choice((0.3, 0.8, 0.8, 0.95, 1.0)))
            on_round(number)
        peer.close()

    # -- rounds ------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.node.settings = (
            "journal_file_size_limit=1MiB",
            f"msg_store_file_size_limit={self.random.choice(('64KiB', '300kB'))}",
            "memory_monitor_interval=100",
            "vm_memory_high_watermark.absolute=2GiB",
            # At a limit below the memory of an empty node every queue must page; far above, none.
            f"vm_memory_high_watermark_paging_ratio={self.random.choice(('0', '0', '0.5'))}",
            f"msg_store_io_batch_size={self.random.choice((16, 200, 2048))}",
            f"queue_index_embed_msgs_below={self.random.choice((0, 1000, 4096, 4096, 50_000))}",
        )
        started = time.monotonic()
        self.node.start()
        self.done["longest start, ms"] = max(
            self.done["longest start, ms"], int((time.monotonic() - started) * 1000)
        )
        self._check_log()

    def _load_and_kill(self) -> None:
        workers: list[MixedWorker] = [
            kind(self.node, self.ledger, self.random.getrandbits(30)) for kind in MIXED_WORKERS
        ]
        for worker in workers:
            worker.start()
        # In a share of the rounds the kill may come before any work is done.
        let_work(
            workers, self.random.uniform(0.05, 1.2), 0 if self.random.random() < 0.1 else LEAST
        )
        self.node.kill()
        self.done["kills"] += 1
        for worker in workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive(), f"{type(worker).__name__} hangs"
            assert worker.failure is None, f"{type(worker).__name__}: {worker.failure!r}"
            self.done[type(worker).__name__] += worker.done

    def _keep_image(self) -> None:
        shutil.rmtree(self.image, ignore_errors=True)
        shutil.copytree(self.node.directory / "data", self.image)

    def _kill_a_start(self) -> None:
        """Kill the next starts at random moments, one to three times."""
        for _ in range(self.random.randrange(1, 4)):
            starting = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "warrenmq",
                    "server",
                    "--data-dir",
                    str(self.node.directory / "data"),
                ],
                env={**os.environ, "WARREN_NODE_PORT": "0"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(self.random.uniform(0.2, 1.5))
            starting.kill()
            starting.wait()
            self.done["killed starts"] += 1

    def _check_log(self) -> None:
        log = self.node.log_path.read_text()
        for complaint in COMPLAINTS:
            at = log.find(complaint)
            assert at == -1, log[max(0, at - 500) : at + 3000]

    # -- checks ------------------------------------------------------------------------------------

    def _check(self, peer: Peer, share: float) -> None:
        """Check all queues; settle `share` of the messages found, durably."""
        for queue in VOLATILE:
            assert not exists(peer, queue), f"{queue!r} is not durable"
        for queue in CYCLED:
            is_there = exists(peer, queue)
            assert is_there or queue not in self.ledger.declared, f"{queue!r} was declared"
            assert not is_there or queue not in self.ledger.deleted, f"{queue!r} was deleted"
        acked: dict[bytes, set[int]] = {}
        channels: list[ChannelPeer] = []
        for queue in self.ledger.confirmed:
            if queue in CYCLED and not exists(peer, queue):
                self._compare(queue, [], 0.0)
                continue
            # One channel per queue: an ack with `multiple` covers everything before it on the
            # channel.
            channel = peer.channel()
            channels.append(channel)
            started = time.monotonic()
            messages = read_all(channel, queue)
            numbers = self._compare(queue, messages, started)
            self.done["read after starts"] += len(numbers)
            # The messages were read from disk, so they count as confirmed; the acks of them were
            # lost.
            self.ledger.confirmed[queue] |= set(numbers)
            self.ledger.acked[queue] -= set(numbers)
            acked[queue] = self._settle_some(channel, messages, numbers, share)
            self.ledger.acked[queue] |= acked[queue]
        confirms = Confirms(channels[-1])
        number = self.ledger.number()
        confirms.publish(
            TICKS,
            body_of(number, 1),
            PERSISTENT,
            b"",
            lambda: self.ledger.confirmed[TICKS].add(number),
        )
        confirms.drain()
        for queue, numbers_acked in acked.items():
            self.ledger.acked_for_good[queue] |= numbers_acked
        for channel in channels:
            channel.close()

    def _compare(self, queue: bytes, messages: list[Message], started_s: float) -> list[int]:
        """Compare the messages found with the promises; returns their numbers."""
        ledger = self.ledger
        numbers = [number_of(message.body) for message in messages]
        found = set(numbers)
        assert len(numbers) == len(found), f"{queue!r}: doubled"
        # Several workers publish ticks, so only the order of other queues is checked.
        assert queue == TICKS or numbers == sorted(found), f"{queue!r}: out of order"
        lost = ledger.confirmed[queue] - ledger.acked[queue] - found
        if queue in EXPIRING:
            now_s = time.monotonic()
            lost = {number for number in lost if ledger.lifetimes[number].earliest_s > now_s}
            overdue = {
                number
                for number in found
                if ledger.lifetimes[number].latest_s + SLACK_S < started_s
            }
            assert not overdue, f"{queue!r}: expired and delivered: {sorted(overdue)[:10]}"
        assert not lost, (
            f"{queue!r}: confirmed and lost: {sorted(lost)[:10]} ({len(lost)}) beside {len(found)}"
        )
        risen = ledger.acked_for_good[queue] & found
        assert not risen, f"{queue!r}: settled and back: {sorted(risen)[:10]} ({len(risen)})"
        ghosts = ledger.transient & found
        assert not ghosts, f"{queue!r}: transient or rolled back, and there: {sorted(ghosts)[:10]}"
        return numbers

    def _settle_some(
        self, channel: ChannelPeer, messages: list[Message], numbers: list[int], share: float
    ) -> set[int]:
        """Ack the oldest messages with one ack and others one by one; returns their numbers."""
        count = int(len(messages) * share)
        front = count // 2
        if front:
            channel.ack(messages[front - 1].deliver.delivery_tag, True)
        rest = list(range(front, len(messages)))
        chosen = sorted(self.random.sample(rest, count - front)) if share < 1 else rest
        for index in chosen:
            channel.ack(messages[index].deliver.delivery_tag)
        return {numbers[index] for index in (*range(front), *chosen)}

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Drain everything: nothing may be left in queues and on disk, then and after a start."""
        peer = connect(self.node)
        self._check(peer, 1.0)
        channel = peer.channel()
        channel.ack(channel.get(TICKS).got.delivery_tag)
        for queue in LASTING:
            assert channel.count(queue) == 0, queue
        peer.close()
        self._await_small()
        assert self.node.stop() == 0
        self._start()
        peer = connect(self.node)
        channel = peer.channel()
        for queue in LASTING:
            assert channel.count(queue) == 0, queue
        peer.close()
        self._await_small()
        assert self.node.stop() == 0
        self._check_log()
        kept = [
            path
            for path in self.node.directory.glob("data/**/lost+found/*")
            if path.stat().st_size > 0
        ]
        # The store keeps the end of a write that the kill interrupted.
        assert all(path.name.endswith(".damaged") for path in kept), f"nothing was damaged: {kept}"

    def _await_small(self) -> None:
        deadline = time.monotonic() + RECLAIM_TIMEOUT_S
        store = self.node.directory / "data" / "msg_stores" / "vhosts"
        # The content file that the next write would go to remains.
        while (size := disk_bytes(store)) > EMPTY_BYTES or len(
            list(store.glob("*/msg_store_*/*.rdq"))
        ) > 1:
            assert time.monotonic() < deadline, (
                f"{size / MIB:.1f} MiB stay on the disk: {self._listing()}"
            )
            time.sleep(0.2)

    def _listing(self) -> str:
        data = self.node.directory / "data"
        files = [
            (path.stat().st_size, str(path.relative_to(data)))
            for path in data.rglob("*")
            if path.is_file()
        ]
        return ", ".join(f"{name} {size}" for size, name in sorted(files, reverse=True)[:40])

    def reached(self) -> dict[str, int]:
        """Highest numbers of the store's files: how often files were begun and deleted."""
        store = self.node.directory / "data" / "msg_stores" / "vhosts" / "1"
        return {
            "journal files": highest(store / "journal", ".wal"),
            "content files": highest(store / "msg_store_persistent", ".rdq"),
        }


def read_all(channel: ChannelPeer, queue: bytes) -> list[Message]:
    """Consume every message of the queue without acks; some may expire meanwhile."""
    count = channel.count(queue)
    tag = channel.consume(queue)
    while len(channel.events) < count:
        if not channel.peer.read(1.0) and channel.count(queue) == 0:
            break
    channel.cancel(tag)
    messages = [item for item in channel.events if isinstance(item, Message)]
    channel.events.clear()
    return messages


def disk_bytes(directory: Path) -> int:
    """Bytes that the files of a directory take on disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def highest(directory: Path, suffix: str) -> int:
    """The highest number among the file names; 0 when there is none."""
    return max((int(path.stem) for path in directory.glob(f"*{suffix}")), default=0)
