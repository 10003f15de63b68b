"""The sinks of a node that runs alone: rows of its own metadata.

The commit point of a batch is one row (PutSink), which names the stages. A start resumes with the
stages that the row names; messages that the journal records as published are only settled
(`Stage.moved`). So each message is in the queues it was routed to exactly once, and in order for
each stage.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions import metadata
from warrenmq.broker.vhost.sinks.mover import Mover
from warrenmq.broker.vhost.sinks.sink_rows import COMMITTED, Committed, Deleted, SinkRows
from warrenmq.broker.vhost.sinks.stage import Sink, Stage
from warrenmq.broker.vhost.sinks.stages import Stages

_NOT_STORED: Final = "the broker could not store that the sink is deleted; try again"


class OwnRows(SinkRows):
    """The records of the `sinks` of one vhost, by name, in the metadata of its node."""

    def __init__(self, stages: Stages, mover: Mover, sinks: dict[bytes, Sink]) -> None:
        self._sinks: dict[bytes, Sink] = sinks
        self._stages: Stages = stages
        self._mover: Mover = mover

    def commit(
        self,
        sink: Sink,
        batch: i64,
        stages: list[Stage],
        copies: dict[bytes, list[int]],
        done: Committed,
    ) -> None:
        sink.stages = stages
        asked = _Commit(self, sink, batch, done)
        row = self._put(sink, batch)
        # Kept and patient: a commit cannot be taken back, as one that failed may be on disk.
        change_set = self._stages.vhost.store_changes([row], True, is_patient=True)
        change_set.callbacks.append(asked.on_stored)

    def on_committed(self, sink: Sink, batch: i64, now_ms: i64) -> None:
        """Drop superseded stages and start moving: the commit of `batch` is durable."""
        sink.is_committing = False
        sink.batch = batch
        superseded = [
            stage
            for stage in self._stages.of_sink(sink.name)
            if stage.batch <= batch and not stage.is_committed
        ]
        self._stages.drop(superseded, now_ms)
        self._mover.begin(sink)

    def stage_moved(self, sink: Sink, now_ms: i64) -> None:
        stage = sink.stages.pop(0)
        vhost = self._stages.vhost
        removal = self._stages.remove(stage, now_ms)
        vhost.add_changes([self._put(sink, sink.batch), removal])

    def delete(self, sink: Sink, done: Deleted, now_ms: i64) -> None:
        vhost = self._stages.vhost
        self._sinks.pop(sink.name, None)
        self._stages.drop(self._stages.of_sink(sink.name), now_ms)
        change_set = vhost.store_changes([metadata.DeleteSink(vhost.name, sink.name)], True)
        change_set.callbacks.append(lambda ok, _now_ms: done("" if ok else _NOT_STORED))

    def _put(self, sink: Sink, batch: i64) -> metadata.PutSink:
        ids = [stage.queue.id for stage in sink.stages]
        return metadata.PutSink(self._stages.vhost.name, sink.name, batch, ids)


class _Commit:
    """A commit on its way to disk; it is a class and no closure for the reason in `MoveSlice`."""

    def __init__(self, rows: OwnRows, sink: Sink, batch: i64, done: Committed) -> None:
        self._rows: OwnRows = rows
        self._sink: Sink = sink
        self._batch: i64 = batch
        self._done: Committed = done

    def on_stored(self, _ok: bool, now_ms: int) -> None:
        """Report that the commit is durable."""
        self._rows.on_committed(self._sink, self._batch, now_ms)
        self._done(COMMITTED, "")
