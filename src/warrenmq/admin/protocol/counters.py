"""Request and reply of the admin protocol for what a node has done for its clients.

All counters only grow, and begin at 0 when the node starts.
"""

from msgspec import Struct


class DescribeCounters(Struct, tag="describe_counters", forbid_unknown_fields=True, frozen=True):
    """The counters of this node. Reply: NodeCounters."""


class MessageCounters(Struct, frozen=True):
    """Messages of clients of AMQP, by RabbitMQ's names of its global counters."""

    received: int
    received_confirm: int
    confirmed: int
    # Messages routed to queues: a message counts once for each queue that it went to.
    routed: int
    unroutable_dropped: int
    unroutable_returned: int
    delivered_consume_auto_ack: int
    delivered_consume_manual_ack: int
    delivered_get_auto_ack: int
    delivered_get_manual_ack: int
    get_empty: int
    redelivered: int
    acknowledged: int


class ChurnCounters(Struct, frozen=True):
    """Connections, channels and queues that have come and gone.

    `queues_declared` counts successful declarations of new and existing queues; `queues_created`
    counts queues that the node restored at its start, too.
    """

    connections_opened: int
    connections_closed: int
    channels_opened: int
    channels_closed: int
    queues_declared: int
    queues_created: int
    queues_deleted: int


class NodeCounters(Struct, tag="node_counters", frozen=True):
    """What the node has done.

    The bytes are those of all connections, closed ones included; messages that were read from disk
    and written to it are those of all queues, deleted ones included.
    """

    messages: MessageCounters
    churn: ChurnCounters
    received_bytes: int
    sent_bytes: int
    read_messages: int
    written_messages: int
