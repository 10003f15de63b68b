"""The sinks of a cluster on one of its nodes: follows their rows, and publishes what is its turn.

Every node knows all sinks. A commit is a decision of the cluster (`rows.py`). The nodes that have
the stages of the batch keep them until the row says that all is published. The mover publishes
them; if its node does not run, the first running one of the others takes over. Two movers at once
do no harm: queues know which positions they have got.

What a node wants to change in a row follows from the row and from what the node has: so it looks at
the row again whenever something has changed, and proposes one change of a sink at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import DeleteSink, MetadataDamaged, PutSink
from warrenmq.broker.vhost.sinks.stage import Sink, Stage
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import RETRY_MS, CommitResult
from warrenmq.cluster.metadata.conditions import Absent, Alive, Condition, LastWritten, NodeIs
from warrenmq.cluster.records import RunningNode
from warrenmq.cluster.sinks.decision import SinkContext
from warrenmq.cluster.sinks.rows import ClusterRows
from warrenmq.cluster.sinks.sink_row import (
    Copies,
    committed,
    copies_of,
    first_mover,
    sink_key,
    with_copies,
    without_node,
)
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# A sink, by vhost and name.
_Place = tuple[bytes, bytes]


@dataclass(frozen=True)
class _OwnSink:
    """What a sink had that `vhost` kept in rows of the node: its last batch, and stages of it."""

    vhost: Vhost
    batch: int
    stages: list[Stage]

    def stages_left(self) -> list[Stage]:
        """The stages that are not published yet."""
        return [stage for stage in self.stages if not stage.is_dropped]


@dataclass(frozen=True)
class _Wanted:
    """A change of a row that this node proposes, and what the log says when it is decided."""

    conditions: list[Condition]
    row: PutSink
    level: int
    text: str


class ClusterSinks:
    """The sinks of the cluster, as the node of `context` knows them."""

    def __init__(self, context: SinkContext, broker: Broker) -> None:
        self._context = context
        self._name = context.name
        self._broker = broker
        # The running nodes, with whether each is in maintenance mode; none while this one is away.
        self._running: dict[bytes, bool] = {}
        # Those whose host has refused connections since, so that their leases end in a moment.
        self._dead: set[bytes] = set()
        # Revisions of the rows that are in force here.
        self._in_force: dict[_Place, int] = {}
        # Sinks in rows of this node that the cluster is to get.
        self._own: dict[_Place, _OwnSink] = {}
        # Sinks with a proposal of this node under way.
        self._deciding: set[_Place] = set()

    # -- vhosts and nodes --------------------------------------------------------------------------

    def take(self, vhost: Vhost) -> None:
        """Record the sinks of `vhost`, which is open, in the cluster, also those it has by now."""
        staging = vhost.staging
        if isinstance(staging.rows, ClusterRows):
            return
        staging.rows = ClusterRows(self._context, vhost, self._owes, self.propose_wanted)
        for sink in staging.sinks.values():
            self._own[vhost.name, sink.name] = _OwnSink(vhost, int(sink.batch), sink.stages)
            sink.stages = []

    def set_running(self, running: Mapping[str, RunningNode], dead: Collection[str]) -> None:
        """Take over the records of the running nodes, some of which are known to be `dead`.

        None: this node leaves the others for a while.
        """
        self._running = {
            name.encode(): record.is_draining
            for name, record in running.items()
            if name not in dead
        }
        self._dead = {name.encode() for name in dead}
        for place in {*self._context.copy.sinks, *self._own}:
            self.propose_wanted(place)

    def _owed(self, place: _Place) -> _OwnSink | None:
        """What the cluster has not got yet of the rows that this node had of a sink."""
        own = self._own.get(place)
        return own if own is not None and self._broker.vhosts.get(place[0]) is own.vhost else None

    def _owes(self, place: _Place) -> bool:
        return self._owed(place) is not None

    def loaded(self, vhost: Vhost) -> None:
        """Forget the receipts of sinks that were deleted while this node was away."""
        vhost.receipts.keep_only({sink.key for sink in vhost.staging.sinks.values()})

    # -- rows --------------------------------------------------------------------------------------

    def follow(self, vhost: Vhost, row: PutSink) -> None:
        """Put a row in force that the copy has by now."""
        try:
            copies = copies_of(row)
        except MetadataDamaged as error:
            logger.error("sink '%s' stays as it was: %s", name_text(row.name), error)
            return
        place = row.vhost, row.name
        staging = vhost.staging
        sink = staging.sinks.setdefault(row.name, Sink(row.name))
        key = sink_key(row)
        if sink.key not in (b"", key):
            vhost.receipts.drop_sink(sink.key)
        sink.key = key
        sink.mover = row.mover
        sink.nodes = list(copies)
        self._drop_superseded(vhost, row, copies, is_new=row.batch > sink.batch)
        own = self._owed(place)
        if own is not None and self._has_got(own, row, copies):
            own = None
            del self._own[place]
            vhost.store_changes([DeleteSink(*place)], True)
        sink.batch = row.batch if own is None else max(row.batch, own.batch)
        stages = self._stages(vhost, row, copies)
        sink.stages = []
        if row.mover == self._name and stages is not None:
            before_first = row.before_first
            is_repeated = row.mover != first_mover(copies)
            for stage in stages:
                stage.sink_key = key
                stage.before_first = before_first
                stage.is_repeated = is_repeated
                before_first += stage.message_count
            sink.stages = stages
            staging.mover.begin(sink)
        self._in_force[place] = row.revision
        if not sink.is_busy():
            sink.call_waiters()
        self.propose_wanted(place)

    def forget(self, vhost: Vhost, name: bytes) -> None:
        """Forget a sink that is deleted, with its stages."""
        self._in_force.pop((vhost.name, name), None)
        sink = vhost.staging.sinks.pop(name, None)
        vhost.staging.drop(vhost.staging.of_sink(name), self._context.clock.now_ms())
        if sink is not None:
            vhost.receipts.drop_sink(sink.key)
            sink.stages = []
            sink.nodes = []
            sink.call_waiters()

    def _drop_superseded(self, vhost: Vhost, row: PutSink, copies: Copies, is_new: bool) -> None:
        """Drop the stages that are published, and for a new batch all others that it makes void.

        Who stages a batch again that is committed already is told so by the commit. A commit that
        relied on an earlier row will not be decided any more, so the stages of a later batch count
        as uncommitted.
        """
        kept = set(copies.get(self._name, ()))
        own = self._owed((row.vhost, row.name))
        if own is not None:
            kept.update(stage.queue.id for stage in own.stages)
        dropped: list[Stage] = []
        for stage in vhost.staging.of_sink(row.name):
            if stage.queue.id in kept:
                stage.is_committed = True
            elif stage.batch > row.batch:
                stage.is_committed = False
            elif is_new or stage.is_committed:
                dropped.append(stage)
        vhost.staging.drop(dropped, self._context.clock.now_ms())

    def _has_got(self, own: _OwnSink, row: PutSink, copies: Copies) -> bool:
        named = copies.get(self._name, [])
        left = [stage.queue.id for stage in own.stages_left()]
        return row.batch >= own.batch and all(id in named for id in left)

    def _stages(self, vhost: Vhost, row: PutSink, copies: Copies) -> list[Stage] | None:
        """This node's stages of the batch; None if it has not got them all."""
        stages: list[Stage] = []
        for id in copies.get(self._name, ()):
            stage = vhost.staging.stages.get(id)
            if stage is None or not stage.is_durable or stage.sink != row.name:
                return None
            if stage.batch > row.batch:
                return None
            stages.append(stage)
        count = sum(stage.message_count for stage in stages)
        return stages if self._name in copies and count == row.message_count else None

    # -- changes -----------------------------------------------------------------------------------

    def propose_wanted(self, place: _Place) -> None:
        """Propose what this node wants to change in the row of a sink, if anything."""
        if place in self._deciding or not self._running:
            return
        wanted = self._wanted(place)
        if wanted is None:
            return

        def on_result(result: CommitResult) -> None:
            if result.revision:
                logger.log(wanted.level, "%s", wanted.text)
                self._context.when_followed(result.revision, again)
            else:
                # After a conflict, too: this node follows in a moment what has been decided first.
                self._context.clock.call_later(RETRY_MS, again)

        def again() -> None:
            self._deciding.discard(place)
            self.propose_wanted(place)

        self._deciding.add(place)
        self._context.store.commit(wanted.conditions, [wanted.row], on_result)

    def _wanted(self, place: _Place) -> _Wanted | None:
        row = self._context.copy.sinks.get(place)
        vhost = self._broker.vhosts.get(place[0])
        if vhost is None:
            return None
        own = self._owed(place)
        if own is not None and (row is None or not row.copies):
            return self._adoption(place, own, row)
        if row is None or not row.copies or self._in_force.get(place) != row.revision:
            return None
        copies = copies_of(row)
        if self._name in copies and self._stages(vhost, row, copies) is None:
            return self._loss(row)
        if row.mover != self._name:
            return self._take_over(row, copies)
        if not vhost.staging.sinks[row.name].stages:
            published = with_copies(row, {}, b"")
            text = f"batch {row.batch} of {_sink_text(row)} is published"
            return _Wanted([LastWritten(row, row.revision)], published, logging.DEBUG, text)
        return self._hand_over(row, copies)

    def _loss(self, row: PutSink) -> _Wanted | None:
        """The row without this node, whose stages are not there."""
        rest = without_node(row, self._name)
        if rest is None:
            return None
        text = f"the stages of batch {row.batch} of {_sink_text(row)} are not on this node"
        if not rest.copies:
            text = f"{text}, nor on another one: the batch is lost"
        return _Wanted([LastWritten(row, row.revision)], rest, logging.ERROR, text)

    def _take_over(self, row: PutSink, copies: Copies) -> _Wanted | None:
        if row.mover in self._running or self._next_mover(copies) != self._name:
            return None
        conditions: list[Condition] = [LastWritten(row, row.revision)]
        if row.mover not in self._dead:
            conditions.append(NodeIs(row.mover, 0))
        return _Wanted(
            conditions,
            with_copies(row, copies, self._name),
            logging.INFO,
            f"this node publishes batch {row.batch} of {_sink_text(row)} "
            f"instead of node {name_text(row.mover)}, which does not run",
        )

    def _hand_over(self, row: PutSink, copies: Copies) -> _Wanted | None:
        """The row with another mover while this node is in maintenance mode."""
        mover = self._next_mover(copies)
        if not self._running.get(self._name) or self._running.get(mover, True):
            return None
        return _Wanted(
            [LastWritten(row, row.revision)],
            with_copies(row, copies, mover),
            logging.INFO,
            f"node {name_text(mover)} publishes batch {row.batch} of {_sink_text(row)}: "
            "this node is in maintenance mode",
        )

    def _next_mover(self, copies: Copies) -> bytes:
        """The first running node of `copies`; those in maintenance mode come last. b"": none."""
        running = [node for node in copies if node in self._running]
        return min(running, key=lambda node: self._running[node], default=b"")

    def _adoption(self, place: _Place, own: _OwnSink, row: PutSink | None) -> _Wanted | None:
        """The row with what this node had recorded of the sink before it came into the cluster."""
        stages = own.stages_left()
        vhost = self._context.copy.vhosts.get(place[0])
        if vhost is None:
            return None
        copies = {self._name: [int(stage.queue.id) for stage in stages]} if stages else {}
        batch = own.batch if row is None else max(own.batch, row.batch)
        count = sum(stage.message_count for stage in stages)
        wanted = committed(*place, row, batch, count, copies, self._name)
        conditions: list[Condition] = [Absent(wanted), Alive(vhost, vhost.birth)]
        if row is not None:
            conditions = [LastWritten(row, row.revision)]
        text = f"{_sink_text(wanted)} of this node is one of the cluster from batch {batch} on"
        return _Wanted(conditions, wanted, logging.INFO, text)


def _sink_text(row: PutSink) -> str:
    return f"sink '{name_text(row.name)}' in vhost '{name_text(row.vhost)}'"
