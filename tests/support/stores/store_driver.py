"""Drives the whole store of a vhost by hand, on any file system; all parts are the real ones.

    StoreDriver     opens, flushes, runs jobs and crashes; the queues are the test's or a broker's
    CheckedStore    a StoreDriver with three queues, which knows every body that they must deliver
    RunnerDriver    a job runner without a store, on a directory whose calls fail on command

Flushes and jobs run at once, on the caller's thread. Time moves only with `turn` and `commit`, or
by the argument `now_ms`.
"""

import random
from pathlib import Path

from tests.support.stores.failing_files import FailingFiles
from tests.support.stores.made_files import STORE_ID, message_of
from warrenmq.store.disk.files import read_whole
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.store_reader import StoreReport, read_store
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.losses import LossReport
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.jobs.job import LoadDone, StoreJob, WriteCheckpoint
from warrenmq.store.journal.batch import Batch
from warrenmq.store.model.message import (
    INDEXED,
    PENDING,
    JournalFile,
    Message,
    Position,
    QueueLedger,
)
from warrenmq.store.model.store_host import StoreHost
from warrenmq.store.settings import StoreSettings

START_MS = 1_700_000_000_000
TURN_MS = 30
# Queue ids of a CheckedStore.
QUEUES = (1, 2, 3)
# Small limits, so that a few messages fill files: journal file, content file, embed below (all
# bytes), entries of a segment.
SETTINGS = (4096, 8192, 256, 8)


_open_drivers: list["StoreDriver"] = []


def close_drivers() -> None:
    """Close the drivers that a test has left open: a compiled engine is never collected."""
    while _open_drivers:
        _open_drivers[-1].close()


class StoreDriver:
    """A VhostStore on `disk`: a file system, or a directory that each `open` opens anew.

    A crash is an `open` after `close`; neither flushes what the store has gathered.
    """

    def __init__(self, disk: FileSystem | Path, settings: StoreSettings) -> None:
        self.disk = disk
        self.settings = settings
        self.now_ms = START_MS
        self.open()

    def open(self) -> StoreReport:
        """Start from the disk, without queues: `add_queue` them, or adopt those of `replay`."""
        self.files: FileSystem = (
            LocalFileSystem(self.disk) if isinstance(self.disk, Path) else self.disk
        )
        self.store, self.replay, self.report = read_store(self.files, STORE_ID, self.settings)
        self.flusher = BatchFlusher(self.files)
        self.runner = JobRunner(self.files, STORE_ID)
        self.queues: dict[int, QueueStore] = {}
        _open_drivers.append(self)
        return self.report

    def close(self) -> None:
        """Close all files that this driver has opened, as the end of the process does."""
        _open_drivers.remove(self)
        self.flusher.close()
        self.runner.close()
        if isinstance(self.files, LocalFileSystem) and self.files is not self.disk:
            self.files.release()

    def reopen(self) -> StoreReport:
        """Crash and start again."""
        self.close()
        return self.open()

    # -- flushes and jobs --------------------------------------------------------------------------

    def flush(self, batch: Batch, now_ms: int) -> Exception | None:
        """Write a sealed batch and report the end to the store; returns the error of the write."""
        job = FlushJob(self.store.journal, batch, self.flusher, lambda changes: None)
        if batch.has_work():
            self.flusher.flush(job)
        self.store.on_batch_done(batch, job.error is None, now_ms)
        return job.error

    def fail(self, batch: Batch, now_ms: int) -> None:
        """Let a sealed batch fail before any of it reaches the disk."""
        # A flusher closes its files after a failure, and the next batch begins new ones.
        self.flusher.close()
        self.store.on_batch_done(batch, False, now_ms)

    def run_jobs(self, now_ms: int) -> list[StoreJob]:
        """Run the jobs that are due at `now_ms`, and return them; more may be due afterwards."""
        jobs: list[StoreJob] = self.store.take_jobs(now_ms)
        for job in jobs:
            self.runner.run(job)
            job.finished()
        return jobs

    def run_all_jobs(self) -> list[Exception]:
        """Run jobs until none is left; returns the errors of failed jobs."""
        errors: list[Exception] = []
        while jobs := self.run_jobs(self.now_ms):
            errors += [job.error for job in jobs if job.error is not None]
        return errors

    def finish_jobs(self) -> None:
        """Run jobs until none is left; all must succeed."""
        assert self.run_all_jobs() == []

    def turn(self) -> list[Exception]:
        """Run a turn TURN_MS later: group commit, then jobs; returns the errors."""
        self.now_ms += TURN_MS
        batch = self.store.journal.seal()
        self.store.advance(self.now_ms)
        error = self.flush(batch, self.now_ms)
        errors = self.run_all_jobs()
        return errors if error is None else [error, *errors]

    def commit(self) -> None:
        """Run a turn in which nothing may fail."""
        assert self.turn() == []

    # -- queues ------------------------------------------------------------------------------------

    def add_queue(self, queue_id: int) -> QueueStore:
        """Add a durable queue with the messages that recovery found; returns its store."""
        queue = self.store.add_queue(QueueLedger(queue_id), True)
        recovered = self.replay.queues.get(queue_id)
        if recovered is not None:
            self.store.adopt(queue, recovered)
        self.queues[queue_id] = queue
        return queue

    def place(self, queue_id: int, placed: Message, expiry_ms: int = 0) -> Position:
        """The next position of a queue, unknown to journal and index."""
        ledger = self.queues[queue_id].ledger
        ledger.next_seq += 1
        return Position(placed, ledger, ledger.next_seq - 1, expiry_ms)

    def publish_message(
        self, published: Message, *queue_ids: int, expiry_ms: int = 0
    ) -> list[Position]:
        """Journal a message for these queues; durable with the next `commit`."""
        positions = [self.place(queue_id, published, expiry_ms) for queue_id in queue_ids]
        for position in positions:
            self.queues[int(position.ledger.queue_id)].append(position, self.now_ms)
        return positions

    def settle_one(self, position: Position) -> None:
        """Ack a message; durable with the next `commit`."""
        self.queues[int(position.ledger.queue_id)].settle(position, self.now_ms)


class Loaded(LoadDone):
    """Keeps the answer to a load."""

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.next_seq = -1
        self.lost: list[Position] = []

    def on_loaded(self, positions: list[Position], next_seq: int) -> None:
        self.positions = positions
        self.next_seq = next_seq

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        self.positions = positions
        self.lost = lost


class Owner(StoreHost):
    """Moves to the index whatever the store asks for."""

    def __init__(self, driver: "CheckedStore") -> None:
        self.driver = driver
        # Positions that a queue has both in memory and in its index; tests fill the list.
        self.in_memory: list[Position] = []

    def retire(self, file: JournalFile) -> bool:
        for ledger, end in zip(file.ledgers, file.ends, strict=True):
            self.driver.index(ledger.queue_id, end)
        return True

    def index(self, queue_id: int, upto: int, limit: int) -> None:
        self.driver.index(queue_id, upto, limit)

    def is_empty(self, queue_id: int) -> bool:
        return not self.driver.bodies[queue_id]

    def indexed_in_memory(self, queue_id: int, first: int, end: int) -> list[Position]:
        return [
            position
            for position in self.in_memory
            if position.ledger.queue_id == queue_id and first <= position.seq < end
        ]


class Losses(LossReport):
    """Counts lost messages and contents, and lists the places of damage."""

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


class CheckedStore(StoreDriver):
    """A store in directory `path` that knows the bodies that its QUEUES must deliver."""

    def __init__(self, path: Path, settings: tuple[int, ...] = SETTINGS) -> None:
        self.path = path
        # Bodies that must be delivered, by queue id and seq id.
        self.bodies: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
        # Positions in memory, by queue id and seq id.
        self.positions: dict[int, dict[int, Position]] = {}
        self.last_number = 0
        path.mkdir(parents=True, exist_ok=True)
        super().__init__(path, StoreSettings(*settings))

    def open(self) -> StoreReport:
        """Start from the disk and take a first checkpoint, as a node does."""
        report = super().open()
        self.owner = Owner(self)
        self.losses = Losses()
        self.store.set_host(self.owner, self.losses)
        for queue_id in QUEUES:
            queue = self.add_queue(queue_id)
            recovered = self.replay.queues.get(queue_id)
            found = recovered.in_order() if recovered is not None else []
            self.positions[queue_id] = {
                position.seq: _moved(position, queue.ledger) for position in found
            }
        self.store.journal.request_file()
        self.checkpoint()
        return report

    # -- what a broker does ------------------------------------------------------------------------

    def publish(self, size: int, *queue_ids: int, persistent: bool = True) -> bytes:
        """Publish a body of about `size` bytes to these queues; durable with the next `commit`."""
        self.last_number += 1
        body = b"%d." % self.last_number + b"x" * size
        published = message_of(body, self.now_ms, persistent)
        if persistent:
            positions = self.publish_message(published, *queue_ids)
        else:
            positions = [self.place(queue_id, published) for queue_id in queue_ids]
        for queue_id, position in zip(queue_ids, positions, strict=True):
            self.positions[queue_id][position.seq] = position
            if persistent:
                self.bodies[queue_id][position.seq] = body
        return body

    def index(self, queue_id: int, end: int = 1 << 62, limit: int = 1 << 62) -> None:
        """Index at most `limit` positions that the queue has in memory below `end`."""
        queue = self.queues[queue_id]
        known = self.positions[queue_id]
        wanted = [known[seq] for seq in sorted(known) if queue.ledger.indexed_upto <= seq < end]
        moved: list[Position] = []
        for position in wanted[:limit]:
            if position.journal_state == PENDING:
                break
            moved.append(position)
        queue.index(moved)
        if len(moved) == len(wanted):
            queue.index_range_done(min(end, queue.ledger.next_seq))
        for position in moved:
            del known[position.seq]
        self.finish_jobs()

    def checkpoint(self) -> None:
        """Take a checkpoint, whether it is due or not."""
        before = self.store.checkpoints.count
        self.store.checkpoints.want()
        for _ in range(3):
            self.commit()
        assert self.store.checkpoints.count > before

    def load(self, queue_id: int, count: int = 1 << 40) -> list[Position]:
        """Load the oldest `count` messages of a queue: first those in its index."""
        queue = self.queues[queue_id]
        found: list[Position] = []
        next_seq = 0
        while next_seq < queue.ledger.indexed_upto and len(found) < count:
            loaded = Loaded()
            queue.load(next_seq, queue.ledger.indexed_upto, count - len(found), 1 << 40, loaded)
            self.finish_jobs()
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
            self.finish_jobs()
            for position in filled.lost:
                queue.lose(position)
            resident = [position for position in resident if position not in filled.lost]
        return found + resident

    def settle(self, queue_id: int, count: int = 1 << 40) -> None:
        """Consume the oldest messages of a queue; durable with the next `commit`."""
        for position in self.load(queue_id, count):
            self.settle_one(position)

    def settle_one(self, position: Position) -> None:
        """See StoreDriver."""
        queue_id = int(position.ledger.queue_id)
        if position.journal_state != INDEXED:
            self.positions[queue_id].pop(position.seq)
        self.bodies[queue_id].pop(position.seq, None)
        super().settle_one(position)

    def churn(self, rng: random.Random, steps: int) -> None:
        """Publish, settle, commit, index and checkpoint in random order; end with a commit."""
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

    # -- what must hold ----------------------------------------------------------------------------

    def found(self, queue_id: int) -> dict[int, bytes]:
        """The persistent bodies that a queue delivers, by seq id."""
        return {
            position.seq: position.message.body
            for position in self.load(queue_id)
            if position.persistent
        }

    def check(self) -> None:
        """Assert that each queue delivers exactly its bodies, unchanged and in order."""
        for queue_id in QUEUES:
            found = self.found(queue_id)
            assert list(found) == sorted(found)
            assert found == self.bodies[queue_id]
        self.store.check()


def _moved(found: Position, ledger: QueueLedger) -> Position:
    position = Position(found.message, ledger, found.seq, found.expiry_ms)
    position.journal_state = found.journal_state
    position.has_content = found.has_content
    position.content_ref = found.content_ref
    position.content_bytes = found.content_bytes
    position.body_bytes = found.body_bytes
    return position


class RunnerDriver:
    """A job runner in directory `path`, with faults; its pauses take no time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.local = LocalFileSystem(path)
        self.faults = FailingFiles(self.local)
        self.pauses: list[float] = []
        self.runner = JobRunner(self.faults, STORE_ID, self.pauses.append)

    def run(self, job: StoreJob) -> Exception | None:
        """Run a job; returns its error."""
        self.runner.run(job)
        return job.error

    def must(self, job: StoreJob) -> None:
        """Run a job that must succeed."""
        assert self.run(job) is None

    def read(self, path: str) -> bytes:
        """The bytes of a file, read without faults."""
        return read_whole(self.local, path)

    def checkpoint(
        self, content: bytes, *sync_paths: str, delete: list[str] | None = None
    ) -> WriteCheckpoint:
        """The job of a checkpoint that relies on `sync_paths` and then deletes `delete`."""
        return WriteCheckpoint([content], list(sync_paths), list(sync_paths), delete or [])

    def close(self) -> None:
        """Close all files; every handle must have been closed."""
        self.faults.heal()
        self.runner.close()
        assert self.faults.open_handles == set()
        self.local.release()
