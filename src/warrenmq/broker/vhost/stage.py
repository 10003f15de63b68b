"""What `staging.py` works with: sinks, staging logs, and slices of messages that are on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.journal import Journal
from warrenmq.store.message import JournalFile, MovedMessage

# So many messages are moved in one turn, for each sink.
MOVE_SLICE_MESSAGES: Final = 1024

# Codes of the admin protocol.
BAD_REQUEST: Final = "bad_request"
NOT_FOUND: Final = "not_found"
PRECONDITION: Final = "precondition"
STORAGE_FAILED: Final = "storage_failed"
UNROUTABLE: Final = "unroutable"


class StageError(Exception):
    """A refusal: one of the codes of the admin protocol, and why in one line."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code: str = code
        self.text: str = text


class Stage:
    """A staging log. `queue` has its messages; `owner` is the client that fills it, None when it is finished. `target`: the
    name of the queue that all go to; empty: those that their exchanges route to."""

    def __init__(
        self, queue: Queue, sink: bytes, batch: i64, client: object, now_ms: i64, target: bytes
    ) -> None:
        self.target: bytes = target
        self.queue: Queue = queue
        self.sink: bytes = sink
        self.batch: i64 = batch
        self.client: object = client
        # When somebody last had to do with it (ms).
        self.used_ms: i64 = now_ms
        # Complete; complete and on disk; named by a commit; gone.
        self.is_finished: bool = False
        self.is_durable: bool = False
        self.is_committed: bool = False
        self.is_dropped: bool = False
        self.message_count: i64 = 0
        # Messages that no queue would have got when they were staged, and the address of the first.
        self.unroutable_count: i64 = 0
        self.unroutable: bytes = b""
        # Failed batches of the journal when it was opened.
        self.failures: i64 = 0
        # After a start: seq ids that were published already, and the journal files that say so.
        self.moved: dict[int, JournalFile] = {}
        # Published and not settled yet.
        self.out: dict[int, Entry] = {}
        # The next message is being read from disk.
        self.is_waiting: bool = False

    def on_head(self, _now_ms: int) -> None:
        """The next message may be there."""
        self.is_waiting = False
        self.queue.backing.host.wake()


class Sink:
    """Who commits batches, in ascending order of their numbers. `stages`: of the last one, what is still to be moved."""

    def __init__(self, name: bytes) -> None:
        self.name: bytes = name
        # -1: none was committed yet.
        self.batch: i64 = -1
        self.is_committing: bool = False
        self.stages: list[Stage] = []
        self.waiters: list[Callable[[], None]] = []

    def is_busy(self) -> bool:
        """Is a commit on its way to the disk, or are messages to be moved?"""
        return self.is_committing or len(self.stages) > 0


class MoveSlice:
    """Messages of a staging log that were published together; they are settled there when that is durable.

    It waits for that with a method of its own, not with a function that would know itself: messages are hidden from the
    cycle collector, so a cycle around them is not worth a look to it, and stays.
    """

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self.stage: Stage = stage
        self.entries: list[Entry] = []
        self.messages: list[MovedMessage] = []
        # Of those that an earlier run of the node has published: the files with their moves.
        self.files: list[JournalFile] = []
        self.size_bytes: i64 = 0
        self.is_durable: bool = False
        self._journal: Journal = journal

    def watch(self) -> None:
        """All of it is with the journal."""
        self._journal.when_durable(self.on_batch)
        self.stage.queue.backing.host.wake()

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """The batch with its moves is durable, or has failed: then the journal writes the moves again with the next one."""
        if ok:
            self.is_durable = True
            self.stage.queue.backing.host.wake()
        else:
            self.watch()
