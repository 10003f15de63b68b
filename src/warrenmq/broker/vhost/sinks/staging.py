"""Sinks: batches of messages that are published once, whatever crashes (decision 010).

Several clients write the parts of a batch, each part into a *stage*: a durable queue of the vhost
that no client can name, bind or consume, journaled and paged like any other (`Stage`). A commit
names the sink, the number of the batch and its stages in order. The commit point is one row of the
definitions (PutSink). A batch whose number is not above the row's is committed already. Stages that
no commit names are dropped after STAGE_TTL_MS.

After the commit point the messages are moved: taken from the stages in order, routed through their
exchanges, published, and settled in their stage once the journal's batch with their publishes is
durable (`store/journal/journal.py`, "Moves"). A start resumes with the stages that the row names;
messages that the journal records as published are only settled (`Stage.moved`). So each message is
in the queues it was routed to exactly once, and in order for each stage.

A message is checked when it is staged: its properties, its exchange, whether a queue would get it.

In a cluster the queues know which messages of a sink they have got (`receipts.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions import metadata
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.sinks.stage import (
    MOVE_SLICE_MESSAGES,
    OUT_BYTES,
    OUT_MESSAGES,
    STAGE_TTL_MS,
    STAGES_MAX,
    Author,
    MoveSlice,
    Sink,
    Stage,
    StageError,
    is_stand_in,
    stage_definition,
    unroutable_text,
)
from warrenmq.broker.vhost.sinks.staged_moves import StagedMoves
from warrenmq.broker.vhost.sinks.staged_routes import StagedRoutes
from warrenmq.queues.backing.variable_queue import LOADING, READY
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.model.message import JournalFile, QueueLedger
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import read_u32
from warrenmq.vocabulary.error_codes import (
    BAD_REQUEST,
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
    UNROUTABLE,
)
from warrenmq.vocabulary.names import name_text

_SWEEP_INTERVAL_MS: Final = 10_000
# In a block, a length (u32) precedes each message.
_LENGTH_BYTES: Final = 4


class Staging:
    """The sinks and stages of one vhost."""

    def __init__(self, vhost: VhostQueues, delayed: DelayedMessages, receipts: Receipts) -> None:
        self.vhost: VhostQueues = vhost
        self.sinks: dict[bytes, Sink] = {}
        # Stages by id, which is the id of their queue.
        self.stages: dict[int, Stage] = {}
        # True when the node stops: no more messages are moved.
        self.is_stopped: bool = False
        # True if flow control paused a sink in this turn.
        self._is_paused: bool = False
        self._moving: list[Sink] = []
        # Messages that one turn moves for each sink.
        self.slice_messages: i64 = MOVE_SLICE_MESSAGES
        # Slices that are published and not settled yet, oldest first.
        self.slices: list[MoveSlice] = []
        self._out_bytes: i64 = 0
        self._out_count: i64 = 0
        self._routes: StagedRoutes = StagedRoutes(vhost)
        self._moves: StagedMoves = StagedMoves(vhost, self._routes, delayed, receipts)
        self._sweep_at_ms: i64 = 0
        vhost.host.unacked_finders.append(self.find_unacked)
        vhost.host.loss_watchers.append(self.forget_lost)

    # -- stages ------------------------------------------------------------------------------------

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
                changes.append(self._remove(stage, now_ms))
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

    # -- sinks -------------------------------------------------------------------------------------

    def last_batch(self, name: bytes) -> i64:
        """Number of the last batch that the sink has committed; -1 for none."""
        sink = self.sinks.get(name)
        return sink.batch if sink is not None else -1

    def is_busy(self, name: bytes) -> bool:
        """True while a commit of the sink is being written or its messages are being moved."""
        sink = self.sinks.get(name)
        return sink is not None and sink.is_busy()

    def when_idle(self, name: bytes, callback: Callable[[], None]) -> None:
        """Call `callback` once the busy sink is idle."""
        self.sinks[name].waiters.append(callback)

    def commit(
        self,
        name: bytes,
        batch: i64,
        stage_ids: list[int],
        mandatory: bool,
        done: Callable[[], None],
        now_ms: i64,
    ) -> None:
        """Commit a batch of an idle sink; calls `done` when the commit is durable.

        From then on the batch's messages will reach their queues, whatever crashes. Raises
        StageError if a stage is missing or named twice, or, with `mandatory`, if no queue would get
        some message.
        """
        stages = [self._expect_finished(stage_id, name, batch) for stage_id in stage_ids]
        if len(set(stage_ids)) < len(stage_ids):
            raise StageError(PRECONDITION, "the commit names a stage twice")
        unroutable: i64 = 0
        for stage in stages:
            unroutable += stage.unroutable_count
        if mandatory and unroutable > 0:
            raise StageError(UNROUTABLE, unroutable_text(stages, unroutable))
        sink = self.sinks.get(name)
        if sink is None:
            sink = Sink(name)
            self.sinks[name] = sink
        sink.is_committing = True
        sink.stages = stages
        for stage in stages:
            stage.is_committed = True
        asked = _Commit(self, sink, batch, done)
        # Kept and patient: a commit cannot be taken back, as one that failed may be on disk.
        change_set = self.vhost.store_changes([self._put_sink(sink, batch)], True, is_patient=True)
        change_set.callbacks.append(asked.on_stored)

    def on_committed(self, sink: Sink, batch: i64, now_ms: i64) -> None:
        """Drop superseded stages and start moving: the commit of `batch` is durable."""
        sink.is_committing = False
        sink.batch = batch
        superseded = [
            stage
            for stage in self.stages.values()
            if stage.sink == sink.name and stage.batch <= batch and not stage.is_committed
        ]
        self.drop(superseded, now_ms)
        self._begin_move(sink)

    def delete_sink(self, name: bytes, done: Callable[[bool], None], now_ms: i64) -> None:
        """Delete an idle sink and its stages; calls `done(ok)` after the first try to store that.

        Raises StageError for an unknown or a busy sink.
        """
        sink = self.sinks.get(name)
        stages = [stage for stage in self.stages.values() if stage.sink == name]
        if sink is None and len(stages) == 0:
            raise StageError(
                NOT_FOUND, f"no sink '{name_text(name)}' in vhost '{name_text(self.vhost.name)}'"
            )
        if sink is not None and sink.is_busy():
            raise StageError(
                PRECONDITION,
                f"sink '{name_text(name)}' is publishing batch {sink.batch}; try again",
            )
        self.sinks.pop(name, None)
        self.drop(stages, now_ms)
        change_set = self.vhost.store_changes([metadata.DeleteSink(self.vhost.name, name)], True)
        change_set.callbacks.append(lambda ok, _now_ms: done(ok))

    # -- start and stop ----------------------------------------------------------------------------

    def restore(self, definitions: metadata.Definitions, now_ms: i64) -> None:
        """Restore sinks and finished stages, without their messages; drop unfinished stages.

        A sink resumes the move of its last batch.
        """
        committed: set[int] = set()
        for put_sink in definitions.sinks:
            if put_sink.vhost == self.vhost.name:
                sink = Sink(put_sink.name)
                sink.batch = put_sink.batch
                self.sinks[sink.name] = sink
                committed.update(put_sink.stages)
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
        for put_sink in definitions.sinks:
            if put_sink.vhost == self.vhost.name:
                sink = self.sinks[put_sink.name]
                sink.stages = [
                    self.stages[stage_id] for stage_id in put_sink.stages if stage_id in self.stages
                ]
                self._begin_move(sink)
        self.vhost.add_changes(changes)

    def restore_moved(self, moved: dict[int, dict[int, JournalFile]]) -> None:
        """Take over from the journal which messages are moved already, by stage id and seq id."""
        for stage_id, files in moved.items():
            stage = self.stages.get(stage_id)
            if stage is not None:
                stage.moved = files
                for file in files.values():
                    file.pins += 1

    def stop(self) -> None:
        """Stop moving messages; the next start resumes."""
        self.is_stopped = True

    # -- moving ------------------------------------------------------------------------------------

    def advance(self, now_ms: i64) -> bool:
        """Settle durable messages and move a slice of each sink; True if more can be done now."""
        if now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = now_ms + _SWEEP_INTERVAL_MS
            self._sweep(now_ms)
        self._is_paused = False
        if len(self._moving) == 0:
            return False
        self._settle_durable(now_ms)
        has_more = False
        for sink in list(self._moving):
            if sink.is_committing:
                # The sink's last batch had nothing to move, and the commit of its next one is not
                # durable.
                continue
            while len(sink.stages) > 0 and self._is_moved(sink.stages[0]):
                self._on_stage_moved(sink, now_ms)
            if len(sink.stages) == 0:
                self._moving.remove(sink)
                sink.call_waiters()
            elif self._must_pause():
                self._is_paused = True
            elif not sink.stages[0].is_sending and self._move_slice(sink.stages[0], now_ms):
                has_more = True
        return has_more

    def may_resume(self) -> bool:
        """True if flow control paused a sink in this turn and it may resume at once.

        The caller must ask for another turn then: no other event would wake the node.
        """
        return self._is_paused and not self._must_pause()

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

    def _must_pause(self) -> bool:
        node = self.vhost.node
        if self.is_stopped or self._out_bytes >= OUT_BYTES or self._out_count >= OUT_MESSAGES:
            return True
        # The memory alarm does not pause a move, which needs no more memory. A low disk does.
        return node.alarms.disk_since_ms >= 0 or node.disk_flow.is_full(self.vhost.journal)

    def _is_moved(self, stage: Stage) -> bool:
        return stage.queue.ready_count == 0 and len(stage.unacked) == 0

    def _move_slice(self, stage: Stage, now_ms: i64) -> bool:
        queue = stage.queue
        taken = MoveSlice(stage, self.vhost.journal)
        unpublished: list[Entry] = []
        state: i64 = READY
        while (
            len(taken.entries) < self.slice_messages
            and self._out_bytes + taken.size_bytes < OUT_BYTES
        ):
            state = queue.head_state(now_ms)
            if state != READY:
                break
            entry = queue.get(False, now_ms)
            if entry is None:
                break
            stage.unacked[entry.seq] = entry
            taken.entries.append(entry)
            taken.size_bytes += entry.content_bytes
            file = stage.moved.pop(entry.seq, None)
            if file is not None:
                taken.files.append(file)
            else:
                unpublished.append(entry)
        if state == LOADING and not stage.is_waiting:
            stage.is_waiting = True
            queue.when_head(stage.on_head)
        if len(taken.entries) == 0:
            return False
        self._out_bytes += taken.size_bytes
        self._out_count += len(taken.entries)
        self.slices.append(taken)
        self._moves.publish(taken, unpublished, now_ms)
        return state == READY

    def _settle_durable(self, now_ms: i64) -> None:
        durable = [taken for taken in self.slices if taken.is_durable]
        if len(durable) == 0:
            return
        self.slices = [taken for taken in self.slices if not taken.is_durable]
        for taken in durable:
            stage = taken.stage
            self._out_bytes -= taken.size_bytes
            self._out_count -= len(taken.entries)
            for entry in taken.entries:
                if stage.unacked.pop(entry.seq, None) is not None:
                    stage.queue.leave(entry, ACKED, now_ms)
            moves = self.vhost.journal.moves
            for message in taken.messages:
                if message.pinned is not None:
                    moves.settled(message.pinned)
            for file in taken.files:
                moves.settled(file)

    def _begin_move(self, sink: Sink) -> None:
        self._moving.append(sink)
        self.vhost.node.wake()

    def _on_stage_moved(self, sink: Sink, now_ms: i64) -> None:
        stage = sink.stages.pop(0)
        for file in stage.moved.values():
            self.vhost.journal.moves.settled(file)
        stage.moved = {}
        removal = self._remove(stage, now_ms)
        self.vhost.add_changes([self._put_sink(sink, sink.batch), removal])

    # -- inside ------------------------------------------------------------------------------------

    def make_queue(self, queue_id: i64, sink: bytes, batch: i64, now_ms: i64) -> Queue:
        """The queue of a new stage."""
        vhost = self.vhost
        queue = Queue(stage_definition(queue_id, sink, batch), vhost.host, now_ms)
        vhost.queues_by_id[queue_id] = queue
        return queue

    def _remove(self, stage: Stage, now_ms: i64) -> metadata.Change:
        queue = stage.queue
        stage.is_dropped = True
        self.stages.pop(queue.id, None)
        self.vhost.host.forget(queue)
        queue.delete(now_ms)
        return metadata.DeleteStage(self.vhost.name, queue.id)

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
            properties = self._routes.check(message, stage.target, author)
            queues = self._routes.queues_for(stage.target, message.address, properties)
            if len(queues) == 0 and len(self._routes.waits) == 0:
                if stage.unroutable_count == 0:
                    stage.unroutable = message.address
                stage.unroutable_count += 1
            stage.message_count += 1
            stage.queue.publish(message, NO_LIMIT, now_ms)

    def _expect(self, stage_id: i64) -> Stage:
        stage = self.stages.get(stage_id)
        if stage is None:
            raise StageError(NOT_FOUND, f"stage {stage_id} is not there (any more)")
        return stage

    def _expect_own(self, stage_id: i64, client: object) -> Stage:
        stage = self._expect(stage_id)
        if stage.is_finished:
            raise StageError(PRECONDITION, f"stage {stage_id} is finished")
        if stage.client is not client:
            raise StageError(PRECONDITION, f"stage {stage_id} was opened by another session")
        return stage

    def _expect_finished(self, stage_id: i64, name: bytes, batch: i64) -> Stage:
        stage = self._expect(stage_id)
        if stage.sink != name or stage.batch != batch:
            raise StageError(
                PRECONDITION,
                f"stage {stage_id} is for batch {stage.batch} of sink '{name_text(stage.sink)}', "
                f"not for batch {batch} of '{name_text(name)}'",
            )
        if not stage.is_durable:
            raise StageError(PRECONDITION, f"stage {stage_id} is not finished")
        return stage

    def _sweep(self, now_ms: i64) -> None:
        """Drop the stages of uncommitted batches that no client has used for STAGE_TTL_MS."""
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

    def _put_sink(self, sink: Sink, batch: i64) -> metadata.PutSink:
        return metadata.PutSink(
            self.vhost.name, sink.name, batch, [stage.queue.id for stage in sink.stages]
        )


class _Commit:
    """A commit on its way to disk; it is a class and no closure for the reason in `MoveSlice`."""

    def __init__(self, staging: Staging, sink: Sink, batch: i64, done: Callable[[], None]) -> None:
        self._staging: Staging = staging
        self._sink: Sink = sink
        self._batch: i64 = batch
        self._done: Callable[[], None] = done

    def on_stored(self, _ok: bool, now_ms: int) -> None:
        """Report that the commit is durable."""
        self._staging.on_committed(self._sink, self._batch, now_ms)
        self._done()
