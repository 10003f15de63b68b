"""The store of a vhost on a real directory, driven by hand: the engine, its jobs and its flusher, without a broker.

Queues are ids from 1 up; a message is what its body says. The driver knows which bodies each queue must hold.
"""

import random
from pathlib import Path

from warren.store.disk.flusher import BatchFlusher, FlushJob
from warren.store.disk.job_runner import JobRunner
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.disk.store_reader import StoreReport, read_store
from warren.store.jobs import LoadDone
from warren.store.losses import LossReport
from warren.store.message import INDEXED, PENDING, JournalFile, Message, Position, QueueLog
from warren.store.queue_store import QueueStore
from warren.store.store_owner import StoreOwner
from warren.store.store_settings import StoreSettings
from warren.store.vhost_store import VhostStore

STORE_ID = bytes(range(16))
QUEUES = (1, 2, 3)
# Small, so that a few messages fill files: journal, content file, embed below, entries of a segment.
SETTINGS = (4096, 8192, 256, 8)


class Loaded(LoadDone):
    """What a load brought."""

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.next_seq = -1
        self.damaged = 0
        self.lost: list[Position] = []

    def on_loaded(self, positions: list[Position], next_seq: int, damaged: int) -> None:
        self.positions = positions
        self.next_seq = next_seq
        self.damaged = damaged

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        self.positions = positions
        self.lost = lost


class Owner(StoreOwner):
    """Moves what is asked for."""

    def __init__(self, driver: "EngineDriver") -> None:
        self.driver = driver
        # What a queue would have in memory although it is in the index.
        self.in_memory: list[Position] = []

    def retire(self, file: JournalFile) -> bool:
        for log, end in zip(file.logs, file.ends, strict=True):
            self.driver.index(log.queue_id, end)
        return True

    def index(self, queue_id: int, upto: int, limit: int) -> None:
        self.driver.index(queue_id, upto, limit)

    def is_empty(self, queue_id: int) -> bool:
        return not self.driver.bodies[queue_id]

    def indexed_in_memory(self, queue_id: int, first: int, end: int) -> list[Position]:
        return [
            position
            for position in self.in_memory
            if position.log.queue_id == queue_id and first <= position.seq < end
        ]


class Report(LossReport):
    """Counts what goes wrong."""

    def __init__(self) -> None:
        self.damage: list[tuple[str, int, int]] = []
        self.lost = 0

    def on_damage(self, queue_id: int, path: str, offset: int, size: int) -> None:
        self.damage.append((path, offset, size))

    def on_lost(self, queue_id: int, count: int, first_seq: int, last_seq: int, cause: str) -> None:
        assert count > 0 and first_seq <= last_seq
        self.lost += count

    def on_content_lost(self, directory: str, content_id: int) -> None:
        self.lost += 1


class EngineDriver:
    """`open` starts on what is there; to leave without `close` is a crash."""

    def __init__(self, path: Path, settings: tuple[int, ...] = SETTINGS) -> None:
        self.path = path
        self.settings = StoreSettings(*settings)
        # By queue and seq id, what must be delivered, and the positions that are in memory.
        self.bodies: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
        self.positions: dict[int, dict[int, Position]] = {}
        self.now_ms = 1000
        self.count = 0
        path.mkdir(parents=True, exist_ok=True)
        self.open()

    def open(self) -> StoreReport:
        """Read what is there and take a first checkpoint, as a node does."""
        self.files = LocalFileSystem(self.path)
        self.store: VhostStore
        self.store, replay, self.report = read_store(self.files, STORE_ID, self.settings)
        self.owner = Owner(self)
        self.losses = Report()
        self.store.set_owner(self.owner, self.losses)
        self.runner = JobRunner(self.files, STORE_ID)
        self.flusher = BatchFlusher(self.files)
        self.queues: dict[int, QueueStore] = {}
        for queue_id in QUEUES:
            queue = self.store.add_queue(QueueLog(queue_id), True)
            self.queues[queue_id] = queue
            self.positions[queue_id] = {}
            recovered = replay.queues.get(queue_id)
            if recovered is not None:
                self.store.adopt(queue, recovered)
                for found in recovered.in_order():
                    self.positions[queue_id][found.seq] = _moved(found, queue.log)
        self.store.journal.request_file()
        self.checkpoint()
        return self.report

    def close(self) -> None:
        """Let go of the files."""
        self.flusher.close()
        self.runner.close()
        self.files.release()

    def reopen(self) -> StoreReport:
        """Crash and start."""
        self.close()
        return self.open()

    # -- what a broker does ------------------------------------------------------------------------------------------

    def publish(self, size: int, *queue_ids: int, persistent: bool = True) -> bytes:
        """A message with a body of about `size` bytes for these queues; durable with the next `commit`."""
        self.count += 1
        body = b"%d." % self.count + b"x" * size
        message = Message(b"\x01e\x01k", b"\x00\x00", body, persistent, self.now_ms)
        for queue_id in queue_ids:
            queue = self.queues[queue_id]
            position = Position(message, queue.log, queue.log.next_seq, 0)
            queue.log.next_seq += 1
            if persistent:
                queue.publish(position, self.now_ms)
                self.bodies[queue_id][position.seq] = body
            self.positions[queue_id][position.seq] = position
        return body

    def commit(self) -> None:
        """Seal, flush, and run the jobs that are due."""
        self.now_ms += 30
        store = self.store
        batch = store.journal.seal()
        store.advance(self.now_ms)
        job = FlushJob(store.journal, batch, self.flusher, lambda changes: None)
        if batch.has_work():
            self.flusher.flush(job)
        assert job.error is None, job.error
        store.on_batch_done(batch, True, self.now_ms)
        self.run_jobs()

    def run_jobs(self) -> None:
        while jobs := self.store.take_jobs(self.now_ms):
            for job in jobs:
                self.runner.run(job)
                assert job.error is None, job.error
                job.finished()

    def index(self, queue_id: int, end: int = 1 << 62, limit: int = 1 << 62) -> None:
        """Move what the queue has in memory, up to `end`, to its index, at most `limit`."""
        queue = self.queues[queue_id]
        known = self.positions[queue_id]
        wanted = [known[seq] for seq in sorted(known) if queue.log.indexed_upto <= seq < end]
        moved: list[Position] = []
        for position in wanted[:limit]:
            if position.journal_state == PENDING:
                break
            moved.append(position)
        queue.index(moved)
        if len(moved) == len(wanted):
            queue.index_range_done(min(end, queue.log.next_seq))
        for position in moved:
            del known[position.seq]
        self.run_jobs()

    def checkpoint(self) -> None:
        """Take a checkpoint, whether it is due or not."""
        before = self.store.checkpoints.count
        self.store.checkpoints.want()
        for _ in range(3):
            self.commit()
        assert self.store.checkpoints.count > before

    def load(self, queue_id: int, count: int = 1 << 40) -> list[Position]:
        """The oldest messages of a queue, from its index first."""
        queue = self.queues[queue_id]
        found: list[Position] = []
        next_seq = 0
        while next_seq < queue.log.indexed_upto and len(found) < count:
            loaded = Loaded()
            queue.load(next_seq, queue.log.indexed_upto, count - len(found), 1 << 40, loaded)
            self.run_jobs()
            assert loaded.next_seq > next_seq
            next_seq = loaded.next_seq
            for position in loaded.positions:
                if position.has_content:
                    found.append(position)
                else:
                    queue.lose(position)
        resident = [self.positions[queue_id][seq] for seq in sorted(self.positions[queue_id])]
        resident = resident[: max(count - len(found), 0)]
        absent = [position for position in resident if not position.has_content]
        if absent:
            filled = Loaded()
            queue.load_contents(absent, filled)
            self.run_jobs()
            for position in filled.lost:
                queue.lose(position)
            resident = [position for position in resident if position not in filled.lost]
        return found + resident

    def settle(self, queue_id: int, count: int = 1 << 40) -> None:
        """Consume the oldest messages of a queue; durable with the next `commit`."""
        for position in self.load(queue_id, count):
            self.settle_one(queue_id, position)

    def settle_one(self, queue_id: int, position: Position) -> None:
        if position.journal_state != INDEXED:
            self.positions[queue_id].pop(position.seq)
        self.bodies[queue_id].pop(position.seq, None)
        self.queues[queue_id].settle(position, self.now_ms)

    def churn(self, rng: random.Random, steps: int) -> None:
        """What a broker does, in all orders; ends with a commit."""
        for _ in range(steps):
            choice = rng.random()
            if choice < 0.5:
                sizes = (0, 10, 200, 300, 1000, 3000)
                self.publish(rng.choice(sizes), *rng.sample(QUEUES, rng.randrange(1, 4)))
            elif choice < 0.72:
                self.commit()
            elif choice < 0.9:
                self.settle(rng.choice(QUEUES), rng.randrange(1, 6))
            elif choice < 0.97:
                self.index(rng.choice(QUEUES))
            else:
                self.checkpoint()
        self.commit()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def found(self, queue_id: int) -> dict[int, bytes]:
        """What a queue delivers, by seq id."""
        return {
            position.seq: position.message.body for position in self.load(queue_id) if position.persistent
        }

    def check(self) -> None:
        """All that must be there is there, as it was, in order, and nothing else."""
        for queue_id in QUEUES:
            found = self.found(queue_id)
            assert list(found) == sorted(found)
            assert found == self.bodies[queue_id]
        self.store.contents.persistent.check()


def _moved(found: Position, log: QueueLog) -> Position:
    position = Position(found.message, log, found.seq, found.expiry_ms)
    position.journal_state = found.journal_state
    position.has_content = found.has_content
    position.content = found.content
    position.content_bytes = found.content_bytes
    position.body_bytes = found.body_bytes
    return position
