"""The store of a vhost on a file system in memory, whose jobs run at once on the caller's thread."""

from warren.store.disk.files import load_store_id
from warren.store.disk.flusher import BatchFlusher, FlushJob
from warren.store.disk.job_runner import JobRunner
from warren.store.disk.store_reader import StoreReport, read_store
from warren.store.file_system import FileSystem
from warren.store.journal import Batch
from warren.store.recovery import JournalReplay
from warren.store.store_settings import StoreSettings
from warren.store.vhost_store import VhostStore

STORE_ID = b"0123456789abcdef"


class MemoryStore:
    """A VhostStore as it is in `files`, and what runs its batches and jobs."""

    def __init__(self, files: FileSystem, settings: StoreSettings) -> None:
        files.make_directories("journal")
        self.files = files
        store_id = load_store_id(files, lambda size: STORE_ID[:size])
        found: tuple[VhostStore, JournalReplay, StoreReport] = read_store(files, store_id, settings)
        self.store, self.replay, self.report = found
        self.flusher = BatchFlusher(files)
        self.runner = JobRunner(files, store_id)

    def flush(self, batch: Batch, now_ms: int, ok: bool = True) -> bool:
        """Make a sealed batch durable by now (ms), or let it fail without a trace; whether it is durable."""
        job = FlushJob(self.store.journal, batch, self.flusher, lambda changes: None)
        if not ok:
            # The flusher closes its files then, and the next batch begins new ones.
            self.flusher.close()
        elif batch.has_work():
            self.flusher.flush(job)
        ok = ok and job.error is None
        self.store.on_batch_done(batch, ok, now_ms)
        return ok

    def run_jobs(self, now_ms: int) -> bool:
        """Run what the store wants to have run; was there anything?"""
        jobs = self.store.take_jobs(now_ms)
        for job in jobs:
            self.runner.run(job)
            job.finished()
        return bool(jobs)
