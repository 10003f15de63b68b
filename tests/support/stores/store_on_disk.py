"""A store on a real disk, worked by hand, for tests that look at the bytes it leaves."""

from pathlib import Path

from tests.support.stores.journal_driver import STORE_ID
from warren.store.disk.flusher import BatchFlusher, FlushJob
from warren.store.disk.job_runner import JobRunner
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.disk.store_reader import read_store
from warren.store.message import Message, Position, QueueLog
from warren.store.queue_store import QueueStore
from warren.store.store_settings import StoreSettings

# Messages of this size and more have their content in the content store.
EMBED_BELOW = 256


class Store:
    """Queues 1 and 2 on a real disk, committed by hand."""

    def __init__(self, path: Path, content_file_size_limit: int = 1 << 20) -> None:
        self.files = LocalFileSystem(path)
        settings = StoreSettings(1 << 20, content_file_size_limit, EMBED_BELOW)
        self.store, _, _ = read_store(self.files, STORE_ID, settings)
        self.flusher = BatchFlusher(self.files)
        self.runner = JobRunner(self.files, STORE_ID)
        self.queues = {number: self.store.add_queue(QueueLog(number), True) for number in (1, 2)}
        self.now_ms = 1_700_000_000_000

    def message(self, body: bytes) -> Message:
        return Message(b"\x02ex\x03key", b"\x10\x00\x02", body, True, self.now_ms)

    def publish(self, message: Message, *queue_ids: int, expiry_ms: int = 0) -> list[Position]:
        positions = [place(self.queues[queue_id], message, expiry_ms) for queue_id in queue_ids]
        for position, queue_id in zip(positions, queue_ids, strict=True):
            self.queues[queue_id].publish(position, self.now_ms)
        return positions

    def settle(self, *positions: Position) -> None:
        for settled in positions:
            self.queues[int(settled.log.queue_id)].settle(settled, self.now_ms)

    def commit(self) -> None:
        self.now_ms += 25
        batch = self.store.journal.seal()
        self.store.advance(self.now_ms)
        job = FlushJob(self.store.journal, batch, self.flusher, lambda _changes: None)
        if batch.has_work():
            self.flusher.flush(job)
        assert job.error is None
        self.store.on_batch_done(batch, True, self.now_ms)
        while jobs := self.store.take_jobs(self.now_ms):
            for store_job in jobs:
                self.runner.run(store_job)
                assert store_job.error is None
                store_job.finished()

    def close(self) -> None:
        self.flusher.close()
        self.runner.close()
        self.files.release()


def place(queue: QueueStore, message: Message, expiry_ms: int = 0) -> Position:
    log = queue.log
    log.next_seq += 1
    return Position(message, log, log.next_seq - 1, expiry_ms)
