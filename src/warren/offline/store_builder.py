"""Fills a new, empty store of a vhost: contents first, then each queue's messages in order, then a checkpoint.

This is the engine itself, driven by hand: the files are made by the code that makes them in a node.
"""

import secrets

from warren.offline.data_directory import ToolError
from warren.store.disk.files import JOURNAL_DIRECTORY, load_store_id
from warren.store.disk.flusher import BatchFlusher, FlushJob
from warren.store.disk.job_runner import JobRunner
from warren.store.file_system import FileSystem
from warren.store.message import ContentRef, Message, Position, QueueLog
from warren.store.queue_store import QueueStore
from warren.store.store_settings import StoreSettings
from warren.store.vhost_store import PERSISTENT_NAME, QUEUES_NAME, VhostStore

# What is gathered before it is written.
_BATCH_BYTES = 4194304
_BATCH_POSITIONS = 1024
_JOURNAL_FILE_BYTES = 67108864


class StoreBuilder:
    """The store in `files`, a directory with nothing in it. Errors of the disk end it with ToolError."""

    def __init__(self, files: FileSystem) -> None:
        for directory in (JOURNAL_DIRECTORY, QUEUES_NAME, PERSISTENT_NAME):
            files.make_directories(directory)
        store_id = load_store_id(files, secrets.token_bytes)
        self._store = VhostStore(store_id, StoreSettings(_JOURNAL_FILE_BYTES))
        self._runner = JobRunner(files, store_id)
        self._flusher = BatchFlusher(files)
        self._gathered_bytes = 0
        self._queue: QueueStore | None = None
        self._batch: list[Position] = []
        self._batch_bytes = 0

    def add_content(self, message: Message, positions: list[Position], live: int) -> ContentRef:
        """Store a large message that `positions` shared from the start, `live` of which are left."""
        contents = self._store.contents
        content = contents.add(message, positions, 0, len(positions))
        for _ in range(len(positions) - live):
            contents.release(content.id, content.references, content.stored_bytes)
        self._gathered_bytes += content.stored_bytes
        if self._gathered_bytes >= _BATCH_BYTES:
            self._commit()
        return content

    def start_queue(self, queue_id: int) -> None:
        """What is added from now on belongs to this queue."""
        if self._gathered_bytes:
            self._commit()
        self._queue = self._store.add_queue(QueueLog(queue_id), True)

    def add(self, found: Position, message: Message, content: ContentRef | None) -> None:
        """The queue's next message: `found` in the old store. With `content`, `message` need not have its body."""
        assert self._queue is not None
        position = Position(message, self._queue.log, found.seq, found.expiry_ms)
        position.redelivered = found.redelivered
        position.persistent = True
        if content is not None:
            position.content = content
            position.has_content = False
            position.body_bytes = found.body_bytes
        self._batch.append(position)
        self._batch_bytes += position.content_bytes
        if len(self._batch) >= _BATCH_POSITIONS or self._batch_bytes >= _BATCH_BYTES:
            self._index()

    def end_queue(self, next_seq: int, delivered_upto: int) -> None:
        """The queue has all its messages."""
        assert self._queue is not None
        self._index()
        log = self._queue.log
        log.next_seq = max(next_seq, log.indexed_upto)
        log.delivered_upto = delivered_upto
        self._queue.index_range_done(log.next_seq)
        self._queue = None

    def finish(self) -> None:
        """Make everything durable, under a checkpoint."""
        store = self._store
        store.journal.request_file()
        store.is_checkpoint_wanted = True
        while store.checkpoint_count == 0:
            self._commit()
            store.advance(0)
            self._run_jobs()
            if store.checkpoint_failures:
                raise ToolError("the checkpoint of the new store could not be written")
        self._flusher.close()
        self._runner.close()

    def _index(self) -> None:
        assert self._queue is not None
        self._queue.index(self._batch)
        self._batch = []
        self._batch_bytes = 0
        self._run_jobs()

    def _commit(self) -> None:
        self._gathered_bytes = 0
        journal = self._store.journal
        batch = journal.seal()
        if batch.has_work():
            job = FlushJob(journal, batch, self._flusher, lambda changes: None)
            self._flusher.flush(job)
            if job.error is not None:
                raise ToolError(f"the new store could not be written: {job.error}")
        self._store.on_batch_done(batch, True)

    def _run_jobs(self) -> None:
        while jobs := self._store.take_jobs(0):
            for job in jobs:
                self._runner.run(job)
                if job.error is not None:
                    raise ToolError(f"the new store could not be written: {job.error}")
                job.finished()
