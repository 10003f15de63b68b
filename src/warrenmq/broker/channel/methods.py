"""The handlers of basic.*, channel.flow, confirm.* and tx.* (protocol 5.5, 6, 9).

Publishing, and the hot path of basic.ack, are in `channel.py`.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel, ChannelConsumer
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.channel.direct_reply import REPLY_TO, DirectReply
from warrenmq.broker.channel.topology import (
    exchange_bind,
    exchange_declare,
    exchange_delete,
    exchange_unbind,
    named_queue,
    queue_bind,
    queue_declare,
    queue_delete,
    queue_purge,
    queue_unbind,
    usable_queue,
)
from warrenmq.broker.dead_letters.death_headers import with_delivery_count
from warrenmq.broker.transaction import Transaction
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.variable_queue import LOADING
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    RESOURCE_LOCKED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.field_types import type_name
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

_INTEGER_TAGS = b"bBsuIilL"
# A consume argument that only streams understand.
_STREAM_ARGUMENT = "x-stream-offset"


def handle_channel_method(channel: Channel, method: Method) -> None:
    """Handle a decoded method; ConnectionException 503 for a method that a client may not send."""
    if isinstance(method, BasicAck):
        channel.ack(method.delivery_tag, method.multiple)
    elif isinstance(method, BasicNack):
        channel.reject(method.delivery_tag, method.multiple, method.requeue)
    elif isinstance(method, BasicReject):
        channel.reject(method.delivery_tag, False, method.requeue)
    elif isinstance(method, BasicGet):
        _get(channel, method)
    elif isinstance(method, BasicConsume):
        _consume(channel, method)
    elif isinstance(method, BasicCancel):
        _cancel(channel, method)
    elif isinstance(method, BasicCancelOk):
        # The client answers the broker's consumer cancel notification.
        return
    elif isinstance(method, BasicQos):
        _qos(channel, method)
    elif isinstance(method, BasicRecover):
        _recover(channel, method.requeue)
        channel.connection.out.method(channel.number, BasicRecoverOk())
    elif isinstance(method, BasicRecoverAsync):
        _recover(channel, method.requeue)
    elif isinstance(method, QueueDeclare):
        queue_declare(channel, method)
    elif isinstance(method, QueueBind):
        queue_bind(channel, method)
    elif isinstance(method, QueueUnbind):
        queue_unbind(channel, method)
    elif isinstance(method, QueuePurge):
        queue_purge(channel, method)
    elif isinstance(method, QueueDelete):
        queue_delete(channel, method)
    elif isinstance(method, ExchangeDeclare):
        exchange_declare(channel, method)
    elif isinstance(method, ExchangeDelete):
        exchange_delete(channel, method)
    elif isinstance(method, ExchangeBind):
        exchange_bind(channel, method)
    elif isinstance(method, ExchangeUnbind):
        exchange_unbind(channel, method)
    elif isinstance(method, ConfirmSelect):
        _confirm_select(channel, method)
    elif isinstance(method, TxSelect):
        _tx_select(channel)
    elif isinstance(method, TxCommit):
        _tx_commit(channel)
    elif isinstance(method, TxRollback):
        _tx_rollback(channel)
    elif isinstance(method, ChannelFlow):
        _flow(channel, method)
    elif isinstance(method, AccessRequest):
        # Access tickets are obsolete; every client gets ticket 1.
        channel.connection.out.method(channel.number, AccessRequestOk(1))
    else:
        raise ConnectionException(
            COMMAND_INVALID, "unimplemented method", method.class_id, method.method_id
        )


def _get(channel: Channel, method: BasicGet) -> None:
    queue = usable_queue(channel, method.queue)
    connection = channel.connection
    queue.last_used_ms = connection.now_ms
    traits = queue.settings.traits
    if traits.is_quorum and traits.is_single_active:
        raise ChannelException(
            RESOURCE_LOCKED,
            f"cannot obtain access to locked {channel.vhost.queue_text(queue.name)}. basic.get operations are not "
            "supported by quorum queues with single active consumer",
        )
    entry = queue.get(method.no_ack, connection.now_ms)
    if entry is None and queue.head_state(connection.now_ms) == LOADING:
        _get_later(channel, queue, method)
    else:
        _answer_get(channel, queue, entry, method.no_ack)


def _get_later(channel: Channel, queue: Queue, method: BasicGet) -> None:
    """Suspend the channel until the queue's head is loaded from disk, then answer basic.get."""
    channel.suspend()

    def on_head(now_ms: int) -> None:
        if channel.is_closed:
            return
        entry = queue.get(method.no_ack, now_ms)
        if entry is None and queue.head_state(now_ms) == LOADING:
            _get_later(channel, queue, method)
            return
        _answer_get(channel, queue, entry, method.no_ack)
        channel.connection.touch()
        channel.resume(now_ms)

    queue.when_head(on_head)


def _answer_get(channel: Channel, queue: Queue, entry: Entry | None, no_ack: bool) -> None:
    connection = channel.connection
    if entry is None:
        connection.out.method(channel.number, BasicGetEmpty())
        return
    tag = channel.next_delivery_tag
    channel.next_delivery_tag = tag + 1
    if not no_ack:
        entry.consumer = None
        entry.delivery_tag = tag
        channel.unacked.append(entry)
    message = entry.message
    properties = message.properties
    if queue.settings.traits.is_quorum:
        properties = with_delivery_count(properties, queue.return_count(entry))
    connection.out.method(
        channel.number,
        BasicGetOk(
            tag, entry.redelivered, message.exchange(), message.routing_key(), queue.ready_count
        ),
    )
    connection.out.content(channel.number, properties, message.body)
    if channel.tracer is not None:
        channel.tracer.delivered(message, queue.name, entry.redelivered, connection.now_ms)
    connection.wait_for_room(channel)


def _consume(channel: Channel, method: BasicConsume) -> None:
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
    traits = queue.settings.traits
    if traits.is_quorum and channel.room.prefetch != 0:
        raise ConnectionException(
            NOT_IMPLEMENTED,
            f"{channel.vhost.queue_text(queue.name)} does not support global qos",
            60,
            20,
        )
    priority = _priority(channel, queue, method.arguments)
    if not traits.is_quorum and (
        queue.exclusive_consumer
        or (method.exclusive and (traits.is_single_active or len(queue.consumers) > 0))
    ):
        raise ChannelException(
            ACCESS_REFUSED, f"{channel.vhost.queue_text(queue.name)} in exclusive use"
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
    channel.consumers[tag] = consumer
    queue.add_consumer(consumer)
    channel.announce("consumer.created", consumer)
    if not method.nowait:
        connection.out.method(channel.number, BasicConsumeOk(tag))
    queue.deliver_ready(connection.now_ms)


def _priority(channel: Channel, queue: Queue, raw: bytes) -> i64:
    if not raw:
        return 0
    table = decode_table(raw)
    text = channel.vhost.queue_text(queue.name)
    if _STREAM_ARGUMENT in table:
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid arg '{_STREAM_ARGUMENT}' for {text} of queue type rabbit_classic_queue",
        )
    notice = table.get("x-cancel-on-ha-failover")
    if notice is not None and not isinstance(notice.value, bool):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid arg 'x-cancel-on-ha-failover' for {text}: {{unacceptable_type,{type_name(notice.tag)}}}",
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
    name = REPLY_TO + b"." + node.random_name() + b"." + node.random_name()
    channel.reply = DirectReply(tag, name)
    channel.vhost.reply_channels[name] = channel
    if not method.nowait:
        channel.connection.out.method(channel.number, BasicConsumeOk(tag))


def _cancel(channel: Channel, method: BasicCancel) -> None:
    connection = channel.connection
    tag = method.consumer_tag
    consumer = channel.consumers.pop(tag, None)
    if consumer is not None:
        channel.announce("consumer.deleted", consumer)
        queue = consumer.queue
        if queue.remove_consumer(consumer, connection.now_ms):
            channel.vhost.delete_queue(channel.vhost.queues[queue.name], connection.now_ms)
    elif channel.reply is not None and channel.reply.tag == tag:
        channel.vhost.reply_channels.pop(channel.reply.name, None)
        channel.reply = None
    if not method.nowait:
        connection.out.method(channel.number, BasicCancelOk(tag))


def _qos(channel: Channel, method: BasicQos) -> None:
    if method.prefetch_size != 0:
        raise ConnectionException(
            NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", 60, 10
        )
    if method.global_:
        channel.room.prefetch = method.prefetch_count
    else:
        # The count applies to later consumers, and the channel-wide limit ends (P5).
        channel.room.consumer_prefetch = method.prefetch_count
        channel.room.prefetch = 0
    channel.connection.out.method(channel.number, BasicQosOk())
    channel.room.serve(channel.connection.now_ms)


def _recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise ConnectionException(
            NOT_IMPLEMENTED, "requeue=false", 60, channel.current_method & 0xFFFF
        )
    channel.requeue(channel.unacked.take_all())


def _flow(channel: Channel, method: ChannelFlow) -> None:
    if not method.active:
        raise ConnectionException(NOT_IMPLEMENTED, "active=false", 20, 20)
    channel.connection.out.method(channel.number, ChannelFlowOk(True))


def _confirm_select(channel: Channel, method: ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise ChannelException(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = PublishConfirms(channel.connection, channel.number)
    if not method.nowait:
        channel.connection.out.method(channel.number, ConfirmSelectOk())


def _tx_select(channel: Channel) -> None:
    if channel.confirms is not None:
        raise ChannelException(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction()
    channel.connection.out.method(channel.number, TxSelectOk())


def _transaction(channel: Channel) -> Transaction:
    transaction = channel.transaction
    if transaction is None:
        raise ChannelException(PRECONDITION_FAILED, "channel is not transactional")
    return transaction


def _tx_commit(channel: Channel) -> None:
    transaction = _transaction(channel)
    connection = channel.connection
    now_ms = connection.now_ms
    # Publishes come first, then acks and rejects in order (P25). While the commit applies them, the
    # channel is not transactional.
    channel.transaction = None
    connection.throttle.end_transaction(connection, transaction.size_bytes)
    is_whole = True
    for publish in transaction.publishes:
        queues: list[Queue] = []
        for name in publish.queue_names:
            queue = channel.vhost.queues.get(name)
            if queue is not None:
                queues.append(queue)
        message = publish.message
        if not arrive(queues, message, publish.expiration_ms, publish.priority, now_ms, False):
            is_whole = False
        channel.vhost.delayed.keep_all(message, publish.waits, publish.headers, False, now_ms)
        if publish.mandatory and len(queues) == 0:
            channel.return_message(message)
    for settle in transaction.settles:
        channel.settle_entries(settle.entries, settle.requeue, settle.reason)
    channel.transaction = Transaction()
    if not is_whole:
        # A queue has refused a message; everything else is done.
        raise ChannelException(PRECONDITION_FAILED, "partial tx completion")
    channel.suspend()

    def done(ok: bool, now_ms: int) -> None:
        if not channel.is_closed:
            if ok:
                connection.out.method(channel.number, TxCommitOk())
            else:
                connection.now_ms = now_ms
                channel.is_suspended = False
                connection.fail(
                    ConnectionException(
                        RESOURCE_ERROR, "the transaction could not be written to disk"
                    )
                )
        channel.resume(now_ms)
        connection.touch()

    channel.vhost.commit(done)


def _tx_rollback(channel: Channel) -> None:
    transaction = _transaction(channel)
    channel.connection.throttle.end_transaction(channel.connection, transaction.size_bytes)
    channel.unacked.restore(transaction.take_entries())
    channel.connection.out.method(channel.number, TxRollbackOk())
