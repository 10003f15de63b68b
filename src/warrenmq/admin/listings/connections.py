"""The listings of connections, channels and consumers.

Differences to RabbitMQ's columns of connections:

* `recv_cnt` counts reads of the socket and `send_cnt` writes to it, where Erlang counts packets;
  `send_pend` is in bytes.

The age of a consumer's oldest unacked delivery is that of the first one among the oldest
OLDEST_OF_CONSUMER of its channel, and missing if there is none among them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from warrenmq.admin.listings.columns import Columns, ListingOf, chosen, table_value, vhost_of
from warrenmq.admin.listings.pids import channel_pid, connection_pid
from warrenmq.admin.listings.tls_names import tls_names
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.channel import Channel, ChannelConsumer
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED, RUNNING, STATE_NAMES
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.methods import ConnectionTuneOk

OLDEST_OF_CONSUMER: Final = 1000

# -- connections -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedConnection:
    """A connection of a client; its socket may be in the handshake still."""

    broker: Broker
    connection: Connection

    @property
    def tuned(self) -> ConnectionTuneOk | None:
        """The negotiated limits; None before they are."""
        return self.connection.handshake.tuned

    def client_end(self) -> tuple[str, int | None]:
        """The client's address and port."""
        return _address(self.connection.peer.partition(" -> ")[0])

    def server_end(self) -> tuple[str, int | None]:
        """The address and port that the client connected to."""
        return _address(self.connection.peer.partition(" -> ")[2])

    def user(self) -> str | None:
        """The name of the user, None before the login."""
        return name_text(self.connection.client.user_name) or None

    def vhost(self) -> str | None:
        """The name of the vhost, None before connection.open."""
        vhost = self.connection.vhost
        return None if vhost is None else name_text(vhost.name)


def _address(text: str) -> tuple[str, int | None]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() else None


def connection_state(connection: Connection) -> str:
    """The state as RabbitMQ names it, such as `running`, `flow` or `blocked`."""
    if connection.state == RUNNING:
        return connection.throttle.shown_state(connection.now_ms)
    return STATE_NAMES[connection.state]


def _connections_of(broker: Broker, request: List) -> list[Connection]:
    """All connections, or those of the user that the request names."""
    user = request.user.encode()
    return [each for each in broker.connections if not user or each.client.user_name == user]


def _find_connections(broker: Broker, request: List) -> Iterator[ListedConnection]:
    connections = _connections_of(broker, request)
    if request.names is not None:
        names = set(request.names)
        connections = [
            each
            for each in connections
            if each.peer in names or connection_pid(broker, each) in names
        ]
    return (ListedConnection(broker, each) for each in connections if each.state != CLOSED)


_ENDS: Columns[ListedConnection] = {
    "pid": lambda each: connection_pid(each.broker, each.connection),
    "name": lambda each: each.connection.peer,
    "host": lambda each: each.server_end()[0],
    "port": lambda each: each.server_end()[1],
    "peer_host": lambda each: each.client_end()[0],
    "peer_port": lambda each: each.client_end()[1],
    "ssl": lambda each: bool(each.connection.tls),
    "ssl_protocol": lambda each: each.connection.tls.lower() or None,
    "ssl_key_exchange": lambda each: tls_names(each.connection.cipher).key_exchange,
    "ssl_cipher": lambda each: tls_names(each.connection.cipher).cipher,
    "ssl_hash": lambda each: tls_names(each.connection.cipher).hash,
    "peer_cert_subject": lambda each: each.connection.certificate.subject or None,
    "peer_cert_issuer": lambda each: each.connection.certificate.issuer or None,
    "peer_cert_validity": lambda each: each.connection.certificate.validity or None,
}
_CLIENT: Columns[ListedConnection] = {
    "state": lambda each: connection_state(each.connection),
    "channels": lambda each: len(each.connection.channels),
    "protocol": lambda _each: "{0,9,1}",
    "auth_mechanism": lambda each: each.connection.client.mechanism or None,
    "user": ListedConnection.user,
    "vhost": ListedConnection.vhost,
    "timeout": lambda each: each.tuned and each.tuned.heartbeat,
    "frame_max": lambda each: each.tuned and each.tuned.frame_max,
    "channel_max": lambda each: each.tuned and each.tuned.channel_max,
    "client_properties": lambda each: table_value(each.connection.client.properties),
    "user_provided_name": lambda each: each.connection.client.name or None,
}
_TRAFFIC: Columns[ListedConnection] = {
    "connected_at": lambda each: each.connection.traffic.connected_at_ms,
    "recv_oct": lambda each: each.connection.traffic.received_bytes,
    "recv_cnt": lambda each: each.connection.traffic.reads,
    "send_oct": lambda each: each.connection.out.sent_bytes,
    "send_cnt": lambda each: each.connection.traffic.writes,
    "send_pend": lambda each: each.connection.out.buffered_bytes,
}

# -- channels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedChannel:
    """An open channel of a connection."""

    broker: Broker
    connection: Connection
    channel: Channel

    @property
    def name(self) -> str:
        """The name of the connection with the channel's number."""
        return f"{self.connection.peer} ({self.channel.number})"

    def is_called(self, names: set[str]) -> bool:
        """Whether the channel has one of the names or pids, or its connection one of the names."""
        return (
            self.connection.peer in names
            or self.name in names
            or channel_pid(self.broker, self.channel) in names
        )

    def unconfirmed(self) -> int:
        """Publishes whose confirm is not sent yet."""
        confirms = self.channel.confirms
        return 0 if confirms is None else confirms.unconfirmed_count

    def uncommitted(self) -> int:
        """Publishes of the open transaction."""
        transaction = self.channel.transaction
        return 0 if transaction is None else len(transaction.publishes)

    def acks_uncommitted(self) -> int:
        """Messages that the open transaction has settled."""
        transaction = self.channel.transaction
        return 0 if transaction is None else sum(len(each.entries) for each in transaction.settles)

    def oldest_unacked_s(self) -> float | None:
        """For how long the oldest unacked delivery waits at least (s), None without one."""
        unacked = self.channel.unacked
        ages = [unacked.age_ms(entry.delivery_tag) for entry in unacked.oldest(1)]
        return ages[0] / 1000 if ages else None

    def shown_state(self) -> str:
        """`running`, `closing`, or `flow` while flow control stops the connection."""
        if self.channel.is_closing:
            return "closing"
        return "flow" if connection_state(self.connection) == "flow" else "running"


def _find_channels(broker: Broker, request: List) -> Iterator[ListedChannel]:
    connections = _connections_of(broker, request)
    found = (
        ListedChannel(broker, connection, channel)
        for connection in connections
        for channel in list(connection.channels.values())
    )
    if request.names is None:
        return found
    names = set(request.names)
    return iter([each for each in found if each.is_called(names)])


_CHANNEL: Columns[ListedChannel] = {
    "pid": lambda each: channel_pid(each.broker, each.channel),
    "connection": lambda each: connection_pid(each.broker, each.connection),
    "name": lambda each: each.name,
    "number": lambda each: each.channel.number,
    "user": lambda each: name_text(each.connection.client.user_name),
    "vhost": lambda each: name_text(each.channel.vhost.name),
    "transactional": lambda each: each.channel.transaction is not None,
    "confirm": lambda each: each.channel.confirms is not None,
    "consumer_count": lambda each: len(each.channel.consumers),
    "messages_unacknowledged": lambda each: each.channel.unacked.count,
    "oldest_unacknowledged_seconds": ListedChannel.oldest_unacked_s,
    "messages_unconfirmed": ListedChannel.unconfirmed,
    "messages_uncommitted": ListedChannel.uncommitted,
    "acks_uncommitted": ListedChannel.acks_uncommitted,
    "prefetch_count": lambda each: each.channel.room.consumer_prefetch,
    "global_prefetch_count": lambda each: each.channel.room.prefetch,
    "state": ListedChannel.shown_state,
}

# -- consumers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedConsumer:
    """A consumer of a queue; reader groups are none.

    `queue`: None if the queue is on another node, which alone knows whether a single active
    consumer is the active one.
    """

    broker: Broker
    queue: Queue | None
    consumer: ChannelConsumer

    def is_single_active(self) -> bool:
        """Whether only one consumer of the queue gets messages."""
        queue = self.consumer.queue
        assert isinstance(queue, MessageTaker)
        return queue.settings.traits.is_single_active

    def is_active(self) -> bool | None:
        """Whether the consumer gets messages, and does not wait for another one to end."""
        if self.queue is None:
            return None if self.is_single_active() else True
        return self.queue.demand.is_active(self.consumer)

    def oldest_unacked_s(self) -> float | None:
        """For how long its oldest unacked delivery waits at least (s), None without one."""
        if self.consumer.unacked_count == 0:
            return None
        unacked = self.consumer.channel.unacked
        for entry in unacked.oldest(OLDEST_OF_CONSUMER):
            if entry.consumer is self.consumer:
                return unacked.age_ms(entry.delivery_tag) / 1000
        return None

    def activity_status(self) -> str | None:
        """RabbitMQ's word for that."""
        if not self.is_single_active():
            return "up"
        is_active = self.is_active()
        return None if is_active is None else "single_active" if is_active else "waiting"


def _find_consumers(broker: Broker, request: List) -> Iterator[ListedConsumer]:
    vhost = vhost_of(broker, request)
    queues = chosen(vhost.queues, request.names)
    own = (
        ListedConsumer(broker, queue, consumer)
        for queue in queues
        for consumer in list(queue.consumers)
        if isinstance(consumer, ChannelConsumer)
    )
    elsewhere = set(chosen(vhost.remote_queues, request.names))
    return chain(own, _consumers_elsewhere(broker, vhost, elsewhere)) if elsewhere else own


def _consumers_elsewhere(
    broker: Broker, vhost: Vhost, queues: set[RemoteQueue]
) -> Iterator[ListedConsumer]:
    """The consumers of clients of this node at `queues`, which are on other nodes."""
    for connection in list(broker.connections):
        for channel in list(connection.channels.values()):
            if channel.vhost is vhost:
                for consumer in list(channel.consumers.values()):
                    if consumer.queue in queues:
                        yield ListedConsumer(broker, None, consumer)


_CONSUMER: Columns[ListedConsumer] = {
    "queue_name": lambda each: name_text(each.consumer.queue.name),
    "channel_pid": lambda each: channel_pid(each.broker, each.consumer.channel),
    "consumer_tag": lambda each: name_text(each.consumer.tag),
    "ack_required": lambda each: not each.consumer.no_ack,
    "prefetch_count": lambda each: each.consumer.prefetch_count,
    "messages_unacknowledged": lambda each: each.consumer.unacked_count,
    "oldest_unacknowledged_seconds": ListedConsumer.oldest_unacked_s,
    "active": ListedConsumer.is_active,
    "activity_status": ListedConsumer.activity_status,
    "arguments": lambda each: table_value(each.consumer.arguments),
}

CONNECTION_COLUMNS = _ENDS | _CLIENT | _TRAFFIC
CONNECTIONS = ListingOf(CONNECTION_COLUMNS, _find_connections)
CHANNELS = ListingOf(_CHANNEL, _find_channels)
CONSUMERS = ListingOf(_CONSUMER, _find_consumers)
