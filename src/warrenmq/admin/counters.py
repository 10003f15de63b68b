"""Builds the admin reply with the counters of a node."""

from warrenmq.admin.protocol.counters import ChurnCounters, MessageCounters, NodeCounters
from warrenmq.broker import counters
from warrenmq.broker.broker import Broker


def node_counters(broker: Broker) -> NodeCounters:
    """The counters of the node; looks at each channel, and at each connection for its bytes."""
    churn = broker.counters.churn
    received, sent = churn.closed_received_bytes, churn.closed_sent_bytes
    for connection in broker.connections:
        received += connection.traffic.received_bytes
        sent += connection.out.sent_bytes
    read, written = broker.disk_messages()
    return NodeCounters(
        messages=_messages(broker.message_counters()),
        churn=_churn(churn),
        received_bytes=received,
        sent_bytes=sent,
        read_messages=read,
        written_messages=written,
    )


def _messages(counted: counters.MessageCounters) -> MessageCounters:
    return MessageCounters(
        received=counted.received,
        received_confirm=counted.received_confirm,
        confirmed=counted.confirmed,
        routed=counted.routed,
        unroutable_dropped=counted.dropped,
        unroutable_returned=counted.returned,
        delivered_consume_auto_ack=counted.consumed_auto_ack,
        delivered_consume_manual_ack=counted.consumed_manual_ack,
        delivered_get_auto_ack=counted.got_auto_ack,
        delivered_get_manual_ack=counted.got_manual_ack,
        get_empty=counted.got_empty,
        redelivered=counted.redelivered,
        acknowledged=counted.acknowledged,
    )


def _churn(counted: counters.ChurnCounters) -> ChurnCounters:
    return ChurnCounters(
        connections_opened=counted.connections_opened,
        connections_closed=counted.connections_closed,
        channels_opened=counted.channels_opened,
        channels_closed=counted.channels_closed,
        queues_declared=counted.queues_declared,
        queues_created=counted.queues_created,
        queues_deleted=counted.queues_deleted,
    )
