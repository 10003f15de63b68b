"""Moves the messages of committed batches from their stages to the queues.

Messages are taken from the stages in order, routed through their exchanges, published, and settled
in their stage once the journal's batch with their publishes is durable (`store/journal/journal.py`,
"Moves"). Each turn moves a slice for each sink, as far as flow control allows.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.sinks.stage import (
    MOVE_SLICE_MESSAGES,
    OUT_BYTES,
    OUT_MESSAGES,
    MoveSlice,
    Sink,
    Stage,
)
from warrenmq.broker.vhost.sinks.staged_moves import StagedMoves
from warrenmq.broker.vhost.sinks.stages import Stages
from warrenmq.queues.backing.variable_queue import LOADING, READY
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED


class Mover:
    """Moves the staged messages of one vhost.

    `stage_moved(sink, now_ms)` takes the first stage from the sink's list: it is moved, and
    settled.
    """

    def __init__(
        self,
        stages: Stages,
        delayed: DelayedMessages,
        receipts: Receipts,
        stage_moved: Callable[[Sink, int], None],
    ) -> None:
        # Messages that one turn moves for each sink.
        self.slice_messages: i64 = MOVE_SLICE_MESSAGES
        # Slices that are published and not settled yet, oldest first.
        self.slices: list[MoveSlice] = []
        self._stages: Stages = stages
        self._stage_moved: Callable[[Sink, int], None] = stage_moved
        self._moves: StagedMoves = StagedMoves(stages.vhost, stages.routes, delayed, receipts)
        # Sinks that have messages to move.
        self._moving: list[Sink] = []
        # True if flow control paused a sink in this turn.
        self._is_paused: bool = False
        self._out_bytes: i64 = 0
        self._out_count: i64 = 0

    def begin(self, sink: Sink) -> None:
        """Begin to move the stages of `sink`, or go on."""
        if sink not in self._moving:
            self._moving.append(sink)
        self._stages.vhost.node.wake()

    def advance(self, now_ms: i64) -> bool:
        """Settle durable messages and move a slice of each sink; True if more can be done now."""
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
            while len(sink.stages) > 0 and is_moved(sink.stages[0]):
                self._stage_moved(sink, now_ms)
            if len(sink.stages) == 0:
                self._moving.remove(sink)
                if not sink.is_busy():
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

    def _must_pause(self) -> bool:
        vhost = self._stages.vhost
        if (
            self._stages.is_stopped
            or self._out_bytes >= OUT_BYTES
            or self._out_count >= OUT_MESSAGES
        ):
            return True
        if vhost.journal.pending_bytes >= OUT_BYTES // 2:
            # The batch being written has the other half. A larger one would leave nothing to do
            # until it is durable, and disk and loop would work in turns.
            return True
        # The memory alarm does not pause a move, which needs no more memory. A low disk does.
        return vhost.node.alarms.disk_since_ms >= 0 or vhost.node.disk_flow.is_full(vhost.journal)

    def _move_slice(self, stage: Stage, now_ms: i64) -> bool:
        queue = stage.queue
        taken = MoveSlice(stage, self._stages.vhost.journal)
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
            moves = self._stages.vhost.journal.moves
            for message in taken.messages:
                if message.pinned is not None:
                    moves.settled(message.pinned)
            for file in taken.files:
                moves.settled(file)


def is_moved(stage: Stage) -> bool:
    """Whether all messages of the stage are in their queues."""
    return stage.queue.ready_count == 0 and len(stage.unacked) == 0
