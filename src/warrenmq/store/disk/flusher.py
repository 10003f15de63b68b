"""The flusher: makes the batches of a journal durable, in the order in which they were sealed.

A batch takes these steps in order:

1. Its changes of definitions are stored, since a queue must exist before its messages. A change set
   that cannot be stored fails alone; the other steps are done in any case.
2. The large contents that it refers to are written and synced.
3. Its journal bytes are written and synced.
4. Dead files are deleted, oldest first: an ack must not be gone while its publish is there.

If step 2 or 3 fails, the batch fails and its files are closed; the journal then starts a new file
(W27). `BatchFlusher` does the work, one batch at a time, on the thread that calls. `Flusher` is the
node's thread that calls it; it holds the interpreter lock only between system calls.

The thread needs that lock before and after each system call, and must wake up to take it. A loop
with much to do gives the lock up only for moments, which are over by then. So a batch takes few
system calls, and the loop waits until the thread has begun it: else most batches would begin when
the loop has nothing to do any more, and loop and disk would work in turns. A batch of few messages
is not waited for: after it the loop is idle soon, and the wait would only wake it once more. Most
of those are short enough to need no thread at all: the loop writes them, and the kernel syncs them.

Space is allocated ahead of the writing, since a sync that must also make a new file size durable
takes almost twice as long (medians of 242 against 168 us for 200 bytes on ext4). Nothing depends on
the file size: the records say where a file ends (W26).
"""

import contextlib
import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from warrenmq.store.contents.store import ContentWrite
from warrenmq.store.disk.files import JOURNAL_DIRECTORY, journal_path
from warrenmq.store.disk.kernel_syncs import KernelSyncs
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileHandle, FileSystem
from warrenmq.store.journal.batch import Batch
from warrenmq.store.journal.change_sets import ChangeSet, DefinitionsError
from warrenmq.store.journal.journal import Journal
from warrenmq.vocabulary.fail_points import fail_point

logger = logging.getLogger("warren.flusher")

# Bytes of a journal file that are allocated ahead of the writing.
_ALLOCATE_BYTES: Final = 8388608
# Consumers keep up when they ack, before the seal, more than one message for so many that stay.
KEPT_UP_SHARE: Final = 8
# Longest time (s) for which the loop waits until an idle thread has begun a batch.
_BEGIN_S: Final = 0.001
# Least number of messages in a batch for which the loop waits.
_AWAITED_MESSAGES: Final = 64
# Most bytes of a short job: copying them to the page cache takes less time than waking a thread.
SHORT_BYTES: Final = 16384
# A write of a short job that takes longer than this (ns) sends the next ones to the thread, for so
# many times as long: writes to the page cache wait only while the system has trouble with a disk.
_SLOW_WRITE_NS: Final = 10_000_000
_AWAY_FACTOR: Final = 1000
# A time (ns) that never comes.
_NEVER_NS: Final = 1 << 62


class FlushJob:
    """One batch of one journal on its way to the disk.

    `apply_changes` stores changes of definitions durably, all or none; any error means none.
    `error` is set when contents or records could not be written, `definitions_error` when a change
    set could not be stored. `flush_ns` tells how long the job took, and `sync_ns` how long the
    records took to be written and synced; 0: it had none.
    """

    __slots__ = (
        "apply_changes",
        "batch",
        "began_ns",
        "begun",
        "definitions_error",
        "error",
        "flush_ns",
        "flusher",
        "journal",
        "sync_ns",
    )

    def __init__(
        self,
        journal: Journal,
        batch: Batch,
        flusher: "BatchFlusher",
        apply_changes: Callable[[list[object]], None],
    ) -> None:
        self.journal = journal
        self.batch = batch
        self.flusher = flusher
        self.apply_changes = apply_changes
        # Held until the flusher's thread begins the job.
        self.begun = threading.Lock()
        self.begun.acquire()
        self.error: Exception | None = None
        self.definitions_error: Exception | None = None
        # When the kernel began to sync the batch, by the monotonic clock.
        self.began_ns = 0
        self.flush_ns = 0
        self.sync_ns = 0

    def is_short(self) -> bool:
        """Whether the job is nothing but one write of few bytes to the open journal file."""
        batch = self.batch
        return (
            0 < batch.part_bytes <= SHORT_BYTES
            and not (batch.change_sets or batch.content_writes or batch.delete_files)
            and not batch.starts_file
            and self.flusher.has_room(batch.part_bytes)
        )


def is_kept_up(batch: Batch) -> bool:
    """Whether consumers keep up with what is published: they ack much of it before its seal.

    What they ack before the seal is never written, so the next batch need not hurry then.
    """
    return batch.settled_count * KEPT_UP_SHARE > len(batch.positions)


class FlusherCall:
    """A function that the flusher's thread calls between two batches.

    All batches submitted before are then durable or have failed, and no later one has begun. `done`
    gets the error or None, on the flusher's thread.
    """

    __slots__ = ("_done", "_function")

    def __init__(
        self, function: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        self._function = function
        self._done = done

    def run(self) -> None:
        """Call the function, then `done`."""
        failure: Exception | None = None
        try:
            self._function()
        except Exception as error:  # No error of the function may end the flusher's thread.
            failure = error
        self._done(failure)


class _JournalFile:
    """The journal file being written, with its durable bytes and the end of its allocated space."""

    __slots__ = ("_allocated", "_handle", "_synced")

    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle
        self._synced = 0
        self._allocated = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit in the allocated space."""
        return self._synced + size <= self._allocated

    def append(self, parts: list[bytes]) -> None:
        """Write and sync `parts`. FileNotFoundError when the file was deleted from outside."""
        size = sum(map(len, parts))
        if not self.has_room(size):
            self._allocate(self._synced + size + _ALLOCATE_BYTES)
        self._handle.write_synced(self._synced, parts)
        self.on_synced(size)

    def write(self, parts: list[bytes]) -> int:
        """Write `parts` without a sync; returns the descriptor of the file, which is to be synced.

        `on_synced` follows, or `append` of the same parts.
        """
        self._handle.write(self._synced, parts)
        return self._handle.descriptor()

    def on_synced(self, size: int) -> None:
        """Count the next `size` bytes, which are synced. FileNotFoundError as with `append`."""
        fail_point("journal.synced")
        # Checking the name takes a microsecond, much less than the sync.
        _check_name(self._handle, "the journal file")
        self._synced += size

    def close(self) -> None:
        """Cut off unused space and the rest of a failed batch, and close; errors are ignored.

        An error leaves such bytes at the end of the file. The journal does not rely on their
        absence, and all bytes that count are synced.
        """
        with contextlib.suppress(OSError):
            self._handle.truncate(self._synced)
        with contextlib.suppress(OSError):
            self._handle.close()

    def _allocate(self, upto: int) -> None:
        # Ignore a full disk and a file system without this call: the write itself shows what is
        # possible.
        with contextlib.suppress(OSError):
            self._handle.allocate(self._allocated, upto - self._allocated)
        self._allocated = upto


def _is_locked(error: Exception) -> bool:
    return isinstance(error, DefinitionsError) and error.is_locked


def _check_name(handle: FileHandle, what: str) -> None:
    """Raise FileNotFoundError for a deleted file: its synced bytes are lost with the handle."""
    if not handle.is_named():
        raise FileNotFoundError(errno.ENOENT, "somebody has deleted it", what)


class _ContentFile:
    """The content file being written; it stays open until another one is written."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._path = ""
        self._handle: FileHandle | None = None
        self._is_dirty = False
        # Files that the last failed batch has begun. One that could not be deleted may lack its
        # header, and a start puts such a file aside with all that was written behind it.
        self.broken_paths: list[str] = []

    def begin(self, path: str) -> None:
        """Create the next file to write; syncs and closes the one before."""
        self.sync()
        self.close()
        self._handle = self._files.create(path)
        self._path = path

    def resume(self, path: str, size: int) -> None:
        """Continue a file behind its first `size` bytes; syncs and closes the one before."""
        if self._handle is not None and self._path == path:
            return
        if path in self.broken_paths:
            raise FileNotFoundError(errno.ENOENT, "the batch that made it has failed", path)
        self.sync()
        self.close()
        self._handle = self._files.open(path)
        self._path = path
        # Bytes behind `size` are the rest of a failed batch, or older than the last crash.
        self._handle.truncate(size)

    def write(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts` at `offset`, without a sync."""
        assert self._handle is not None
        self._is_dirty = True
        self._handle.write(offset, parts)

    def sync(self) -> None:
        """Make everything written so far durable."""
        if self._handle is not None and self._is_dirty:
            self._handle.sync()
            _check_name(self._handle, self._path)
            self._is_dirty = False

    def close(self) -> None:
        """Close the file without a sync; errors are ignored."""
        handle, self._handle = self._handle, None
        self._is_dirty = False
        if handle is not None:
            with contextlib.suppress(OSError):
                handle.close()


class BatchFlusher:
    """Makes the batches of one vhost durable; their paths are relative to its directory `files`."""

    def __init__(self, files: FileSystem, reserve: SpaceReserve | None = None) -> None:
        self._files = files
        self._reserve = reserve
        self._journal_file: _JournalFile | None = None
        self._content_file = _ContentFile(files)
        # Files that the batch under way has created.
        self._made: list[str] = []
        # Change sets that could not be stored, and without which no records may be written.
        self._missing: list[ChangeSet] = []

    def flush(self, job: FlushJob) -> None:
        """Make the job's batch durable; sets `job.error` on failure, and each change set's fate.

        A job that has an error, from `begin` or its sync, fails.
        """
        batch = job.batch
        self._made = []
        if batch.change_sets:
            self._store_definitions(job)
            self._missing += [one for one in batch.change_sets if one.is_needed_by_records]
            self._missing = [one for one in self._missing if not one.is_stored]
        if self._missing:
            job.error = job.definitions_error or DefinitionsError(
                "definitions must be stored first"
            )
            return
        try:
            if job.error is not None:
                raise job.error
            if batch.content_writes:
                self._write_contents(batch.content_writes)
            if batch.parts:
                self._write_journal(job)
        except Exception as error:  # Any failure fails this batch only; the journal nacks it.
            job.error = error
            self._abandon()
            self._open_reserve(error)
            return
        if batch.delete_files:
            self._delete(batch)

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes can be appended to the journal without more space for its file."""
        return self._journal_file is not None and self._journal_file.has_room(size)

    def begin(self, job: FlushJob) -> int:
        """Write a short job's records without a sync; returns the descriptor to be synced.

        `end` follows, or `flush`. Raises OSError.
        """
        assert self._journal_file is not None
        return self._journal_file.write(job.batch.parts)

    def end(self, job: FlushJob) -> None:
        """Count the records of `begin`, which are synced. Raises OSError: the job has failed."""
        assert self._journal_file is not None
        try:
            self._journal_file.on_synced(job.batch.part_bytes)
        except FileNotFoundError:
            job.batch.found.is_file_gone = True
            raise

    def close(self) -> None:
        """Close the files; a later batch must start new ones."""
        self._content_file.close()
        file, self._journal_file = self._journal_file, None
        if file is not None:
            file.close()

    def _store_definitions(self, job: FlushJob) -> None:
        """Store all change sets at once; if that fails, one by one, so that only the bad ones fail.

        A kept set may use the space reserve; any other set is refused when it needs that space.
        After a kept set that could not be stored, no set is stored: the kept set is retried later
        and must not overwrite a newer change then.
        """
        batch_sets = set(job.batch.change_sets)
        # Leave out a set that needs a set which an older batch has refused: the loop's thread did
        # not know of the refusal when it added this one.
        sets = [
            change_set
            for change_set in job.batch.change_sets
            if all(need.is_stored or need in batch_sets for need in change_set.needs)
        ]
        error = self._store(job, sets)
        if error is not None and not _is_locked(error):
            error = self._store_one_by_one(job, sets)
        if error is not None:
            job.definitions_error = error
            self._open_reserve(error)

    def _store_one_by_one(self, job: FlushJob, sets: list[ChangeSet]) -> Exception | None:
        failure: Exception | None = None
        position = 0
        while position < len(sets):
            end = position + 1
            if not all(need.is_stored for need in sets[position].needs):
                position = end
                continue
            # Neighbouring kept sets happened together (a queue is deleted, a group's part in it
            # ends) and are stored together.
            while sets[position].is_kept and end < len(sets) and sets[end].is_kept:
                end += 1
            error = self._store(job, sets[position:end])
            if error is not None and sets[position].is_kept:
                self._open_reserve(error)
                error = self._store(job, sets[position:end])
            if error is not None:
                failure = error
                if sets[position].is_kept or _is_locked(error):
                    break
            position = end
        return failure

    def _store(self, job: FlushJob, sets: list[ChangeSet]) -> Exception | None:
        changes = [change for change_set in sets for change in change_set.changes]
        try:
            if changes:
                job.apply_changes(changes)
        except Exception as error:  # After any error the records and acks must still be written.
            return error
        for change_set in sets:
            change_set.is_stored = True
        return None

    def _open_reserve(self, error: Exception) -> None:
        if self._reserve is not None:
            self._reserve.on_error(error)

    def _write_contents(self, writes: list[ContentWrite]) -> None:
        file = self._content_file
        for write in writes:
            if write.is_new:
                file.begin(write.path)
                self._made.append(write.path)
            else:
                file.resume(write.path, write.offset)
            file.write(write.offset, write.parts)
        file.sync()
        for directory in sorted({path.rpartition("/")[0] for path in self._made}):
            # The new name must survive a power failure, as the file's bytes do (W28).
            self._files.sync_directory(directory)

    def _write_journal(self, job: FlushJob) -> None:
        batch = job.batch
        if batch.starts_file:
            if self._journal_file is not None:
                self._journal_file.close()
                self._journal_file = None
            # Never overwrite an existing file: it may hold data.
            path = journal_path(batch.file_number)
            self._journal_file = _JournalFile(self._files.create(path))
            self._made.append(path)
            batch.found.created_file = True
        if self._journal_file is None:
            raise OSError("no journal file is open")
        began_ns = time.monotonic_ns()
        try:
            self._journal_file.append(batch.parts)
        except FileNotFoundError:
            batch.found.is_file_gone = True
            raise
        job.sync_ns = time.monotonic_ns() - began_ns
        if batch.starts_file:
            self._files.sync_directory(JOURNAL_DIRECTORY)

    def _abandon(self) -> None:
        # The files of a failed batch are not needed, and a full disk must not fill with empty
        # files.
        self.close()
        self._content_file.broken_paths = self._made
        for path in self._made:
            with contextlib.suppress(OSError):
                self._files.unlink(path)

    def _delete(self, batch: Batch) -> None:
        """Delete the batch's dead files; the batch is durable, so a failure only delays this."""
        remaining = list(batch.delete_files)
        try:
            while remaining:
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(journal_path(remaining[0]))
                remaining.pop(0)
            # Make the deletions durable before a later batch deletes files with acks of messages
            # that were in these.
            self._files.sync_directory(JOURNAL_DIRECTORY)
        except OSError as error:
            logger.warning("journal files cannot be deleted, it is tried again later: %s", error)
            batch.found.undeleted = remaining


class Flusher:
    """The flusher's thread of a node; it calls `notify(job)` when a job is finished.

    With `syncs` a short job needs no thread: the caller writes it, the kernel syncs it, and the
    caller calls `end_sync` when the event of `syncs` is readable.
    """

    def __init__(
        self, notify: Callable[[FlushJob], None], syncs: KernelSyncs | None = None
    ) -> None:
        self._notify = notify
        # Closed by `stop`.
        self.syncs = syncs
        self._jobs: queue.SimpleQueue[FlushJob | FlusherCall | None] = queue.SimpleQueue()
        # Jobs and calls that the thread was given, and those that it is done with.
        self._given_count = 0
        self._done_count = 0
        # The job that the kernel syncs, and what was submitted behind it.
        self._syncing: FlushJob | None = None
        self._behind: list[FlushJob | FlusherCall] = []
        # Until then short jobs go to the thread, by the monotonic clock.
        self._away_until_ns = 0
        # The thread waits for a job.
        self.is_idle = False
        self._thread = threading.Thread(target=self._run, name="warren-flusher", daemon=True)
        self._thread.start()

    def submit(self, job: FlushJob) -> None:
        """Hand over a job; jobs run one after another. An idle thread has begun it on return.

        That is not so for a batch of few messages, nor while consumers keep up: a batch that begins
        later gives them time.
        """
        if self.is_syncing:
            self._behind.append(job)
            return
        if self._begin_sync(job):
            return
        batch = job.batch
        is_large = len(batch.positions) + len(batch.moves) >= _AWAITED_MESSAGES
        is_awaited = is_large and self.is_idle and not is_kept_up(batch)
        self._give(job)
        if is_awaited:
            job.begun.acquire(timeout=_BEGIN_S)

    def call(self, call: FlusherCall) -> None:
        """Run `call` after all jobs that were submitted before."""
        if self.is_syncing:
            self._behind.append(call)
        else:
            self._give(call)

    @property
    def is_syncing(self) -> bool:
        """Whether the kernel syncs a job, which `end_sync` has to end."""
        return self._syncing is not None

    def end_sync(self) -> FlushJob | None:
        """End the job that the kernel has synced; returns it if its batch is durable.

        None: it failed, and the thread gives its files up before it notifies.
        """
        job, self._syncing = self._syncing, None
        assert job is not None and self.syncs is not None
        number = self.syncs.end()
        job.flush_ns = job.sync_ns = time.monotonic_ns() - job.began_ns
        try:
            if number:
                raise OSError(number, os.strerror(number))
            job.flusher.end(job)
        except Exception as error:  # Any failure fails this batch only; the journal nacks it.
            job.error = error
            self._give(job)
        behind, self._behind = self._behind, []
        for each in behind:
            self._give(each)
        return job if job.error is None else None

    def stop(self) -> None:
        """Finish the submitted jobs and end the thread; the batch flushers stay open."""
        self._jobs.put(None)
        self._thread.join()
        if self.syncs is not None:
            self.syncs.close()

    def _begin_sync(self, job: FlushJob) -> bool:
        """Write a short job and let the kernel sync it; False: the thread has to run it."""
        is_free = self._done_count == self._given_count
        began_ns = time.monotonic_ns()
        if self.syncs is None or not is_free or began_ns < self._away_until_ns:
            return False
        if not job.is_short() or is_kept_up(job.batch):
            return False
        try:
            descriptor = job.flusher.begin(job)
        except OSError as error:
            job.error = error
            return False
        try:
            self.syncs.begin(descriptor)
        except OSError as error:
            logger.info("the kernel syncs nothing by itself: %s", error)
            self._away_until_ns = _NEVER_NS
            return False
        job.began_ns = began_ns
        self._syncing = job
        took_ns = time.monotonic_ns() - began_ns
        if took_ns > _SLOW_WRITE_NS:
            self._away_until_ns = began_ns + _AWAY_FACTOR * took_ns
        return True

    def _give(self, job: FlushJob | FlusherCall) -> None:
        self._given_count += 1
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            if isinstance(job, FlusherCall):
                job.run()
                self._done_count += 1
            else:
                job.begun.release()
                began_ns = time.monotonic_ns()
                job.flusher.flush(job)
                job.flush_ns = time.monotonic_ns() - began_ns
                # Counted before the loop is notified: the loop may submit the next job at once, and
                # must then see that the thread is idle.
                self._done_count += 1
                self._notify(job)

    def _next(self) -> FlushJob | FlusherCall | None:
        self.is_idle = True
        job = self._jobs.get()
        self.is_idle = False
        return job
