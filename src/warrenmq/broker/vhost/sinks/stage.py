"""The data of sinks: their stages, and slices of messages on the way to queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.account import Account
from warrenmq.broker.definitions.rights import Rights
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import JournalFile, MovedMessage
from warrenmq.vocabulary.names import name_text

# Messages that one turn moves for each sink.
MOVE_SLICE_MESSAGES: Final = 1024
# The stages of an uncommitted batch are dropped when no client has staged anything of the batch for
# this time.
STAGE_TTL_MS: Final = 3_600_000
# Stages that a vhost may have.
STAGES_MAX: Final = 10_000
# Content (bytes) of messages that are moved and not settled yet, of all sinks together.
OUT_BYTES: Final = 8 * 1024 * 1024
# Messages that are moved and not settled yet, of all sinks together.
OUT_MESSAGES: Final = 16_384


class Author:
    """The user of a session that stages messages, and the rights of that user."""

    def __init__(self, account: Account, rights: Rights) -> None:
        self.account: Account = account
        self.rights: Rights = rights


class StageError(Exception):
    """A refused request: an error code of the admin protocol, and the reason in one line."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code: str = code
        self.text: str = text


class Stage:
    """One part of a sink's batch: messages that are written, but not moved to their queues yet.

    `queue` holds the messages. `client` is the client that fills the stage, None once it is
    finished. `target` is the name of the queue for all messages; if it is empty, their exchanges
    route them.
    """

    def __init__(
        self, queue: Queue, sink: bytes, batch: i64, client: object, now_ms: i64, target: bytes
    ) -> None:
        self.target: bytes = target
        self.queue: Queue = queue
        self.sink: bytes = sink
        self.batch: i64 = batch
        self.client: object = client
        # Time of the last request for this stage (ms).
        self.used_ms: i64 = now_ms
        # True once the client has staged all messages.
        self.is_finished: bool = False
        # True once the stage is finished and on disk.
        self.is_durable: bool = False
        # True once a commit names the stage.
        self.is_committed: bool = False
        # True once the stage is removed, moved or not.
        self.is_dropped: bool = False
        self.message_count: i64 = 0
        # Messages that no queue would have got when they were staged.
        self.unroutable_count: i64 = 0
        # Address of the first unroutable message.
        self.unroutable: bytes = b""
        # Failed batches of the journal when the stage was opened.
        self.failures_at_open: i64 = 0
        # After a start: seq ids that were published already, each with the journal file of its move
        # record.
        self.moved: dict[int, JournalFile] = {}
        # Entries taken from `queue` and not settled yet, by seq id.
        self.unacked: dict[int, Entry] = {}
        # True while copies of its messages are on their way to other nodes.
        self.is_sending: bool = False
        # In a cluster, once a commit names the stage: the name of the sink's books of receipts, and
        # the position of the message before the first one; so a seq id and it add up to a position.
        # b"": the node runs alone.
        self.sink_key: bytes = b""
        self.before_first: i64 = 0
        # Another node was the mover before: it may have published any of the messages, and the
        # master of a mirrored queue may have handed them out and died since.
        self.is_repeated: bool = False
        # True while the next message is being read from disk.
        self.is_waiting: bool = False

    def on_head(self, _now_ms: int) -> None:
        """Ask for a turn, because the next message may be in memory."""
        self.is_waiting = False
        self.queue.backing.host.wake()


class Sink:
    """A writer that commits numbered batches, in ascending order, each exactly once.

    `stages` are the stages of the last batch that this node has not moved completely yet, in order.
    """

    def __init__(self, name: bytes) -> None:
        self.name: bytes = name
        # Number of the last committed batch; -1 before the first.
        self.batch: i64 = -1
        self.is_committing: bool = False
        self.stages: list[Stage] = []
        # In a cluster: the nodes that have the stages of the last batch, none once it is published,
        # the one of them that publishes it, and the name of the sink's books of receipts.
        self.nodes: list[bytes] = []
        self.mover: bytes = b""
        self.key: bytes = b""
        self.waiters: list[Callable[[], None]] = []

    def is_busy(self) -> bool:
        """True while a commit is being stored or messages still have to be moved."""
        return self.is_committing or len(self.stages) > 0 or len(self.nodes) > 0

    def call_waiters(self) -> None:
        """Call, once, everybody who waits until the sink is idle."""
        waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            waiter()


class MoveSlice:
    """Messages of a stage that were published together, to be settled there once that is durable.

    The slice waits with a method of its own as callback. A function that refers to itself would
    make a reference cycle, which would stay in memory: messages are hidden from the cycle
    collector, so a cycle around them gives it no reason to run.
    """

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self.stage: Stage = stage
        self.entries: list[Entry] = []
        self.messages: list[MovedMessage] = []
        # Journal files with move records of entries that an earlier run of the node has published.
        self.files: list[JournalFile] = []
        self.size_bytes: i64 = 0
        self.is_durable: bool = False
        self._journal: Journal = journal

    def watch(self) -> None:
        """Wait for the journal, which has got all messages of the slice."""
        self._journal.when_durable(self.on_batch)
        self.stage.queue.backing.host.wake()

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """Mark the slice durable, or wait for the next batch if the batch with its moves failed.

        After a failure the journal writes the moves again with the next batch.
        """
        if ok:
            self.is_durable = True
            self.stage.queue.backing.host.wake()
        else:
            self.watch()


def is_stand_in(sink: bytes) -> bool:
    """Whether the stage has no messages, and stands for one of another node.

    An earlier version wrote such rows. No client can give a sink such a name.
    """
    return b"/" in sink


def stage_definition(queue_id: i64, sink: bytes, batch: i64) -> QueueDefinition:
    """The definition of the queue that holds the messages of a stage."""
    name = b"staged for %s, batch %d" % (sink, batch)
    return QueueDefinition(name, queue_id, True, False, None, b"", QueueSettings())


def unroutable_text(stages: list[Stage], count: i64) -> str:
    """Say which of the `count` messages that no queue would get is the first one of `stages`."""
    address = next(stage.unroutable for stage in stages if stage.unroutable_count > 0)
    exchange = name_text(address[1 : 1 + address[0]])
    key = name_text(address[2 + address[0] :])
    return (
        f"{count} messages would get to no queue, the first one with routing key '{key}' to "
        f"exchange '{exchange}'; nothing of the batch was published"
    )
