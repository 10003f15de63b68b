"""The walks over queues, exchanges, channels and connections, and the figures of each object.

The figures are those of RabbitMQ's `message_stats` and of the listings' columns, in the order of
`COUNTERS` and `LEVELS` of the protocol.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.admin.changes.walk import Walk
from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED
from warrenmq.broker.counters import MessageCounters
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.queue import Queue
from warrenmq.routing.exchange import Exchange
from warrenmq.vocabulary.names import name_text

# The id of an exchange: above this bit the vhost's, below its number in the vhost.
_VHOST_ID_SHIFT: Final = 32


def is_open(connection: Connection) -> bool:
    """Whether the client has opened its vhost, and the connection has not ended."""
    return connection.vhost is not None and connection.state != CLOSED


def write_message_counters(out: BytesWriter, counters: MessageCounters, uncommitted: i64) -> None:
    """Write what channels have done; `uncommitted` of their publishes wait for a commit."""
    write_i64_be(out, counters.received - counters.rolled_back - uncommitted)
    write_i64_be(out, counters.confirmed)
    write_i64_be(out, counters.returned)
    write_i64_be(out, counters.dropped)
    write_i64_be(out, counters.consumed_manual_ack)
    write_i64_be(out, counters.consumed_auto_ack)
    write_i64_be(out, counters.got_manual_ack)
    write_i64_be(out, counters.got_auto_ack)
    write_i64_be(out, counters.got_empty)
    write_i64_be(out, counters.redelivered)
    write_i64_be(out, counters.acknowledged)


def uncommitted_count(channel: Channel) -> i64:
    """Publishes of the open transaction of `channel`."""
    transaction = channel.transaction
    return 0 if transaction is None else len(transaction.publishes)


class _VhostWalk(Walk):
    """A walk from vhost to vhost."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._vhosts: list[Vhost] = list(broker.vhosts.values())
        self._next_vhost: i64 = 0
        self._vhost: Vhost | None = None

    def _enter_vhost(self) -> Vhost | None:
        """Go to the next vhost; None when there is none left."""
        if self._next_vhost == len(self._vhosts):
            return None
        vhost = self._vhosts[self._next_vhost]
        self._next_vhost += 1
        self._vhost = vhost
        return vhost

    def vhost_name(self) -> bytes:
        vhost = self._vhost
        assert vhost is not None
        return vhost.name


class QueueWalk(_VhostWalk):
    """A walk over the queues of this node; mirrors count at their master's node."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._queues: list[Queue] = []
        self._next_queue: i64 = 0
        self._queue: Queue | None = None

    def next(self) -> bool:
        while True:
            while self._next_queue < len(self._queues):
                queue = self._queues[self._next_queue]
                self._next_queue += 1
                if not queue.is_deleted and not queue.is_hidden:
                    self._queue = queue
                    self.id = queue.id
                    return True
            vhost = self._enter_vhost()
            if vhost is None:
                return False
            self._queues = list(vhost.queues.values())
            self._next_queue = 0

    def name(self) -> str:
        queue = self._queue
        assert queue is not None
        return name_text(queue.name)

    def birth(self) -> i64:
        queue = self._queue
        assert queue is not None
        return queue.definition.birth

    def epoch(self) -> i64:
        queue = self._queue
        assert queue is not None
        return queue.epoch

    def write_figures(self, out: BytesWriter) -> None:
        queue = self._queue
        assert queue is not None
        routed: i64 = 0
        handed_unacked: i64 = 0
        handed_settled: i64 = 0
        got_unacked: i64 = 0
        got_settled: i64 = 0
        got_empty: i64 = 0
        redelivered: i64 = 0
        acked: i64 = 0
        ready: i64 = 0
        unacked: i64 = 0
        body_bytes: i64 = 0
        memory: i64 = 0
        beta: i64 = 0
        gamma: i64 = 0
        delta: i64 = 0
        ram_limit: i64 = 1
        for level in queue.backings():
            counters = level.counters
            routed += counters.routed
            handed_unacked += counters.handed_unacked
            handed_settled += counters.handed_settled
            got_unacked += counters.got_unacked
            got_settled += counters.got_settled
            got_empty += counters.got_empty
            redelivered += counters.redelivered
            acked += counters.acked
            ready += level.ready.count
            unacked += level.unacked.count - level.unacked.leaving_count
            body_bytes += level.ready.body_bytes + level.unacked.body_bytes
            memory += level.memory.current_bytes()
            beta += level.ready.beta_count
            gamma += level.ready.gamma_count
            delta += level.ready.delta.count
            target = level.memory.target_ram_count
            ram_limit = 0 if target >= UNLIMITED or ram_limit == 0 else ram_limit + target
        write_i64_be(out, routed)
        write_i64_be(out, handed_unacked - got_unacked)
        write_i64_be(out, handed_settled - got_settled)
        write_i64_be(out, got_unacked)
        write_i64_be(out, got_settled)
        write_i64_be(out, got_empty)
        write_i64_be(out, redelivered)
        write_i64_be(out, acked)
        write_i64_be(out, ready)
        write_i64_be(out, unacked)
        write_i64_be(out, body_bytes)
        write_i64_be(out, memory)
        write_i64_be(out, len(queue.demand.consumers))
        write_i64_be(out, beta)
        write_i64_be(out, gamma)
        write_i64_be(out, delta)
        write_i64_be(out, ram_limit)


class ExchangeWalk(_VhostWalk):
    """A walk over the exchanges, which count the publishes of this node's clients."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._exchanges: list[Exchange] = []
        self._next_exchange: i64 = 0
        self._exchange: Exchange | None = None

    def next(self) -> bool:
        while self._next_exchange == len(self._exchanges):
            vhost = self._enter_vhost()
            if vhost is None:
                return False
            self._exchanges = list(vhost.router.exchanges.values())
            self._next_exchange = 0
        exchange = self._exchanges[self._next_exchange]
        self._next_exchange += 1
        vhost = self._vhost
        assert vhost is not None
        self._exchange = exchange
        self.id = (vhost.id << _VHOST_ID_SHIFT) + exchange.number
        return True

    def name(self) -> str:
        exchange = self._exchange
        assert exchange is not None
        return name_text(exchange.name)

    def write_figures(self, out: BytesWriter) -> None:
        exchange = self._exchange
        assert exchange is not None
        write_i64_be(out, exchange.publish_in)
        write_i64_be(out, exchange.publish_out)


class _ConnectionsWalk(Walk):
    """A walk from connection to connection."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._connections: list[Connection] = list(broker.connections)
        self._next_connection: i64 = 0
        self._connection: Connection | None = None

    def _enter_connection(self) -> Connection | None:
        """Go to the next open connection; None when there is none left."""
        while self._next_connection < len(self._connections):
            connection = self._connections[self._next_connection]
            self._next_connection += 1
            if is_open(connection):
                self._connection = connection
                return connection
        return None

    def vhost_name(self) -> bytes:
        connection = self._connection
        assert connection is not None
        vhost = connection.vhost
        assert vhost is not None
        return vhost.name


class ChannelWalk(_ConnectionsWalk):
    """A walk over the open channels."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._channels: list[Channel] = []
        self._next_channel: i64 = 0
        self._channel: Channel | None = None

    def next(self) -> bool:
        while True:
            while self._next_channel < len(self._channels):
                channel = self._channels[self._next_channel]
                self._next_channel += 1
                if not channel.is_closed:
                    self._channel = channel
                    self.id = channel.id
                    return True
            connection = self._enter_connection()
            if connection is None:
                return False
            self._channels = list(connection.channels.values())
            self._next_channel = 0

    def name(self) -> str:
        connection = self._connection
        channel = self._channel
        assert connection is not None and channel is not None
        return f"{connection.peer} ({channel.number})"

    def write_figures(self, out: BytesWriter) -> None:
        channel = self._channel
        assert channel is not None
        uncommitted = uncommitted_count(channel)
        write_message_counters(out, channel.counters, uncommitted)
        confirms = channel.confirms
        write_i64_be(out, channel.unacked.count)
        write_i64_be(out, 0 if confirms is None else confirms.unconfirmed_count)
        write_i64_be(out, uncommitted)


class ConnectionWalk(_ConnectionsWalk):
    """A walk over the open connections."""

    def next(self) -> bool:
        connection = self._enter_connection()
        if connection is None:
            return False
        self.id = connection.number
        return True

    def name(self) -> str:
        connection = self._connection
        assert connection is not None
        return connection.peer

    def write_figures(self, out: BytesWriter) -> None:
        connection = self._connection
        assert connection is not None
        write_i64_be(out, connection.traffic.received_bytes)
        write_i64_be(out, connection.out.sent_bytes)
        write_i64_be(out, len(connection.channels))
