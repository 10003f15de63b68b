"""The flusher: one thread that makes batches durable, in the order in which they were sealed.

A batch's metadata changes are committed first (a queue must exist before its messages), then its bytes are written
and synced, then dead files are deleted, oldest first: an ack must not be gone while its publish is there. A step that
fails before the deletions fails the batch and closes the file; the journal answers by starting a new one (W27). The
thread holds the interpreter lock only between system calls.

Space is allocated ahead of the writing, since a sync that must also make a new file size durable takes almost twice as
long (medians of 242 against 168 us for 200 bytes on ext4). Nothing depends on it: where a file ends is found by its records (W26).
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warren.store.disk.files import journal_path, sync_directory
from warren.store.journal import Batch, Journal

logger = logging.getLogger("warren.flusher")

# Bytes allocated ahead.
_ALLOCATE_BYTES: Final = 8388608
# Longest list one writev takes (POSIX guarantees 16, Linux has 1024).
_IOV_MAX: Final = 1024


class FlushJob:
    """One batch of one journal on its way to the disk; `error` is set when it failed."""

    __slots__ = ("apply_changes", "batch", "directory", "error", "journal")

    def __init__(
        self, journal: Journal, batch: Batch, directory: Path, apply_changes: Callable[[list[object]], None]
    ) -> None:
        self.journal = journal
        self.batch = batch
        self.directory = directory
        self.apply_changes = apply_changes
        self.error: Exception | None = None


class _OpenFile:
    """The journal file being written: its durable bytes so far, and up to where there is space for it."""

    __slots__ = ("allocated", "descriptor", "synced")

    def __init__(self, path: Path) -> None:
        # Never over an existing file: what is there is somebody's data.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o640)
        self.synced = 0
        self.allocated = 0

    def append(self, parts: list[bytes]) -> None:
        """Write `parts` and make them durable."""
        size = sum(map(len, parts))
        if self.synced + size > self.allocated:
            self._allocate(self.synced + size + _ALLOCATE_BYTES)
        _write_all(self.descriptor, parts)
        os.fdatasync(self.descriptor)
        self.synced += size

    def close(self) -> None:
        """Cut off what was allocated in vain or is left of a failed batch, and close.

        A failure leaves that at the end; the journal does not rely on it. It is no news: what counts is synced.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, self.synced)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    def _allocate(self, upto: int) -> None:
        # Without the space, or on a file system that cannot, writing shows what is possible.
        with contextlib.suppress(OSError):
            os.posix_fallocate(self.descriptor, self.allocated, upto - self.allocated)
        self.allocated = upto


class Flusher:
    """Owns the thread and the open journal files. `notify(job)` is called on the thread when a job is finished."""

    def __init__(self, notify: Callable[[FlushJob], None]) -> None:
        self._notify = notify
        self._jobs: queue.SimpleQueue[FlushJob | None] = queue.SimpleQueue()
        self._open_files: dict[Path, _OpenFile] = {}
        self._thread = threading.Thread(target=self._run, name="warren-flusher", daemon=True)
        self._thread.start()

    def submit(self, job: FlushJob) -> None:
        """Hand over a job; jobs run one after another."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was submitted, close the files and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._flush(job)
            except (
                Exception
            ) as error:  # Any failure (disk, SQLite) fails this batch only; the journal nacks it.
                job.error = error
                self._abandon(job)
            self._notify(job)
        for directory in list(self._open_files):
            self._close(directory)

    def _flush(self, job: FlushJob) -> None:
        batch = job.batch
        if batch.changes:
            job.apply_changes(batch.changes)
        if batch.parts:
            self._file_for(job).append(batch.parts)
            if batch.starts_file:
                # The new name must survive a power loss as well as its content does (W28).
                sync_directory(job.directory)
        if batch.delete_files:
            _delete(job.directory, batch)

    def _file_for(self, job: FlushJob) -> _OpenFile:
        if job.batch.starts_file:
            self._close(job.directory)
            self._open_files[job.directory] = _OpenFile(journal_path(job.directory, job.batch.file_number))
            job.batch.created_file = True
        return self._open_files[job.directory]

    def _abandon(self, job: FlushJob) -> None:
        # What the failed batch left is not worth keeping, and a full disk must not fill with empty files.
        self._close(job.directory)
        if job.batch.created_file:
            with contextlib.suppress(OSError):
                journal_path(job.directory, job.batch.file_number).unlink(missing_ok=True)

    def _close(self, directory: Path) -> None:
        file = self._open_files.pop(directory, None)
        if file is not None:
            file.close()


def _delete(directory: Path, batch: Batch) -> None:
    """Delete the batch's dead files. The batch is durable already, so a failure here only delays the deletion."""
    remaining = list(batch.delete_files)
    try:
        while remaining:
            journal_path(directory, remaining[0]).unlink(missing_ok=True)
            remaining.pop(0)
        # Before a later batch deletes files that acknowledge what was in these.
        sync_directory(directory)
    except OSError as error:
        logger.warning("journal files cannot be deleted, it is tried again later: %s", error)
        batch.undeleted = remaining


def _write_all(descriptor: int, parts: list[bytes]) -> None:
    """Write all of `parts`; a short write is continued where it stopped."""
    pending: list[bytes | memoryview] = list(parts)
    start = 0
    while start < len(pending):
        window = pending[start : start + _IOV_MAX]
        written = os.writev(descriptor, window)
        for part in window:
            if written < len(part):
                pending[start] = memoryview(part)[written:]
                break
            written -= len(part)
            start += 1
