"""What a node has done for its clients since its start; all counters only grow.

They are RabbitMQ's global counters. Each costs one addition where the thing happens. Messages are
counted by channel; the node's are those of its open and its closed channels.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.upkeep.write_figures import WriteFigures


class MessageCounters:
    """Messages of clients of AMQP."""

    def __init__(self) -> None:
        # Publishes, and those of channels in confirm mode.
        self.received: i64 = 0
        self.received_confirm: i64 = 0
        # Publishes in transactions that were not committed.
        self.rolled_back: i64 = 0
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

    def add(self, other: MessageCounters) -> None:
        """Add the counters of `other`."""
        self.received += other.received
        self.received_confirm += other.received_confirm
        self.rolled_back += other.rolled_back
        self.confirmed += other.confirmed
        self.routed += other.routed
        self.dropped += other.dropped
        self.returned += other.returned
        self.consumed_auto_ack += other.consumed_auto_ack
        self.consumed_manual_ack += other.consumed_manual_ack
        self.got_auto_ack += other.got_auto_ack
        self.got_manual_ack += other.got_manual_ack
        self.got_empty += other.got_empty
        self.redelivered += other.redelivered
        self.acknowledged += other.acknowledged


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
        # Messages that deleted vhosts had read from disk and written to it.
        self.deleted_read_messages: i64 = 0
        self.deleted_written_messages: i64 = 0


class NodeCounters:
    """All counters of one node, without those of open channels and connections."""

    def __init__(self) -> None:
        self.closed_channels: MessageCounters = MessageCounters()
        self.churn: ChurnCounters = ChurnCounters()
        # What the stores of deleted vhosts had written.
        self.deleted_writes: WriteFigures = WriteFigures()
