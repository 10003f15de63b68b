"""Sums of figures over many connections and their channels, for pages of metrics.

The figures have the names of the columns of `warrenctl list_connections` and `list_channels`.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED


class ClientTotals:
    """The sums over all connections that were added. Sizes in bytes."""

    def __init__(self) -> None:
        self.connections: i64 = 0
        # Bytes that wait to be sent.
        self.send_pend: i64 = 0
        self.channels: i64 = 0
        # Channels on which clients have published.
        self.publishers: i64 = 0
        self.consumer_count: i64 = 0
        self.messages_unacknowledged: i64 = 0
        self.messages_unconfirmed: i64 = 0
        self.messages_uncommitted: i64 = 0
        self.acks_uncommitted: i64 = 0
        # Limits of unacked messages: of whole channels, and of each consumer.
        self.global_prefetch_count: i64 = 0
        self.prefetch_count: i64 = 0

    def add(self, connection: Connection) -> None:
        """Add the figures of a connection, unless it is closed."""
        if connection.state == CLOSED:
            return
        self.connections += 1
        self.send_pend += connection.out.buffered_bytes
        for channel in connection.channels.values():
            self._add_channel(channel)

    def _add_channel(self, channel: Channel) -> None:
        self.channels += 1
        if channel.has_published():
            self.publishers += 1
        self.consumer_count += len(channel.consumers)
        self.messages_unacknowledged += channel.unacked.count
        confirms = channel.confirms
        if confirms is not None:
            self.messages_unconfirmed += confirms.unconfirmed_count
        transaction = channel.transaction
        if transaction is not None:
            self.messages_uncommitted += len(transaction.publishes)
            for settle in transaction.settles:
                self.acks_uncommitted += len(settle.entries)
        self.global_prefetch_count += channel.room.prefetch
        self.prefetch_count += channel.room.consumer_prefetch
