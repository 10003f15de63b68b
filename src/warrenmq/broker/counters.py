"""What a node has done for its clients since its start; all counters only grow.

They are RabbitMQ's global counters. Each costs one addition where the thing happens.
"""

from mypy_extensions import i64


class MessageCounters:
    """Messages of clients of AMQP."""

    def __init__(self) -> None:
        # Publishes, and those of channels in confirm mode.
        self.received: i64 = 0
        self.received_confirm: i64 = 0
        # Publishes that were confirmed; nacked ones do not count.
        self.confirmed: i64 = 0
        # Messages routed to queues: a message counts once for each queue that it went to.
        self.routed: i64 = 0
        # Publishes to no queue: dropped without the mandatory flag, else returned.
        self.dropped: i64 = 0
        self.returned: i64 = 0
        # Deliveries to consumers, and answers to basic.get.
        self.consumed_auto_ack: i64 = 0
        self.consumed_manual_ack: i64 = 0
        self.got_auto_ack: i64 = 0
        self.got_manual_ack: i64 = 0
        self.got_empty: i64 = 0
        # Deliveries and answers with the redelivered flag.
        self.redelivered: i64 = 0
        # Messages acked by their clients; rejected ones do not count.
        self.acknowledged: i64 = 0


class ChurnCounters:
    """Connections, channels and queues that have come and gone."""

    def __init__(self) -> None:
        # Connections that have finished their handshake.
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        # Successful queue.declare without the passive flag, of a new queue or an existing one.
        self.queues_declared: i64 = 0
        # Queues that this node has got, those restored at its start included.
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0
        # Bytes of the sockets of closed connections.
        self.closed_received_bytes: i64 = 0
        self.closed_sent_bytes: i64 = 0


class NodeCounters:
    """All counters of one node."""

    def __init__(self) -> None:
        self.messages: MessageCounters = MessageCounters()
        self.churn: ChurnCounters = ChurnCounters()
