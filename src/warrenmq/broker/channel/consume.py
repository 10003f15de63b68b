"""basic.consume and basic.cancel (protocol 9.1, 9.2), of queues here and on other nodes."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import FAILOVER_ARGUMENT, Channel, ChannelConsumer
from warrenmq.broker.channel.definition_replies import await_deletion
from warrenmq.broker.channel.direct_reply import REPLY_TO, DirectReply, reply_name
from warrenmq.broker.channel.remote_calls import Attempt, ChannelCall, QueueCall
from warrenmq.broker.channel.topology import named_queue, usable_queue
from warrenmq.broker.vhost.queue_checks import check_consume
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.consumer import RemoteConsumer
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.remote.session import CallAnswer
from warrenmq.wire.errors import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.field_types import type_name
from warrenmq.wire.methods import BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk

_INTEGER_TAGS = b"bBsuIilL"
# An argument that only streams take, and one that only classic queues take.
_STREAM_ARGUMENT = "x-stream-offset"


def consume(channel: Channel, method: BasicConsume) -> None:
    """Handle basic.consume."""
    _consume(channel, method, Attempt(lambda attempt: _consume(channel, method, attempt)))


def _consume(channel: Channel, method: BasicConsume, attempt: Attempt) -> None:
    connection = channel.connection
    queue_name = named_queue(channel, method.queue)
    tag = method.consumer_tag
    if not tag:
        tag = b"amq.ctag-" + connection.node.random_name()
    elif tag in channel.consumers or (channel.reply is not None and channel.reply.tag == tag):
        shown = tag.decode("utf-8", "replace")
        raise ConnectionException(NOT_ALLOWED, f"attempt to reuse consumer tag '{shown}'", 60, 20)
    if method.queue == REPLY_TO:
        _consume_replies(channel, method, tag)
        return
    queue = usable_queue(channel, queue_name)
    priority = _priority(channel, queue, method.arguments)
    if queue.settings.traits.is_quorum and channel.room.prefetch != 0:
        raise ConnectionException(
            NOT_IMPLEMENTED,
            f"{channel.vhost.queue_text(queue.name)} does not support global qos",
            60,
            20,
        )
    consumer = ChannelConsumer(
        channel,
        queue,
        tag,
        method.no_ack,
        method.exclusive,
        priority,
        channel.room.consumer_prefetch,
        method.arguments,
    )
    if isinstance(queue, RemoteQueue):
        call = _RemoteConsume(channel, queue, consumer, method.nowait, attempt)
        call.receiver = queue.consume(consumer, call)
        if call.receiver is None:
            attempt.wait(channel, queue)
        else:
            channel.suspend()
    elif isinstance(queue, Queue):
        if await_deletion(channel, queue, lambda: attempt.handle(attempt)):
            return
        check_consume(channel.vhost, queue, method.exclusive)
        queue.add_consumer(consumer)
        _start(channel, consumer, method.nowait)
        queue.deliver_ready(connection.now_ms)


def _start(channel: Channel, consumer: ChannelConsumer, nowait: bool) -> None:
    channel.consumers[consumer.tag] = consumer
    channel.announce("consumer.created", consumer)
    if not nowait:
        channel.connection.out.method(channel.number, BasicConsumeOk(consumer.tag))


class _RemoteConsume(QueueCall):
    """basic.consume of a queue on another node."""

    def __init__(
        self,
        channel: Channel,
        target: RemoteQueue,
        consumer: ChannelConsumer,
        nowait: bool,
        attempt: Attempt,
    ) -> None:
        super().__init__(channel, target, attempt)
        self.receiver: RemoteConsumer | None = None
        self._consumer: ChannelConsumer = consumer
        self._nowait: bool = nowait

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        receiver = self.receiver
        if receiver is not None and receiver.is_over:
            # The queue has got another master meanwhile, or is deleted.
            self.try_again(now_ms)
        else:
            super().on_answer(answer, now_ms)

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        if self.receiver is not None:
            self.receiver.is_new = False
        _start(self.channel, self._consumer, self._nowait)

    def abandon(self, answer: CallAnswer | None, now_ms: i64) -> None:
        if answer is not None:
            self.target.remove_consumer(self._consumer, now_ms)
        elif self.receiver is not None:
            self.target.drop(self.receiver, now_ms)


def _priority(channel: Channel, queue: MessageTaker, raw: bytes) -> i64:
    if not raw:
        return 0
    table = decode_table(raw)
    text = channel.vhost.queue_text(queue.name)
    notice = table.get(FAILOVER_ARGUMENT)
    if notice is not None and not isinstance(notice.value, bool):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid arg '{FAILOVER_ARGUMENT}' for {text}: {{unacceptable_type,{type_name(notice.tag)}}}",
        )
    is_quorum = queue.settings.traits.is_quorum
    for key in table:
        if key == _STREAM_ARGUMENT or (is_quorum and key == FAILOVER_ARGUMENT):
            type = "quorum" if is_quorum else "classic"
            raise ChannelException(
                PRECONDITION_FAILED,
                f"invalid arg '{key}' for {text} of queue type rabbit_{type}_queue",
            )
    field = table.get("x-priority")
    if field is None:
        return 0
    value = field.value
    if field.tag not in _INTEGER_TAGS or not isinstance(value, int):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid arg 'x-priority' for {text}: \"expected integer, got {type_name(field.tag)}\"",
        )
    # Some clients send `L` as an unsigned 64-bit number. Priorities are limited to +-2**62.
    return min(max(value, -(1 << 62)), 1 << 62)


def _consume_replies(channel: Channel, method: BasicConsume, tag: bytes) -> None:
    if not method.no_ack:
        raise ChannelException(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply is not None:
        raise ChannelException(PRECONDITION_FAILED, "reply consumer already set")
    node = channel.connection.node
    name = reply_name(node.settings.node_name.encode(), node.random_name())
    channel.reply = DirectReply(tag, name)
    channel.vhost.reply_channels[name] = channel
    if not method.nowait:
        channel.connection.out.method(channel.number, BasicConsumeOk(tag))


def cancel(channel: Channel, method: BasicCancel) -> None:
    """Handle basic.cancel; a tag that nobody has counts as cancelled."""
    connection = channel.connection
    tag = method.consumer_tag
    consumer = channel.consumers.get(tag)
    if consumer is not None:
        queue = consumer.queue
        if isinstance(queue, RemoteQueue):
            call = _RemoteCancel(channel, consumer, method.nowait)
            call.receiver = queue.leave_consumer(consumer, call)
            if call.receiver is not None:
                channel.suspend()
                return
        _forget(channel, consumer)
        if queue.remove_consumer(consumer, connection.now_ms):
            channel.vhost.delete_queue(channel.vhost.queues[queue.name], connection.now_ms)
    elif channel.reply is not None and channel.reply.tag == tag:
        channel.vhost.reply_channels.pop(channel.reply.name, None)
        channel.reply = None
    if not method.nowait:
        connection.out.method(channel.number, BasicCancelOk(tag))


def _forget(channel: Channel, consumer: ChannelConsumer) -> None:
    channel.consumers.pop(consumer.tag, None)
    channel.announce("consumer.deleted", consumer)


class _RemoteCancel(ChannelCall):
    """basic.cancel at a queue on another node: what is on its way still goes to the client."""

    def __init__(self, channel: Channel, consumer: ChannelConsumer, nowait: bool) -> None:
        super().__init__(channel)
        self.receiver: RemoteConsumer | None = None
        self._consumer: ChannelConsumer = consumer
        self._nowait: bool = nowait

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        self._finish(now_ms)

    def on_session_over(self, now_ms: i64) -> None:
        if not self.channel.is_closed:
            self._finish(now_ms)
        self.channel.resume(now_ms)
        self.channel.connection.touch()

    def _finish(self, now_ms: i64) -> None:
        channel = self.channel
        if self.receiver is not None:
            self.receiver.finish(now_ms)
        _forget(channel, self._consumer)
        if not self._nowait:
            channel.connection.out.method(channel.number, BasicCancelOk(self._consumer.tag))
