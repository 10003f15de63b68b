"""Fills a vhost's new store: contents, then each queue's messages in order, then a checkpoint.

The builder drives the engine by hand, so the code of a node makes the files. A builder fills a
whole store, or a part of one (`part_writer.py`), or puts a checkpoint over existing parts
(`store_writer.py`).
"""

import secrets
from typing import Final

from warrenmq.offline.data_directory import ToolError
from warrenmq.store.contents.file import ContentFile
from warrenmq.store.disk.files import JOURNAL_DIRECTORY, load_store_id
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.model.queue_index import QueueIndex
from warrenmq.store.settings import StoreSettings
from warrenmq.store.vhost_store import VhostStore

# Contents and positions are gathered up to these limits before they are written.
_BATCH_BYTES = 4194304
_BATCH_POSITIONS = 1024
# Size limit of the journal file that a finished store begins with.
JOURNAL_FILE_BYTES: Final = 67108864


class StoreBuilder:
    """Builds a store in the empty directory `files`. A disk error raises ToolError."""

    def __init__(
        self, files: FileSystem, settings: StoreSettings | None = None, store_id: bytes = b""
    ) -> None:
        for directory in (JOURNAL_DIRECTORY, QUEUES_NAME, PERSISTENT_NAME):
            files.make_directories(directory)
        # A part has the store id of the whole store.
        store_id = store_id or load_store_id(files, secrets.token_bytes)
        self._store = VhostStore(store_id, settings or StoreSettings(JOURNAL_FILE_BYTES))
        self._runner = JobRunner(files, store_id)
        self._flusher = BatchFlusher(files)
        self._gathered_bytes = 0
        self._queue: QueueStore | None = None
        self._batch: list[Position] = []
        self._batch_bytes = 0
        # Step between the numbers of content files: parts of one store do not take each other's
        # numbers.
        self._file_step = 1
        self._next_file = 0

    def number_contents(self, first_id: int, first_file: int, file_step: int) -> None:
        """Set the first content id, and the first number and the step of the content files."""
        contents = self._store.contents.persistent
        contents.adopt([], first_id, first_file, [])
        self._next_file = first_file
        self._file_step = file_step

    @property
    def next_content_id(self) -> int:
        """The id that the next content gets."""
        return self._store.contents.persistent.next_id

    def add_content(self, message: Message, positions: list[Position], live: int) -> ContentRef:
        """Store a large message that `positions` shared from the start; `live` of them are left."""
        contents = self._store.contents.persistent
        content = contents.add(message, positions, 0, len(positions))
        if contents.next_file_number > self._next_file:
            self._next_file += self._file_step
            contents.next_file_number = self._next_file
        for _ in range(len(positions) - live):
            contents.release(content.id, content.references, content.stored_bytes)
        self._gathered_bytes += content.stored_bytes
        if self._gathered_bytes >= _BATCH_BYTES:
            self._commit()
        return content

    def start_queue(self, queue_id: int, first_seq: int = 1) -> QueueLedger:
        """Begin a queue: the next messages belong to it and have no seq id below `first_seq`."""
        if self._gathered_bytes:
            self._commit()
        ledger = QueueLedger(queue_id)
        ledger.next_seq = ledger.indexed_upto = first_seq
        self._queue = self._store.add_queue(ledger, True)
        return ledger

    def add(self, found: Position, message: Message, content: ContentRef | None) -> None:
        """Add the queue's next message, which was at position `found` in the old store.

        With `content`, `message` need not have its body.
        """
        assert self._queue is not None
        position = Position(message, self._queue.ledger, found.seq, found.expiry_ms)
        position.redelivered = found.redelivered
        position.persistent = True
        if content is None and position.content_bytes >= self._store.journal.messages.embed_below:
            # The message was written by a node with a higher limit, or put aside with its content.
            content = self.add_content(message, [position], 1)
        if content is not None:
            position.content_ref = content
            position.has_content = False
            position.body_bytes = found.body_bytes
        self.append(position)

    def append(self, position: Position) -> None:
        """Add the queue's next position, which has the ledger that `start_queue` returned."""
        self._batch.append(position)
        self._batch_bytes += position.content_bytes
        if len(self._batch) >= _BATCH_POSITIONS or self._batch_bytes >= _BATCH_BYTES:
            self._index()

    def end_queue(self, next_seq: int, origin: QueueLedger | None = None) -> None:
        """End the queue: all its messages are added.

        `origin` is its ledger in the old store: its epochs and what it has handed out are kept.
        """
        assert self._queue is not None
        self._index()
        ledger = self._queue.ledger
        ledger.next_seq = max(next_seq, ledger.indexed_upto)
        if origin is not None:
            ledger.delivered_upto = origin.delivered_upto
            ledger.delivered = origin.delivered
            ledger.epochs = origin.epochs
        self._queue.index_range_done(ledger.next_seq)
        self._queue = None

    def adopt(
        self, queues: list[QueueLedger], content_files: list[ContentFile], next_content_id: int
    ) -> None:
        """Take over existing, durable segments and content files (in order of their ids)."""
        store = self._store
        next_file = max((file.number + 1 for file in content_files), default=0)
        store.contents.persistent.adopt(content_files, next_content_id, next_file, [])
        for ledger in queues:
            store.add_queue(ledger, True)

    def new_index(self, queue_id: int) -> QueueIndex:
        """A new index without segments for queue `queue_id`."""
        return self._store.files.new_index(queue_id, True)

    def path_of_content_file(self, number: int) -> str:
        """Path of a content file in the store."""
        return self._store.contents.persistent.path_of(number)

    def finish(self, is_clean: bool = False) -> None:
        """Make everything durable, under a checkpoint.

        `is_clean` adds the mark of an orderly stop, so that a start keeps the redelivered flags of
        the messages instead of setting them all.
        """
        store = self._store
        store.journal.request_file()
        if is_clean:
            store.journal.request_clean_stop()
        store.checkpoints.want()
        while store.checkpoints.count == 0:
            self._commit()
            store.advance(0)
            self._run_jobs()
            if store.checkpoints.failures:
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
        self._store.on_batch_done(batch, True, 0)

    def _run_jobs(self) -> None:
        while jobs := self._store.take_jobs(0):
            for job in jobs:
                self._runner.run(job)
                if job.error is not None:
                    raise ToolError(f"the new store could not be written: {job.error}")
                job.finished()
