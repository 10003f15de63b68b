"""Sinks: batches of messages that are published once, whatever crashes (decisions 010 and 036).

Several clients write the parts of a batch, each part into a stage (`stages.py`). A commit names the
sink, the number of the batch and its stages in order. The commit point is one row (`sink_rows.py`):
of the node's own metadata, or of the cluster. A batch whose number is not above the row's is
committed already. After the commit point the messages are moved to their queues (`mover.py`). In a
cluster the queues know which messages of a sink they have got (`receipts.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.definitions import metadata
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.sinks.mover import Mover
from warrenmq.broker.vhost.sinks.own_rows import OwnRows
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.sinks.sink_rows import Committed, Deleted, SinkRows
from warrenmq.broker.vhost.sinks.stage import Sink, Stage, StageError, unroutable_text
from warrenmq.broker.vhost.sinks.stages import Stages
from warrenmq.vocabulary.error_codes import NOT_FOUND, PRECONDITION, UNROUTABLE
from warrenmq.vocabulary.names import name_text


class Staging(Stages):
    """The sinks and stages of one vhost."""

    def __init__(self, vhost: VhostQueues, delayed: DelayedMessages, receipts: Receipts) -> None:
        super().__init__(vhost)
        self.sinks: dict[bytes, Sink] = {}
        self.mover: Mover = Mover(self, delayed, receipts, self._on_stage_moved)
        # The records of the sinks; in a cluster those of all nodes.
        self.rows: SinkRows = OwnRows(self, self.mover, self.sinks)

    # -- batches -----------------------------------------------------------------------------------

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
        copies: dict[bytes, list[int]],
        mandatory: bool,
        done: Committed,
    ) -> None:
        """Commit a batch of an idle sink; calls `done` with the outcome.

        `copies`: see `SinkRows.commit`. From COMMITTED on the batch's messages will reach their
        queues, whatever crashes. Raises StageError if a stage is missing or named twice, or, with
        `mandatory`, if no queue would get some message.
        """
        stages = [self._expect_finished(stage_id, name, batch) for stage_id in stage_ids]
        if len(set(stage_ids)) < len(stage_ids):
            raise StageError(PRECONDITION, "the commit names a stage twice")
        if len(copies) > 0 and len(stages) == 0:
            raise StageError(PRECONDITION, "the stages of the batch are on other nodes only")
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
        for stage in stages:
            stage.is_committed = True
        self.rows.commit(sink, batch, stages, copies, done)

    def delete_sink(self, name: bytes, done: Deleted, now_ms: i64) -> None:
        """Delete an idle sink and its stages; calls `done` after the first try to store that.

        Raises StageError for an unknown or a busy sink.
        """
        sink = self.sinks.get(name)
        if sink is None and len(self.of_sink(name)) == 0:
            raise StageError(
                NOT_FOUND, f"no sink '{name_text(name)}' in vhost '{name_text(self.vhost.name)}'"
            )
        if sink is not None and sink.is_busy():
            raise StageError(
                PRECONDITION,
                f"sink '{name_text(name)}' is publishing batch {sink.batch}; try again",
            )
        self.rows.delete(sink or Sink(name), done, now_ms)

    # -- start, stop, turns ------------------------------------------------------------------------

    def restore(self, definitions: metadata.Definitions, now_ms: i64) -> None:
        """Restore sinks and finished stages, without their messages; drop unfinished stages.

        A sink resumes the move of its last batch.
        """
        rows = [row for row in definitions.sinks if row.vhost == self.vhost.name]
        committed: set[int] = set()
        for row in rows:
            committed.update(row.stages)
        self.restore_stages(definitions, committed, now_ms)
        for row in rows:
            sink = Sink(row.name)
            sink.batch = row.batch
            sink.stages = [self.stages[id] for id in row.stages if id in self.stages]
            self.sinks[sink.name] = sink
            self.mover.begin(sink)

    def stop(self) -> None:
        """Stop moving messages; the next start resumes."""
        self.is_stopped = True

    def advance(self, now_ms: i64) -> bool:
        """Settle durable messages and move a slice of each sink; True if more can be done now."""
        self.sweep(now_ms)
        return self.mover.advance(now_ms)

    # -- inside ------------------------------------------------------------------------------------

    def _on_stage_moved(self, sink: Sink, now_ms: int) -> None:
        self.rows.stage_moved(sink, now_ms)

    def _expect_finished(self, stage_id: i64, name: bytes, batch: i64) -> Stage:
        stage = self.expect(stage_id)
        if stage.sink != name or stage.batch != batch:
            raise StageError(
                PRECONDITION,
                f"stage {stage_id} is for batch {stage.batch} of sink '{name_text(stage.sink)}', "
                f"not for batch {batch} of '{name_text(name)}'",
            )
        if not stage.is_durable:
            raise StageError(PRECONDITION, f"stage {stage_id} is not finished")
        return stage
