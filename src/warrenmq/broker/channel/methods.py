"""The handlers of basic.*, channel.flow, confirm.* and tx.* (protocol 5.5, 6, 9).

Publishing, and the hot path of basic.ack, are in `channel.py`.
"""

from __future__ import annotations

from warrenmq.broker.channel import topology
from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.commit import commit
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.channel.consume import cancel, consume
from warrenmq.broker.channel.get import get
from warrenmq.broker.channel.queue_deletion import queue_delete
from warrenmq.broker.transaction import Transaction
from warrenmq.wire import methods
from warrenmq.wire.errors import (
    COMMAND_INVALID,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.method import Method


def handle_channel_method(channel: Channel, method: Method) -> None:
    """Handle a decoded method; ConnectionException 503 for a method that a client may not send."""
    if isinstance(method, methods.BasicAck):
        channel.ack(method.delivery_tag, method.multiple)
    elif isinstance(method, methods.BasicNack):
        channel.reject(method.delivery_tag, method.multiple, method.requeue)
    elif isinstance(method, methods.BasicReject):
        channel.reject(method.delivery_tag, False, method.requeue)
    elif isinstance(method, methods.BasicGet):
        get(channel, method)
    elif isinstance(method, methods.BasicConsume):
        consume(channel, method)
    elif isinstance(method, methods.BasicCancel):
        cancel(channel, method)
    elif isinstance(method, methods.BasicCancelOk):
        # The client answers the broker's consumer cancel notification.
        return
    elif isinstance(method, methods.BasicQos):
        _qos(channel, method)
    elif isinstance(method, methods.BasicRecover):
        _recover(channel, method.requeue, True)
    elif isinstance(method, methods.BasicRecoverAsync):
        _recover(channel, method.requeue, False)
    elif isinstance(method, methods.QueueDeclare):
        topology.queue_declare(channel, method)
    elif isinstance(method, methods.QueueBind):
        topology.queue_bind(channel, method)
    elif isinstance(method, methods.QueueUnbind):
        topology.queue_unbind(channel, method)
    elif isinstance(method, methods.QueuePurge):
        topology.queue_purge(channel, method)
    elif isinstance(method, methods.QueueDelete):
        queue_delete(channel, method)
    elif isinstance(method, methods.ExchangeDeclare):
        topology.exchange_declare(channel, method)
    elif isinstance(method, methods.ExchangeDelete):
        topology.exchange_delete(channel, method)
    elif isinstance(method, methods.ExchangeBind):
        topology.exchange_bind(channel, method)
    elif isinstance(method, methods.ExchangeUnbind):
        topology.exchange_unbind(channel, method)
    elif isinstance(method, methods.ConfirmSelect):
        _confirm_select(channel, method)
    elif isinstance(method, methods.TxSelect):
        _tx_select(channel)
    elif isinstance(method, methods.TxCommit):
        commit(channel, _transaction(channel))
    elif isinstance(method, methods.TxRollback):
        _tx_rollback(channel)
    elif isinstance(method, methods.ChannelFlow):
        _flow(channel, method)
    elif isinstance(method, methods.AccessRequest):
        # Access tickets are obsolete; every client gets ticket 1.
        channel.connection.out.method(channel.number, methods.AccessRequestOk(1))
    else:
        raise ConnectionException(
            COMMAND_INVALID, "unimplemented method", method.class_id, method.method_id
        )


def _qos(channel: Channel, method: methods.BasicQos) -> None:
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
    channel.connection.out.method(channel.number, methods.BasicQosOk())
    channel.room.serve(channel.connection.now_ms)


def _recover(channel: Channel, requeue: bool, answers: bool) -> None:
    if not requeue:
        raise ConnectionException(
            NOT_IMPLEMENTED, "requeue=false", 60, channel.current_method & 0xFFFF
        )

    def finish() -> None:
        if answers and not channel.is_closed:
            channel.connection.out.method(channel.number, methods.BasicRecoverOk())

    channel.requeue_all(finish)


def _flow(channel: Channel, method: methods.ChannelFlow) -> None:
    if not method.active:
        raise ConnectionException(NOT_IMPLEMENTED, "active=false", 20, 20)
    channel.connection.out.method(channel.number, methods.ChannelFlowOk(True))


def _confirm_select(channel: Channel, method: methods.ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise ChannelException(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = PublishConfirms(
            channel.connection,
            channel.number,
            channel.counters,
            channel.connection.node.latencies,
        )
    if not method.nowait:
        channel.connection.out.method(channel.number, methods.ConfirmSelectOk())


def _tx_select(channel: Channel) -> None:
    if channel.confirms is not None:
        raise ChannelException(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction()
    channel.connection.out.method(channel.number, methods.TxSelectOk())


def _transaction(channel: Channel) -> Transaction:
    transaction = channel.transaction
    if transaction is None:
        raise ChannelException(PRECONDITION_FAILED, "channel is not transactional")
    return transaction


def _tx_rollback(channel: Channel) -> None:
    transaction = _transaction(channel)
    channel.connection.throttle.end_transaction(channel.connection, transaction.size_bytes)
    channel.counters.rolled_back += len(transaction.publishes)
    channel.unacked.restore(transaction.take_entries())
    channel.connection.out.method(channel.number, methods.TxRollbackOk())
