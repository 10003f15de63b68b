"""What a channel asks the nodes of queues that live elsewhere, and waits for.

The channel is suspended until the answer comes, so that its later methods keep their place.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.queues.link_records import CALL_COUNTS, CALL_PROBE, CALL_PURGE, write_name
from warrenmq.queues.remote_node import RemoteNode
from warrenmq.queues.remote_queue import RemoteQueue
from warrenmq.queues.remote_session import CallAnswer, SessionCall
from warrenmq.wire.errors import NOT_FOUND, AmqpError, ChannelException, ConnectionException
from warrenmq.wire.methods import QueueDeclareOk, QueueDeleteOk, QueuePurgeOk


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

    def __init__(self, channel: Channel, target: RemoteQueue) -> None:
        super().__init__(channel)
        self.target: RemoteQueue = target

    def down_error(self) -> ChannelException:
        return down_error(self.channel, self.target)


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

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        channel.connection.out.method(channel.number, QueuePurgeOk(answer.first))


class _Delete(QueueCall):
    """queue.delete."""

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        channel = self.channel
        channel.cancels.is_deferred = False
        channel.connection.out.method(channel.number, QueueDeleteOk(answer.first))
        channel.send_cancels()

    def abandon(self, answer: CallAnswer | None, now_ms: i64) -> None:
        self.channel.cancels.is_deferred = False


def declare_remote(channel: Channel, queue: RemoteQueue, nowait: bool) -> None:
    """Answer queue.declare, passive or equivalent, of a queue on another node.

    Raises ChannelException 404 if that node is down.
    """
    channel.last_queue = queue.name
    if nowait:
        return
    if not queue.call(_Counts(channel, queue), CALL_COUNTS):
        raise down_error(channel, queue)
    channel.suspend()


def purge_remote(channel: Channel, queue: RemoteQueue, nowait: bool) -> None:
    """Purge a queue on another node; raises ChannelException 404 if that node is down."""
    if not queue.call(_NoWait(None) if nowait else _Purge(channel, queue), CALL_PURGE):
        raise down_error(channel, queue)
    if not nowait:
        channel.suspend()


def delete_remote(
    channel: Channel, queue: RemoteQueue, if_empty: bool, if_unused: bool, nowait: bool
) -> bool:
    """Let the node of `queue` delete it; False if that node is down."""
    call = _NoWait(None) if nowait else _Delete(channel, queue)
    if not queue.ask_deletion(call, if_empty, if_unused):
        return False
    if not nowait:
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
