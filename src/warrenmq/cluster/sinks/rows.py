"""The records of a vhost's sinks in the cluster: commits and deletions are decisions of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.broker.definitions.metadata import DeleteSink
from warrenmq.broker.vhost.sinks.sink_rows import (
    CHANGED,
    COMMITTED,
    UNANSWERED,
    Committed,
    Deleted,
    SinkRows,
)
from warrenmq.broker.vhost.sinks.stage import Sink, Stage
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import RETRY_MS
from warrenmq.cluster.metadata.conditions import Absent, Alive, Condition, LastWritten
from warrenmq.cluster.sinks.decision import SinkContext, SinkDecision
from warrenmq.cluster.sinks.sink_row import committed

_OTHERS: Final = "somebody else has changed the sink; try again"


class ClusterRows(SinkRows):
    """The records of the sinks of `vhost`.

    `owes(place)` tells whether the cluster has to get rows of this node first; `published(place)`
    is called when this node has moved all stages of a batch.
    """

    def __init__(
        self,
        context: SinkContext,
        vhost: Vhost,
        owes: Callable[[tuple[bytes, bytes]], bool],
        published: Callable[[tuple[bytes, bytes]], None],
    ) -> None:
        self._context = context
        self._vhost = vhost
        self._owes = owes
        self._published = published

    def commit(
        self,
        sink: Sink,
        batch: int,
        stages: list[Stage],
        copies: dict[bytes, list[int]],
        done: Committed,
    ) -> None:
        context, place = self._context, (self._vhost.name, sink.name)

        def on_outcome(outcome: int, reason: str) -> None:
            sink.is_committing = False
            sinks = self._vhost.staging.sinks
            if place not in context.copy.sinks and sinks.get(sink.name) is sink:
                del sinks[sink.name]
            done(outcome, reason)
            if not sink.is_busy():
                sink.call_waiters()

        if self._owes(place):
            context.clock.call_later(RETRY_MS, lambda: on_outcome(CHANGED, ""))
            return
        own = {context.name: [int(stage.queue.id) for stage in stages]} if stages else {}
        count = sum(stage.message_count for stage in stages)
        before = context.copy.sinks.get(place)
        row = committed(*place, before, batch, count, {**own, **copies, **own}, context.name)
        conditions: list[Condition] = []
        if before is not None:
            conditions.append(LastWritten(before, before.revision))
        else:
            conditions.append(Absent(row))
            vhost = context.copy.vhosts.get(place[0])
            if vhost is not None:
                conditions.append(Alive(vhost, vhost.birth))
        SinkDecision(context, place, conditions, row, on_outcome).attempt()

    def stage_moved(self, sink: Sink, now_ms: int) -> None:
        """The stage itself stays until the cluster has decided that the batch is published."""
        sink.stages.pop(0)
        if not sink.stages:
            self._published((self._vhost.name, sink.name))

    def delete(self, sink: Sink, done: Deleted, now_ms: int) -> None:
        context, place = self._context, (self._vhost.name, sink.name)
        row = context.copy.sinks.get(place)
        if row is None:
            # There are stages only, which no batch has named yet.
            staging = self._vhost.staging
            staging.drop(staging.of_sink(sink.name), now_ms)
            done("")
            return
        sink.is_committing = True

        def on_outcome(outcome: int, reason: str) -> None:
            sink.is_committing = False
            if outcome == COMMITTED or place not in context.copy.sinks:
                done("")
            else:
                done(reason if outcome == UNANSWERED else _OTHERS)
            if not sink.is_busy():
                sink.call_waiters()

        conditions: list[Condition] = [LastWritten(row, row.revision)]
        SinkDecision(context, place, conditions, DeleteSink(*place), on_outcome).attempt()
