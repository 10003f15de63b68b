"""A flusher on real files, with a disk on which chosen calls fail, and the journal it serves."""

import queue
import select
from collections.abc import Callable
from pathlib import Path

from tests.support.stores.dict_disk.disk import DictDisk
from tests.support.stores.dict_disk.journal_driver import JournalDriver
from tests.support.stores.failing_files import FailingFiles
from warrenmq.store.contents.store import ContentWrite
from warrenmq.store.disk.files import JOURNAL_DIRECTORY
from warrenmq.store.disk.flusher import BatchFlusher, Flusher, FlushJob
from warrenmq.store.disk.kernel_syncs import KernelSyncs
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.journal.batch import Batch


class FlushedDisk:
    """A journal whose batches a flusher writes to files, with faults; `syncs` are the kernel's."""

    def __init__(self, path: Path, syncs: KernelSyncs | None = None) -> None:
        self.path = path / JOURNAL_DIRECTORY
        self.path.mkdir()
        self.contents = path / "contents"
        self.contents.mkdir()
        self.local = LocalFileSystem(path)
        self.faults = FailingFiles(self.local)
        self.batch_flusher = BatchFlusher(self.faults)
        self.done: queue.SimpleQueue[FlushJob] = queue.SimpleQueue()
        self.syncs = syncs
        self.flusher = Flusher(self.done.put, syncs)
        self.driver = JournalDriver(2000)
        self.apply: Callable[[list[object]], None] = lambda changes: None

    def commit(self, *content_writes: ContentWrite) -> Exception | None:
        """Run a group commit, inform the oracle, and return the error of the commit."""
        driver = self.driver
        driver.seal()
        flight = driver.in_flight
        assert flight is not None
        flight.batch.content_writes = list(content_writes)
        job = self.run(self.job(flight.batch))
        # The journal's content store never had these contents, but would look for them.
        flight.batch.content_writes = []
        driver.land(job.error is None)
        driver.check_recovery(self.files())
        return job.error

    def job(self, batch: Batch) -> FlushJob:
        """The job that makes a sealed batch durable."""
        return FlushJob(self.driver.journal, batch, self.batch_flusher, self.apply)

    def run(self, job: FlushJob) -> FlushJob:
        """Submit a job and wait for its end, on the thread or in the kernel."""
        self.flusher.submit(job)
        if self.flusher.is_syncing:
            self.end_sync()
        found = self.done.get(timeout=20)
        assert found is job
        return found

    def end_sync(self) -> None:
        """Wait for the kernel, and end the job that it has synced."""
        assert self.syncs is not None
        assert select.select([self.syncs.event], [], [], 20)[0]
        job = self.flusher.end_sync()
        if job is not None:
            self.done.put(job)

    def crash(self) -> None:
        """Restart from the files on disk."""
        self.driver.files = DictDisk(self.files())
        self.driver.crash()

    def files(self) -> dict[int, bytes]:
        """The journal files on disk, as recovery reads them."""
        found = {int(path.stem): path.read_bytes() for path in self.path.iterdir()}
        return {number: data for number, data in found.items() if len(data) >= 40}

    def numbers(self) -> list[int]:
        """The numbers in the names of the journal files (`<number>.wal`) on disk."""
        return sorted(int(path.stem) for path in self.path.iterdir())

    def content_files(self) -> dict[str, bytes]:
        """The content files on disk."""
        return {path.name: path.read_bytes() for path in sorted(self.contents.iterdir())}

    def close(self) -> None:
        """End the thread and close all files."""
        self.flusher.stop()
        self.batch_flusher.close()
        assert self.faults.open_handles == set()
        self.local.release()
