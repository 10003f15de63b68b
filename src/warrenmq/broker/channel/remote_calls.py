"""The calls of a channel to the nodes of queues that live elsewhere, for which it waits.

The channel is suspended until the answer comes, so that its later methods keep their place.

A queue with copies on several nodes has no master for a moment when its node is lost. A method that
needs the master waits for it, at most MASTER_WAIT_MS, and is handled once more from its beginning.
It does not wait when no copy within reach can take over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.suspended_method import resume_method
from warrenmq.queues.remote.link_records import (
    CALL_COUNTS,
    CALL_PROBE,
    CALL_PURGE,
    MOVED,
    write_name,
)
from warrenmq.queues.remote.node import RemoteNode
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.remote.session import CallAnswer, SessionCall
from warrenmq.wire.errors import NOT_FOUND, AmqpError, ChannelException, ConnectionException
from warrenmq.wire.methods import QueueDeclareOk, QueueDeleteOk, QueuePurgeOk

# How long a method waits until its queue has a master (ms); see F9.
MASTER_WAIT_MS: Final = 5000


class _MethodWait:
    """A method of `channel` that waits for the master of `queue`; see `Attempt`."""

    def __init__(self, channel: Channel, queue: RemoteQueue, attempt: Attempt) -> None:
        self._channel: Channel = channel
        self._queue: RemoteQueue = queue
        self._attempt: Attempt = attempt

    def is_over(self, now_ms: int) -> bool:
        """Handle the method again once there is a master, or no hope of one; True: that is done."""
        channel = self._channel
        name = self._queue.name
        attempt = self._attempt
        is_waiting = now_ms < attempt.until_ms and not channel.is_closed
        if is_waiting and _is_down(channel, name) and _awaits_master(channel, name):
            return False
        resume_method(channel, lambda: attempt.handle(attempt), now_ms)
        return True


def _is_down(channel: Channel, name: bytes) -> bool:
    """Whether the queue `name` exists, and this node cannot reach the node that serves it."""
    taker = channel.vhost.taker(name)
    return isinstance(taker, RemoteQueue) and taker.home.session is None


def _awaits_master(channel: Channel, name: bytes) -> bool:
    mirrors = channel.connection.node.mirrors
    return mirrors is None or mirrors.awaits_master(channel.vhost.name, name)


class Attempt:
    """The handling of a method that may have to wait for a master; `handle` begins it again."""

    def __init__(self, handle: Callable[[Attempt], None]) -> None:
        self.handle: Callable[[Attempt], None] = handle
        # When to stop waiting (ms); 0: it has not begun to wait.
        self.until_ms: i64 = 0

    def may_wait(self, channel: Channel, queue: RemoteQueue, now_ms: i64) -> bool:
        """Whether there may be a master of `queue` soon, which is worth to wait for."""
        if not queue.keeps_consumers and queue.replaced_by is None:
            return False
        if self.until_ms != 0 and now_ms >= self.until_ms:
            return False
        return not _is_down(channel, queue.name) or _awaits_master(channel, queue.name)

    def wait(self, channel: Channel, queue: RemoteQueue) -> None:
        """Suspend `channel` until `queue` has a master, then handle the method again.

        Raises ChannelException 404 if that may not be, or not any more.
        """
        now_ms = channel.connection.now_ms
        if not self.may_wait(channel, queue, now_ms):
            raise down_error(channel, queue)
        if self.until_ms == 0:
            self.until_ms = now_ms + MASTER_WAIT_MS
        channel.suspend()
        channel.connection.node.remote_nodes.master_waits.append(
            _MethodWait(channel, queue, self).is_over
        )


def down_error(channel: Channel, queue: RemoteQueue) -> ChannelException:
    """The refusal of a method that needs the node of `queue`, which is down."""
    node = queue.home.name.decode("utf-8", "replace")
    kind = "durable " if queue.durable else ""
    text = channel.vhost.queue_text(queue.name)
    return ChannelException(
        NOT_FOUND, f"home node '{node}' of {kind}{text} is down or inaccessible"
    )


class ChannelCall(SessionCall):
    """A call of `channel`, for a method that the answer allows to finish."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(None)
        self.channel: Channel = channel

    def down_error(self) -> ChannelException:
        """The refusal of the method when the link goes down before the answer."""
        raise RuntimeError("abstract")

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        """Answer the client: the call was successful."""
        raise RuntimeError("abstract")

    def abandon(self, answer: CallAnswer | None, now_ms: i64) -> None:
        """Undo the call, which was refused (`answer` None), or whose channel is closed."""

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        channel.is_suspended = False
        if answer.code == 0 and not channel.is_closed:
            channel.connection.now_ms = now_ms
            self.finish(answer, now_ms)
        elif answer.code == 0:
            self.abandon(answer, now_ms)
        else:
            self.abandon(None, now_ms)
            self.refuse(self._error_of(answer), now_ms)
        self._end(now_ms)

    def on_session_over(self, now_ms: i64) -> None:
        self.channel.is_suspended = False
        self.abandon(None, now_ms)
        self.refuse(self.down_error(), now_ms)
        self._end(now_ms)

    def refuse(self, error: AmqpError, now_ms: i64) -> None:
        """Close the channel or the connection for `error`."""
        channel = self.channel
        if not channel.is_closed:
            channel.connection.now_ms = now_ms
            channel.connection.refuse(channel.number, error)

    def _error_of(self, answer: CallAnswer) -> AmqpError:
        error: AmqpError = ChannelException(answer.code, "")
        if answer.is_fatal:
            error = ConnectionException(answer.code, "")
        # The other node has put the name of the code before the text.
        error.text = answer.text
        error.class_id = self.channel.current_method >> 16
        error.method_id = self.channel.current_method & 0xFFFF
        return error

    def _end(self, now_ms: i64) -> None:
        # The answer may have filled the output: then the channel waits for room.
        if not self.channel.is_suspended:
            self.channel.resume(now_ms)
        self.channel.connection.touch()


class QueueCall(ChannelCall):
    """A call of `channel` about the queue `target`."""

    def __init__(self, channel: Channel, target: RemoteQueue, attempt: Attempt) -> None:
        super().__init__(channel)
        self.target: RemoteQueue = target
        self.attempt: Attempt = attempt

    def down_error(self) -> ChannelException:
        return down_error(self.channel, self.target)

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        if answer.code == MOVED:
            self.abandon(None, now_ms)
            self.try_again(now_ms)
        else:
            super().on_answer(answer, now_ms)

    def on_session_over(self, now_ms: i64) -> None:
        if self.attempt.may_wait(self.channel, self.target, now_ms):
            self.abandon(None, now_ms)
            self.try_again(now_ms)
        else:
            super().on_session_over(now_ms)

    def try_again(self, now_ms: i64) -> None:
        """Handle the method again when there is a master."""
        channel = self.channel
        resume_method(channel, lambda: self.attempt.wait(channel, self.target), now_ms)


class _Probe(ChannelCall):
    """queue.declare of a name for direct replies, which asks whether a channel consumes them."""

    def __init__(self, channel: Channel, name: bytes) -> None:
        super().__init__(channel)
        self._name: bytes = name

    def down_error(self) -> ChannelException:
        return ChannelException(NOT_FOUND, f"no {self.channel.vhost.queue_text(self._name)}")

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        if answer.first == 0:
            self.refuse(self.down_error(), now_ms)
        else:
            channel.connection.out.method(channel.number, QueueDeclareOk(self._name, 0, 1))


class _Counts(QueueCall):
    """queue.declare of a queue that exists."""

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        reply = QueueDeclareOk(self.target.name, answer.first, answer.second)
        channel.connection.out.method(channel.number, reply)


class _Purge(QueueCall):
    """queue.purge."""

    def __init__(
        self, channel: Channel, target: RemoteQueue, nowait: bool, attempt: Attempt
    ) -> None:
        super().__init__(channel, target, attempt)
        self._nowait: bool = nowait

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        if not self._nowait:
            channel.connection.out.method(channel.number, QueuePurgeOk(answer.first))


class _Delete(QueueCall):
    """queue.delete."""

    def __init__(
        self, channel: Channel, target: RemoteQueue, nowait: bool, attempt: Attempt
    ) -> None:
        super().__init__(channel, target, attempt)
        self._nowait: bool = nowait

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        channel.cancels.is_deferred = False
        if not self._nowait:
            channel.connection.out.method(channel.number, QueueDeleteOk(answer.first))
        channel.send_cancels()

    def abandon(self, answer: CallAnswer | None, now_ms: i64) -> None:
        self.channel.cancels.is_deferred = False


def declare_remote(channel: Channel, queue: RemoteQueue, nowait: bool, attempt: Attempt) -> None:
    """Answer queue.declare, passive or equivalent, of a queue on another node.

    Raises ChannelException 404 if that node is down.
    """
    channel.last_queue = queue.name
    if nowait:
        return
    if not queue.call(_Counts(channel, queue, attempt), CALL_COUNTS):
        attempt.wait(channel, queue)
        return
    channel.suspend()


def purge_remote(channel: Channel, queue: RemoteQueue, nowait: bool, attempt: Attempt) -> None:
    """Purge a queue on another node; raises ChannelException 404 if that node is down."""
    # A call that may have to be made again needs somebody who waits for the answer.
    is_alone = nowait and not queue.keeps_consumers
    call = _NoWait(None) if is_alone else _Purge(channel, queue, nowait, attempt)
    if not queue.call(call, CALL_PURGE):
        attempt.wait(channel, queue)
    elif not is_alone:
        channel.suspend()


def delete_remote(
    channel: Channel,
    queue: RemoteQueue,
    if_empty: bool,
    if_unused: bool,
    nowait: bool,
    attempt: Attempt,
) -> bool:
    """Let the node of `queue` delete it; False if that node is down."""
    is_alone = nowait and not queue.keeps_consumers
    call = _NoWait(None) if is_alone else _Delete(channel, queue, nowait, attempt)
    if not queue.ask_deletion(call, if_empty, if_unused):
        if not attempt.may_wait(channel, queue, channel.connection.now_ms):
            return False
        attempt.wait(channel, queue)
        return True
    if not is_alone:
        # The channel's own consumers of the queue are told behind the reply.
        channel.cancels.is_deferred = True
        channel.suspend()
    return True


def probe_remote(channel: Channel, home: RemoteNode, name: bytes) -> bool:
    """Ask `home` whether a channel consumes the replies to `name`; False if it is down.

    The answer is that of queue.declare.
    """
    session = home.session
    if session is None:
        return False
    session.call(_Probe(channel, name), CALL_PROBE)
    write_name(session.out, channel.vhost.name)
    write_name(session.out, name)
    channel.suspend()
    return True


class _NoWait(SessionCall):
    """A call of a method whose client wants no answer."""

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        """Nobody waits."""

    def on_session_over(self, now_ms: i64) -> None:
        """Nobody waits."""
