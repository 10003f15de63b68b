"""Sinks in a history: tasks that stage parts of a batch, and a driver that commits the batches.

The clients act as a Spark query does. Each task of a sink has a connection of its own, and so has
the driver. A task fills a stage for the next batch and finishes it. The driver commits
finished logs, repeats a commit, or commits with the number of an old batch. `move_watch.py` sees
what the broker then publishes. The restart shows what became of a commit that a crash left without
an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.models.messages import Content, Violation, body_of
from simulator.models.sink_records import NONE, SinkModel, StagedMessage, StageModel
from simulator.models.sinks import StagedMessages
from simulator.operations import AGAIN, FANOUT, LATE, TASKS, Operation
from simulator.sessions.move_watch import route
from simulator.sessions.topology import EXCHANGE
from simulator.simulated.admin import AdminClient
from simulator.simulated.node import SimulatedNode
from warrenmq.admin.protocol.requests import ErrorReply, Reply, Request
from warrenmq.admin.protocol.sinks import (
    AbortStages,
    BatchCommitted,
    CommitBatch,
    DeleteSink,
    FinishStage,
    OpenStage,
    SinkDeleted,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
    StagesAborted,
)
from warrenmq.vocabulary.error_codes import UNROUTABLE
from warrenmq.wire.properties import Properties

# Task number of the driver, which is no task.
DRIVER: Final = -1
_NO_STAGE: Final = ("not_found", "precondition")


class SinkSessions:
    """The clients of one node's sinks; `take_number` gives the number of the next message."""

    def __init__(
        self, node: SimulatedNode, staged: StagedMessages, take_number: Callable[[], int]
    ) -> None:
        self.node = node
        self.staged = staged
        self._take_number = take_number
        # Clients by (sink, task).
        self._clients: dict[tuple[int, int], AdminClient] = {}
        # Staging logs that a task fills, by (sink, task).
        self._open: dict[tuple[int, int], StageModel] = {}
        # Ids of all logs that were opened since the node started.
        self._opened: set[int] = set()

    def take_answers(self) -> None:
        """Pass the answers of this turn to their callbacks."""
        for key in sorted(self._clients):
            self._clients[key].take_answers()

    def is_waiting(self) -> bool:
        """True while an answer is outstanding."""
        return any(client.then is not None for client in self._clients.values())

    def close_all(self) -> None:
        """Disconnect every client."""
        for key in sorted(self._clients):
            self._leave(key)

    def run(self, operation: Operation) -> bool:
        """Run one operation of a sink; False when it means nothing at its turn."""
        index = operation.number(0)
        is_task = operation.kind in ("sink_stage", "sink_finish", "sink_leave")
        key = (index, operation.number(1) if is_task else DRIVER)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = AdminClient(self.node)
        sink = self.staged.sink(index)
        if operation.kind == "sink_leave":
            self._leave(key)
            return True
        if client.then is not None:
            return False
        match operation.kind:
            case "sink_stage":
                self._stage(client, key, sink, operation)
            case "sink_finish":
                return self._finish(client, key)
            case "sink_commit":
                return self._commit(client, sink, operation)
            case "sink_abort":
                return self._abort(client, sink)
            case _:
                return self._delete(client, sink)
        return True

    def _leave(self, key: tuple[int, int]) -> None:
        """Disconnect a client; drop its stage unless the client asked to finish it."""
        stage = self._open.pop(key, None)
        if stage is not None and not stage.is_ending:
            stage.is_dropped = True
        self._clients.pop(key).leave()

    # -- tasks -------------------------------------------------------------------------------------

    def _stage(
        self, client: AdminClient, key: tuple[int, int], sink: SinkModel, operation: Operation
    ) -> None:
        def opened(reply: Reply) -> None:
            if not isinstance(reply, StageOpened):
                raise Violation("answer", f"a stage is not opened: {reply}")
            stage = StageModel(sink, reply.stage, batch, queue)
            self._opened.add(stage.id)
            sink.stages[stage.id] = stage
            self._open[key] = stage
            self._fill(client, key, stage, operation)

        known = self._open.get(key)
        if known is not None:
            self._fill(client, key, known, operation)
            return
        batch = sink.next_batch()
        queue = b"q%d" % max(0, operation.number(2)) if operation.seed % 4 == 0 else b""
        client.ask(OpenStage(sink.name, batch, queue), opened)

    def _fill(
        self, client: AdminClient, key: tuple[int, int], stage: StageModel, operation: Operation
    ) -> None:
        target, count, size = operation.number(2), operation.number(3), operation.number(4)
        persistent, expiration_ms = bool(operation.number(5)), operation.number(6)
        exchange, routing_key = (EXCHANGE, b"") if target == FANOUT else (b"", b"q%d" % target)
        properties = Properties(
            delivery_mode=2 if persistent else 1,
            expiration=str(expiration_ms).encode() if expiration_ms else None,
        ).encode()
        has_queue = bool(route(self.staged.oracle.topology, stage.target, exchange, routing_key))
        block = bytearray()
        for _ in range(count):
            number = self._take_number()
            content = Content(number, properties, body_of(number, size), persistent)
            stage.messages.append(
                StagedMessage(stage, content, exchange, routing_key, expiration_ms)
            )
            block += _in_block(exchange, routing_key, content)
        stage.unroutable += 0 if has_queue else count

        def filled(reply: Reply) -> None:
            if not isinstance(reply, Staged):
                self._lose(key, stage, reply)
            elif reply.messages != count:
                raise Violation(
                    "sink", f"{count} messages were staged, the broker has {reply.messages}"
                )
            elif operation.number(7):
                self._finish(client, key)

        client.ask(StageMessages(stage.id, memoryview(block)), filled)

    def _finish(self, client: AdminClient, key: tuple[int, int]) -> bool:
        stage = self._open.get(key)
        if stage is None:
            return False
        stage.is_ending = True

        def finished(reply: Reply) -> None:
            self._open.pop(key, None)
            if not isinstance(reply, StageFinished):
                self._lose(key, stage, reply)
            elif reply.unroutable != stage.unroutable:
                raise Violation(
                    "sink",
                    f"{reply.unroutable} of {len(stage.messages)} staged messages would get nowhere, not {stage.unroutable}",
                )
            else:
                stage.is_finished = True

        client.ask(FinishStage(stage.id, len(stage.messages)), finished)
        return True

    def _finish_task(self, index: int, task: int) -> bool:
        client = self._clients.get((index, task))
        return client is not None and client.then is None and self._finish(client, (index, task))

    def _lose(self, key: tuple[int, int], stage: StageModel, reply: Reply) -> None:
        """Take the refusal of a log: a commit has left it out, or the disk has failed."""
        self._open.pop(key, None)
        if not isinstance(reply, ErrorReply):
            raise Violation("answer", f"unexpected {reply}")
        is_disk = reply.code == "storage_failed" and self.node.failed_commits > 0
        if not is_disk and not (stage.is_dropped and reply.code in _NO_STAGE):
            raise Violation("sink", f"{reply.code}: {reply.text}")
        stage.is_dropped = True

    # -- the driver --------------------------------------------------------------------------------

    def _commit(self, client: AdminClient, sink: SinkModel, operation: Operation) -> bool:
        how, is_fresh = operation.number(1), bool(operation.number(2))
        is_mandatory, wait_ms = bool(operation.number(3)), operation.number(4)
        if how in (AGAIN, LATE):
            return self._repeat(client, sink, how, wait_ms)
        finished = self._to_commit(sink)
        if not finished and operation.seed % 8:
            # Keep empty batches rare: finish the logs of the tasks first, and sometimes wait for
            # that.
            is_ending = any([self._finish_task(operation.number(0), task) for task in range(TASKS)])
            if operation.seed % 8 < 4:
                return is_ending
            self.node.drain()
            self.take_answers()
            finished = self._to_commit(sink)
            if not finished:
                return is_ending
        batch = min([stage.batch for stage in finished], default=sink.batch + 1)
        # A restarted driver may not know the logs that were staged for the driver before it.
        stages = [stage for stage in finished if stage.batch == batch]
        if is_fresh:
            stages = [stage for stage in stages if stage.id in self._opened]
        unroutable = sum(stage.unroutable for stage in stages)

        def committed(reply: Reply) -> None:
            if isinstance(reply, BatchCommitted):
                sink.batch = batch
                sink.asked = sink.former = NONE
                if reply.is_repeated:
                    raise Violation(
                        "sink", f"batch {batch} of {sink.name} was not committed before"
                    )
                if reply.is_moved:
                    self.staged.check_all_published(sink)
                return
            is_refused = isinstance(reply, ErrorReply) and reply.code == UNROUTABLE
            if not is_refused or not is_mandatory or not unroutable:
                raise Violation("sink", f"batch {batch} of {sink.name} is not committed: {reply}")
            sink.asked = NONE
            self.staged.unname(stages)

        self.staged.name(sink, batch, stages)
        if not (is_mandatory and unroutable):
            sink.left_out(batch)
        # Most drivers name the last batch that they know.
        after = sink.batch if operation.seed % 3 else None
        named = [stage.id for stage in stages]
        self._ask(
            client, CommitBatch(sink.name, batch, named, is_mandatory, wait_ms, after), committed
        )
        return True

    def _to_commit(self, sink: SinkModel) -> list[StageModel]:
        return [stage for stage in sink.finished() if stage.batch > sink.batch]

    def _repeat(self, client: AdminClient, sink: SinkModel, how: int, wait_ms: int) -> bool:
        """Repeat the last commit, or use its number for a commit of later logs."""
        if sink.batch == NONE:
            return False
        stages = [
            stage for stage in sink.stages.values() if stage.is_named and stage.batch == sink.batch
        ]
        if how == LATE:
            stages = sink.finished()
            for stage in stages:
                stage.is_dropped = True

        def committed(reply: Reply) -> None:
            if not isinstance(reply, BatchCommitted) or not reply.is_repeated:
                raise Violation(
                    "sink", f"batch {sink.batch} of {sink.name} was committed before: {reply}"
                )
            if reply.is_moved:
                self.staged.check_all_published(sink)

        request = CommitBatch(sink.name, sink.batch, [stage.id for stage in stages], True, wait_ms)
        self._ask(client, request, committed)
        return True

    def _abort(self, client: AdminClient, sink: SinkModel) -> bool:
        stages = sink.finished()
        if not stages:
            return False
        for stage in stages:
            stage.is_dropped = True

        def aborted(reply: Reply) -> None:
            if not isinstance(reply, StagesAborted) or reply.count != len(stages):
                raise Violation("sink", f"{len(stages)} stages were to be dropped: {reply}")

        self._ask(client, AbortStages([stage.id for stage in stages]), aborted)
        return True

    def _delete(self, client: AdminClient, sink: SinkModel) -> bool:
        dropped = [
            stage for stage in sink.stages.values() if not stage.is_named and not stage.is_dropped
        ]
        for stage in dropped:
            stage.is_dropped = True

        def deleted(reply: Reply) -> None:
            sink.is_deleting = False
            if isinstance(reply, SinkDeleted):
                sink.batch = sink.former = NONE
                sink.forget_committed()
                return
            if not isinstance(reply, ErrorReply):
                raise Violation("answer", f"unexpected {reply}")
            if reply.code == "storage_failed" and self.node.failed_commits > 0:
                # The node has forgotten the sink, but a start may find it on disk.
                sink.former = max(sink.batch, sink.former)
                sink.batch = NONE
                sink.forget_committed()
            elif reply.code in _NO_STAGE:
                for stage in dropped:
                    stage.is_dropped = False
            else:
                raise Violation("sink", f"{reply.code}: {reply.text}")

        sink.is_deleting = True
        self._ask(client, DeleteSink(sink.name), deleted)
        return True

    def _ask(self, client: AdminClient, request: Request, then: Callable[[Reply], None]) -> None:
        client.ask(request, then)
        client.take_answers()


def clear_sinks(node: SimulatedNode) -> None:
    """Drop all logs without a commit and delete all sinks; their messages must all be in queues."""
    client = AdminClient(node)
    staging = node.vhost.staging
    stages = sorted(staging.stages)
    reply = client.answer_to(AbortStages(stages))
    if reply != StagesAborted(len(stages)):
        raise Violation("sink", f"of the stages {stages} not all can be dropped: {reply}")
    for name in sorted(staging.sinks):
        reply = client.answer_to(DeleteSink(name.decode()))
        if not isinstance(reply, SinkDeleted):
            raise Violation("sink", f"sink {name.decode()} cannot be deleted: {reply}")
    client.leave()


def _in_block(exchange: bytes, routing_key: bytes, content: Content) -> bytes:
    """Encode a message as a record of `StageMessages`."""
    record = (
        bytes(4 + 8 + 1)
        + bytes([len(exchange)])
        + exchange
        + bytes([len(routing_key)])
        + routing_key
    )
    record += len(content.properties).to_bytes(4, "big") + content.properties
    record += len(content.body).to_bytes(4, "big") + content.body
    return len(record).to_bytes(4, "big") + record
