"""Stages: the parts of batches that clients write, until these are published or dropped.

A stage is a durable queue of the vhost that no client can name, bind or consume, journaled and
paged like any other (`Stage`). A message is checked when it is staged: its properties, its
exchange, whether a queue would get it. Stages that no commit names are dropped after STAGE_TTL_MS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions import metadata
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.sinks.stage import (
    STAGE_TTL_MS,
    STAGES_MAX,
    Author,
    Stage,
    StageError,
    is_stand_in,
    stage_definition,
)
from warrenmq.broker.vhost.sinks.staged_routes import StagedRoutes
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.model.message import JournalFile, QueueLedger
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import read_u32
from warrenmq.vocabulary.error_codes import BAD_REQUEST, NOT_FOUND, PRECONDITION, STORAGE_FAILED

_SWEEP_INTERVAL_MS: Final = 10_000
# In a block, a length (u32) precedes each message.
_LENGTH_BYTES: Final = 4


class Stages:
    """The stages of one vhost."""

    def __init__(self, vhost: VhostQueues) -> None:
        self.vhost: VhostQueues = vhost
        # Stages by id, which is the id of their queue.
        self.stages: dict[int, Stage] = {}
        # True when the node stops: no more messages are moved.
        self.is_stopped: bool = False
        self.routes: StagedRoutes = StagedRoutes(vhost)
        self._sweep_at_ms: i64 = 0
        vhost.host.unacked_finders.append(self.find_unacked)
        vhost.host.loss_watchers.append(self.forget_lost)

    # -- clients -----------------------------------------------------------------------------------

    def open(
        self, sink: bytes, batch: i64, client: object, now_ms: i64, target: bytes = b""
    ) -> Stage:
        """Create a stage for a part of the sink's batch; StageError if there are too many.

        Until the stage is finished, it is dropped if its `client` goes. `target` is the queue for
        all messages; if it is empty, they are routed.
        """
        if len(self.stages) >= STAGES_MAX:
            raise StageError(PRECONDITION, f"there are {STAGES_MAX} stages in this vhost already")
        queue_id = self.vhost.node.next_queue_id()
        stage = Stage(
            self.make_queue(queue_id, sink, batch, now_ms), sink, batch, client, now_ms, target
        )
        stage.failures_at_open = self.vhost.journal.failed_count
        self.stages[queue_id] = stage
        self.vhost.add_changes([self.put_stage(stage)])
        return stage

    def stage_block(
        self, stage_id: i64, client: object, block: bytes, author: Author, now_ms: i64
    ) -> i64:
        """Append the messages of `block` to an unfinished stage of `client`; returns their number.

        Each message is a length (u32), then the body of a PUBLISH record without positions. A
        malformed one, or one that `author` may not publish, drops the stage and raises StageError.
        """
        stage = self._expect_own(stage_id, client)
        stage.used_ms = now_ms
        before = stage.message_count
        try:
            self._stage_all(stage, block, author, now_ms)
        except StageError:
            self.drop([stage], now_ms)
            raise
        return stage.message_count - before

    def finish(
        self,
        stage_id: i64,
        client: object,
        count: i64,
        done: Callable[[StageError | None], None],
        now_ms: i64,
    ) -> None:
        """Finish a stage of `client` that has all its `count` messages.

        Calls `done(None)` when they are durable, or `done(error)` when they cannot be. Any other
        number drops the stage and raises StageError.
        """
        stage = self._expect_own(stage_id, client)
        if stage.message_count != count:
            self.drop([stage], now_ms)
            raise StageError(
                PRECONDITION,
                f"stage {stage_id} has {stage.message_count} messages instead of {count}",
            )
        stage.used_ms = now_ms
        stage.is_finished = True
        stage.client = None

        def on_durable(ok: bool, done_ms: int) -> None:
            if stage.is_dropped:
                done(StageError(PRECONDITION, f"stage {stage_id} was dropped"))
            elif not ok or self.vhost.journal.failed_count != stage.failures_at_open:
                # A batch of the journal failed: some of the messages may be in memory only.
                self.drop([stage], done_ms)
                done(
                    StageError(
                        STORAGE_FAILED, "the broker could not store the messages; stage them again"
                    )
                )
            else:
                stage.is_durable = True
                done(None)

        self.vhost.commit_with([self.put_stage(stage)], on_durable)

    def abort(self, stage_ids: list[int], now_ms: i64) -> i64:
        """Drop the stages in `stage_ids` that no commit has named; returns their number."""
        found: list[Stage] = []
        for stage_id in stage_ids:
            stage = self.stages.get(stage_id)
            if stage is not None and not stage.is_committed:
                found.append(stage)
        self.drop(found, now_ms)
        return len(found)

    def on_client_gone(self, client: object, now_ms: i64) -> None:
        """Drop the unfinished stages of `client`, which is gone."""
        self.drop([stage for stage in self.stages.values() if stage.client is client], now_ms)

    def drop(self, stages: list[Stage], now_ms: i64) -> None:
        """Drop `stages` with their messages."""
        changes: list[metadata.Change] = []
        for stage in stages:
            if not stage.is_dropped:
                changes.append(self.remove(stage, now_ms))
        self.vhost.add_changes(changes)

    def is_full(self) -> bool:
        """Whether clients must wait before they stage more, because memory or disk is short."""
        node = self.vhost.node
        return node.alarms.is_on or node.disk_flow.is_full(self.vhost.journal)

    def shortage(self) -> str:
        """Why clients must wait before they stage more, in words; "" if they need not."""
        if not self.is_full():
            return ""
        alarms = self.vhost.node.alarms
        return alarms.names() if alarms.is_on else "the disk cannot keep up"

    # -- start, upkeep -----------------------------------------------------------------------------

    def restore_stages(
        self, definitions: metadata.Definitions, committed: set[int], now_ms: i64
    ) -> None:
        """Restore finished stages, and those in `committed`, without messages; drop all others."""
        changes: list[metadata.Change] = []
        for put in definitions.stages:
            if put.vhost != self.vhost.name:
                continue
            is_unfinished = put.finished_ms == 0 and put.id not in committed
            if is_unfinished or is_stand_in(put.sink):
                changes.append(metadata.DeleteStage(put.vhost, put.id))
                continue
            queue = self.make_queue(put.id, put.sink, put.batch, now_ms)
            stage = Stage(queue, put.sink, put.batch, None, now_ms, put.target)
            stage.is_finished = True
            stage.is_durable = True
            stage.is_committed = put.id in committed
            stage.message_count = put.message_count
            stage.unroutable_count = put.unroutable_count
            stage.unroutable = put.unroutable
            self.stages[put.id] = stage
        self.vhost.add_changes(changes)

    def restore_moved(self, moved: dict[int, dict[int, JournalFile]]) -> None:
        """Take over from the journal which messages are moved already, by stage id and seq id."""
        for stage_id, files in moved.items():
            stage = self.stages.get(stage_id)
            if stage is not None:
                stage.moved = files
                for file in files.values():
                    file.pins += 1

    def sweep(self, now_ms: i64) -> None:
        """Drop the stages of uncommitted batches that no client has used for STAGE_TTL_MS."""
        if now_ms < self._sweep_at_ms:
            return
        self._sweep_at_ms = now_ms + _SWEEP_INTERVAL_MS
        used: dict[tuple[bytes, int], int] = {}
        for stage in self.stages.values():
            batch = (stage.sink, int(stage.batch))
            used[batch] = max(used.get(batch, 0), stage.used_ms)
        self.drop(
            [
                stage
                for stage in self.stages.values()
                if not stage.is_committed
                and now_ms - used[stage.sink, int(stage.batch)] > STAGE_TTL_MS
            ],
            now_ms,
        )

    def find_unacked(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """Entries of the stage's queue `ledger` in [first, end) that are taken and not settled."""
        stage = self.stages.get(ledger.queue_id)
        if stage is None or stage.queue.ledger is not ledger:
            return []
        return [entry for seq, entry in stage.unacked.items() if first <= seq < end]

    def forget_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """Forget the entries `lost`: their contents are lost, and the queue has settled them."""
        stage = self.stages.get(ledger.queue_id)
        if stage is not None and stage.queue.ledger is ledger:
            for entry in lost:
                stage.unacked.pop(entry.seq, None)

    def of_sink(self, name: bytes) -> list[Stage]:
        """The stages of a sink, committed or not."""
        return [stage for stage in self.stages.values() if stage.sink == name]

    # -- inside ------------------------------------------------------------------------------------

    def make_queue(self, queue_id: i64, sink: bytes, batch: i64, now_ms: i64) -> Queue:
        """The queue of a new stage."""
        vhost = self.vhost
        queue = Queue(stage_definition(queue_id, sink, batch), vhost.host, now_ms)
        vhost.queues_by_id[queue_id] = queue
        return queue

    def remove(self, stage: Stage, now_ms: i64) -> metadata.Change:
        """Drop one stage; the caller stores the change."""
        queue = stage.queue
        for file in stage.moved.values():
            self.vhost.journal.moves.settled(file)
        stage.moved = {}
        stage.is_dropped = True
        self.stages.pop(queue.id, None)
        self.vhost.host.forget(queue)
        queue.delete(now_ms)
        return metadata.DeleteStage(self.vhost.name, queue.id)

    def put_stage(self, stage: Stage) -> metadata.PutStage:
        """The stage's row of the definitions."""
        return metadata.PutStage(
            self.vhost.name,
            stage.queue.id,
            stage.sink,
            stage.batch,
            stage.used_ms if stage.is_finished else 0,
            stage.message_count,
            stage.unroutable_count,
            stage.unroutable,
            stage.target,
        )

    def _stage_all(self, stage: Stage, block: bytes, author: Author, now_ms: i64) -> None:
        at: i64 = 0
        end: i64 = len(block)
        while at < end:
            start = at + _LENGTH_BYTES
            next_at = start + read_u32(block, at) if start <= end else end + 1
            if next_at > end:
                raise StageError(BAD_REQUEST, "the block ends in the middle of a message")
            message = decode_message(block, start, next_at)
            if message is None or read_u32(block, start) != 0:
                raise StageError(BAD_REQUEST, "the block has something that is no message")
            at = next_at
            # A staged message is stored as persistent, whatever its own delivery mode: it must
            # survive a crash after the client has left.
            message.persistent = True
            properties = self.routes.check(message, stage.target, author)
            queues = self.routes.queues_for(stage.target, message.address, properties)
            if len(queues) == 0 and len(self.routes.waits) == 0:
                if stage.unroutable_count == 0:
                    stage.unroutable = message.address
                stage.unroutable_count += 1
            stage.message_count += 1
            stage.queue.publish(message, NO_LIMIT, now_ms)

    def expect(self, stage_id: i64) -> Stage:
        """The stage with this id; raises StageError."""
        stage = self.stages.get(stage_id)
        if stage is None:
            raise StageError(NOT_FOUND, f"stage {stage_id} is not there (any more)")
        return stage

    def _expect_own(self, stage_id: i64, client: object) -> Stage:
        stage = self.expect(stage_id)
        if stage.is_finished:
            raise StageError(PRECONDITION, f"stage {stage_id} is finished")
        if stage.client is not client:
            raise StageError(PRECONDITION, f"stage {stage_id} was opened by another session")
        return stage
