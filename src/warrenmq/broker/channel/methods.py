"""The handlers of basic.*, channel.flow, confirm.* and tx.* (protocol 5.5, 6, 9).

Publishing, and the hot path of basic.ack, are in `channel.py`.
"""

from __future__ import annotations

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.commit import commit
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.channel.consume import cancel, consume
from warrenmq.broker.channel.get import get
from warrenmq.broker.channel.queue_deletion import queue_delete
from warrenmq.broker.channel.topology import (
    exchange_bind,
    exchange_declare,
    exchange_delete,
    exchange_unbind,
    queue_bind,
    queue_declare,
    queue_purge,
    queue_unbind,
)
from warrenmq.broker.transaction import Transaction
from warrenmq.wire.errors import (
    COMMAND_INVALID,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
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
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)


def handle_channel_method(channel: Channel, method: Method) -> None:
    """Handle a decoded method; ConnectionException 503 for a method that a client may not send."""
    if isinstance(method, BasicAck):
        channel.ack(method.delivery_tag, method.multiple)
    elif isinstance(method, BasicNack):
        channel.reject(method.delivery_tag, method.multiple, method.requeue)
    elif isinstance(method, BasicReject):
        channel.reject(method.delivery_tag, False, method.requeue)
    elif isinstance(method, BasicGet):
        get(channel, method)
    elif isinstance(method, BasicConsume):
        consume(channel, method)
    elif isinstance(method, BasicCancel):
        cancel(channel, method)
    elif isinstance(method, BasicCancelOk):
        # The client answers the broker's consumer cancel notification.
        return
    elif isinstance(method, BasicQos):
        _qos(channel, method)
    elif isinstance(method, BasicRecover):
        _recover(channel, method.requeue, True)
    elif isinstance(method, BasicRecoverAsync):
        _recover(channel, method.requeue, False)
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
        commit(channel, _transaction(channel))
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


def _recover(channel: Channel, requeue: bool, answers: bool) -> None:
    if not requeue:
        raise ConnectionException(
            NOT_IMPLEMENTED, "requeue=false", 60, channel.current_method & 0xFFFF
        )

    def finish() -> None:
        if answers and not channel.is_closed:
            channel.connection.out.method(channel.number, BasicRecoverOk())

    channel.requeue_all(finish)


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


def _tx_rollback(channel: Channel) -> None:
    transaction = _transaction(channel)
    channel.connection.throttle.end_transaction(channel.connection, transaction.size_bytes)
    channel.unacked.restore(transaction.take_entries())
    channel.connection.out.method(channel.number, TxRollbackOk())
