"""The sink calls of one session: filling stages and committing batches (vhost/sinks/staging.py).

This module decides when an answer leaves. Staged messages are answered when there is room for more,
so that a client is as fast as memory and disk allow. A commit waits for the batch before it. A
client that does not want to wait for long is refused in the end, with what is short. A commit's
answer leaves when the batch is durable, or, if the client wants to wait, when all of its messages
are in their queues.
"""

from collections.abc import Callable
from typing import Final

from warrenmq.admin.clock import Clock, Timer
from warrenmq.admin.dispatch import Dispatch
from warrenmq.admin.node import AdminVhost
from warrenmq.admin.protocol import sinks
from warrenmq.admin.protocol.requests import REQUEST_BYTES_MAX, STAGE_BYTES, ErrorReply, Reply
from warrenmq.admin.status import sink_names, sink_status
from warrenmq.broker.vhost.sinks.sink_rows import CHANGED, COMMITTED
from warrenmq.broker.vhost.sinks.stage import Author, Stage, StageError
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.vocabulary import error_codes

# Interval at which a client that waits for memory or disk is checked (s).
FULL_RETRY_S: Final = 0.01
# Bytes of a message beside its body: properties and names.
_MESSAGE_HEAD_BYTES: Final = 3 * REQUEST_BYTES_MAX


def block_bytes_max(max_message_size: int) -> int:
    """Largest block (bytes) of staged messages when bodies have up to `max_message_size` bytes."""
    return max(max_message_size, STAGE_BYTES) + _MESSAGE_HEAD_BYTES


class SinkCalls:
    """Carries out one session's sink requests; each is answered once, through `reply`.

    `author` is the session's user, with its rights to publish. `is_administrator` tells whether it
    has that tag now.
    """

    def __init__(
        self,
        vhost: AdminVhost,
        clock: Clock,
        author: Author,
        is_administrator: Callable[[], bool],
        reply: Callable[[Reply], None],
    ) -> None:
        self._vhost = vhost
        self._staging: Staging = vhost.staging
        self._clock = clock
        self._author = author
        self._is_administrator = is_administrator
        self._reply = reply
        self._calls: Dispatch[None] = Dispatch()
        self._calls.add(sinks.StageMessages, self._stage)
        self._calls.add(sinks.OpenStage, self._open)
        self._calls.add(sinks.FinishStage, self._finish)
        self._calls.add(sinks.CommitBatch, self._commit)
        self._calls.add(sinks.AbortStages, self._abort)
        self._calls.add(sinks.DescribeSink, self._describe)
        self._calls.add(sinks.ListSinks, self._list)
        self._calls.add(sinks.DeleteSink, self._delete)

    def stop(self) -> None:
        """Drop the stages that the session has not finished: it has ended."""
        self._staging.on_client_gone(self, self._clock.now_ms())

    def start(self, request: sinks.SinkRequest) -> None:
        """Carry out `request`."""
        call = self._calls.of(request)
        assert call is not None
        try:
            call(request)
        except StageError as error:
            self._reply(ErrorReply(error.code, error.text))

    # -- stages ------------------------------------------------------------------------------

    def _open(self, request: sinks.OpenStage) -> None:
        if request.queue and not self._is_administrator():
            text = "messages are put into queues by users with the tag administrator"
            self._reply(ErrorReply(error_codes.ACCESS_REFUSED, text))
            return
        now_ms = self._clock.now_ms()
        stage = self._staging.open(
            request.sink.encode(), request.batch, self, now_ms, request.queue
        )
        self._reply(
            sinks.StageOpened(stage.queue.id, block_bytes_max(self._vhost.max_message_size))
        )

    def _stage(self, request: sinks.StageMessages) -> None:
        count = self._staging.stage_block(
            request.stage,
            self,
            bytes(request.block),
            self._author,
            self._clock.now_ms(),
        )
        stage = self._staging.stages[request.stage]
        self._answer_staged(stage, count, request.room_ms)

    def _answer_staged(self, stage: Stage, count: int, room_ms: int | None) -> None:
        """Answer when there is room for more messages, or has been none for `room_ms`."""
        waits = self._vhost.room_waits
        shortage = self._staging.shortage()
        if not shortage:
            waits.end(stage.sink, stage.batch)
            self._reply(sinks.Staged(count))
            return
        waited_ms = waits.waited_ms(stage.sink, stage.batch, self._clock.now_ms())
        if room_ms is not None and waited_ms >= room_ms:
            self._reply(ErrorReply(error_codes.NO_ROOM, shortage))
        else:
            self._clock.call_later(FULL_RETRY_S, lambda: self._answer_staged(stage, count, room_ms))

    def _finish(self, request: sinks.FinishStage) -> None:
        stage = self._staging.stages.get(request.stage)

        def on_durable(error: StageError | None) -> None:
            if error is not None:
                self._reply(ErrorReply(error.code, error.text))
            else:
                self._reply(sinks.StageFinished(0 if stage is None else stage.unroutable_count))

        self._staging.finish(
            request.stage, self, request.messages, on_durable, self._clock.now_ms()
        )

    def _abort(self, request: sinks.AbortStages) -> None:
        aborted = self._staging.abort(request.stages, self._clock.now_ms())
        self._reply(sinks.StagesAborted(aborted))

    # -- sinks -------------------------------------------------------------------------------------

    def _commit(self, request: sinks.CommitBatch) -> None:
        staging = self._staging
        name = request.sink.encode()
        if request.batch <= staging.last_batch(name):
            # The batch is committed already, so its messages that were staged once more are
            # dropped.
            staging.abort(request.stages, self._clock.now_ms())
            self._when_moved(request, True)
        elif staging.is_busy(name):
            self._await_idle(name, request.room_ms, lambda is_idle: self._go_on(request, is_idle))
        elif request.after is not None and request.after != staging.last_batch(name):
            raise StageError(
                error_codes.PRECONDITION,
                f"the last batch of sink '{request.sink}' is {staging.last_batch(name)}, not {request.after}: "
                f"somebody else writes to it",
            )
        else:
            staging.commit(
                name,
                request.batch,
                request.stages,
                {copy.node.encode(): copy.stages for copy in request.copies},
                request.mandatory,
                lambda outcome, reason: self._on_commit(request, outcome, reason),
            )

    def _on_commit(self, request: sinks.CommitBatch, outcome: int, reason: str) -> None:
        if outcome == COMMITTED:
            self._when_moved(request, False)
        elif outcome == CHANGED:
            self.start(request)
        else:
            self._reply(ErrorReply(error_codes.STORAGE_FAILED, reason))

    def _go_on(self, request: sinks.CommitBatch, is_idle: bool) -> None:
        """Carry out a commit that has waited for the batch before it, unless that is not done."""
        if is_idle:
            self.start(request)
        else:
            text = "the batch before it is not in its queues yet"
            shortage = self._staging.shortage()
            self._reply(
                ErrorReply(error_codes.NO_ROOM, f"{text}: {shortage}" if shortage else text)
            )

    def _await_idle(self, name: bytes, wait_ms: int | None, done: Callable[[bool], None]) -> None:
        """Call `done(True)` once the busy sink is idle, or `done(False)` after `wait_ms`."""
        waiting = [done]
        timers: list[Timer] = []

        def end(is_idle: bool) -> None:
            if waiting:
                for timer in timers:
                    timer.cancel()
                waiting.pop()(is_idle)

        if wait_ms is not None:
            timers.append(self._clock.call_later(wait_ms / 1000, lambda: end(False)))
        self._staging.when_idle(name, lambda: end(True))

    def _when_moved(self, request: sinks.CommitBatch, is_repeated: bool) -> None:
        staging = self._staging
        name = request.sink.encode()
        if request.wait_ms == 0 or not staging.is_busy(name):
            self._reply(sinks.BatchCommitted(is_repeated, not staging.is_busy(name)))
            return

        def answer(_is_idle: bool) -> None:
            is_moved = not staging.is_busy(name)
            shortage = "" if is_moved else staging.shortage()
            self._reply(sinks.BatchCommitted(is_repeated, is_moved, shortage))

        self._await_idle(name, request.wait_ms, answer)

    def _describe(self, request: sinks.DescribeSink) -> None:
        name = request.sink.encode()
        if name not in sink_names(self._staging):
            raise StageError(error_codes.NOT_FOUND, f"no sink '{request.sink}'")
        self._reply(sink_status(self._staging, name))

    def _list(self, _request: sinks.ListSinks) -> None:
        names = sink_names(self._staging)
        self._reply(sinks.SinkList([sink_status(self._staging, name) for name in names]))

    def _delete(self, request: sinks.DeleteSink) -> None:
        def on_deleted(failure: str) -> None:
            if failure:
                self._reply(ErrorReply(error_codes.STORAGE_FAILED, failure))
            else:
                self._reply(sinks.SinkDeleted())

        self._staging.delete_sink(request.sink.encode(), on_deleted, self._clock.now_ms())
