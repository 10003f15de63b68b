"""Stand-ins: what this node knows of the stages of other nodes whose messages it gets.

A stage of another node has messages for queues of this one. They come slice by slice, and again
after a crash or a lost link. The stage has a *stand-in* here, a stage without messages, whose id
the MOVE of each of these messages names beside its seq id in the stage. So the node knows, also
after a start, which of them it has, and takes each once. The stand-in, and the journal files with
its MOVEs, stay until the other node is done with the stage.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.sinks.stage import Stage, is_stand_in, stand_in_name
from warrenmq.broker.vhost.sinks.staged_routes import inspect
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import Message, MovedMessage


class StandIns:
    """The stand-ins of one vhost."""

    def __init__(self, staging: Staging) -> None:
        self._staging: Staging = staging
        # Messages that are published and not durable yet, by stand-in and seq id.
        self._pending: dict[int, dict[int, MovedMessage]] = {}

    def of(self, origin: bytes, stage_id: i64, now_ms: i64) -> Stage:
        """The stand-in of a stage of the node whose data have the id `origin`; made if need be."""
        name = stand_in_name(origin, stage_id)
        for stage in self._staging.stages.values():
            if stage.sink == name:
                return stage
        staging = self._staging
        queue_id = staging.vhost.node.next_queue_id()
        stage = Stage(staging.make_queue(queue_id, name, 0, now_ms), name, 0, None, now_ms, b"")
        stage.is_finished = True
        stage.is_durable = True
        stage.is_committed = True
        staging.stages[queue_id] = stage
        # No MOVE may be durable before it: a start would not know what the MOVE is about.
        change_set = staging.vhost.store_changes([staging.put_stage(stage)], True)
        change_set.is_needed_by_records = True
        return stage

    def take(
        self,
        stage: Stage,
        seq: i64,
        queues: list[MessageTaker],
        message: Message,
        is_known: bool,
        now_ms: i64,
    ) -> None:
        """Publish the message `seq` of the stage to `queues` of this node, unless it is here."""
        pending = self._pending.setdefault(stage.queue.id, {})
        if seq in stage.moved or seq in pending:
            return
        moved = MovedMessage(
            message.address,
            message.properties,
            message.body,
            message.persistent,
            now_ms,
            stage.queue.id,
            seq,
        )
        properties = inspect(moved)
        # A committed message must not vanish: no queue may refuse it.
        arrive(
            queues,
            moved,
            properties.expiration_ms,
            properties.priority,
            now_ms,
            is_known,
            may_refuse=False,
        )
        self._staging.vhost.journal.moves.add(moved)
        pending[seq] = moved

    def when_durable(self, stage: Stage, done: Callable[[], None]) -> None:
        """Call `done` when all messages taken so far for the stand-in are durable."""
        _Taken(self, stage, self._staging.vhost.journal, done).watch()

    def on_durable(self, stage: Stage, seqs: list[int]) -> None:
        """Note that the messages `seqs` are here for good."""
        pending = self._pending.get(stage.queue.id)
        if pending is None:
            return
        for seq in seqs:
            moved = pending.get(seq)
            if moved is None or moved.pinned is None:
                continue
            del pending[seq]
            if stage.is_dropped:
                self._staging.vhost.journal.moves.settled(moved.pinned)
            else:
                stage.moved[seq] = moved.pinned
        if len(pending) == 0:
            self._pending.pop(stage.queue.id, None)

    def settle(self, stage: Stage, below: i64) -> None:
        """Forget messages below the seq id `below`, which will not come again."""
        for seq in [seq for seq in stage.moved if seq < below]:
            self._staging.vhost.journal.moves.settled(stage.moved.pop(seq))

    def pending(self, stage: Stage) -> list[int]:
        """Seq ids of the messages that are not durable yet."""
        return list(self._pending.get(stage.queue.id, {}))

    def drop(self, origin: bytes, below: i64, stage_id: i64, now_ms: i64) -> None:
        """Drop the stand-in of `stage_id`, and those of all stages of the origin below `below`."""
        dropped: list[Stage] = []
        for stage in self._staging.stages.values():
            if not is_stand_in(stage.sink):
                continue
            known_origin, _, number = stage.sink.rpartition(b"/")
            if known_origin == origin and (int(number) == stage_id or int(number) < below):
                dropped.append(stage)
        for stage in dropped:
            for file in stage.moved.values():
                self._staging.vhost.journal.moves.settled(file)
            stage.moved = {}
        self._staging.drop(dropped, now_ms)


class _Taken:
    """Messages of a stand-in that wait for the journal; a class for the reason in `MoveSlice`."""

    def __init__(
        self, stand_ins: StandIns, stage: Stage, journal: Journal, done: Callable[[], None]
    ) -> None:
        self._stand_ins: StandIns = stand_ins
        self._stage: Stage = stage
        self._seqs: list[int] = stand_ins.pending(stage)
        self._journal: Journal = journal
        self._done: Callable[[], None] = done

    def watch(self) -> None:
        """Wait for the journal, which has got all of the messages."""
        self._journal.when_durable(self.on_batch)

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """Call back; after a failure the next batch has the MOVEs again."""
        if ok:
            self._stand_ins.on_durable(self._stage, self._seqs)
            self._done()
        else:
            self.watch()
