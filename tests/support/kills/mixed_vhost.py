"""A vhost with messages of all kinds, a ledger of them, and functions that read them back."""

import random
from dataclasses import dataclass, field

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Confirms, connect
from tests.support.rabbitmq.directories import EVERY_PROPERTY, EVERY_TYPE
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.wire.field_table import encode_table
from warrenmq.wire.methods import BasicGet, BasicGetOk
from warrenmq.wire.properties import Properties, decode_properties

# (exchange, routing key, properties, body)
Expected = tuple[bytes, bytes, bytes, bytes]

SETTINGS = ("journal_file_size_limit=1MiB", "msg_store_file_size_limit=256KiB")
TRANSIENT = Properties(delivery_mode=1).encode()
ODD = "näme, 'with' \"marks\"".encode()
# A priority queue with the levels 0 to LEVELS_MAX.
LEVELS = b"levels"
LEVELS_MAX = 5
FAN_QUEUES = (b"fan-a", b"fan-b", b"fan-c", LEVELS)


@dataclass
class MixedVhost:
    """A node's vhost; `queues` has the messages of each durable queue, in order of delivery."""

    node: BrokerProcess
    peer: Peer
    channel: ChannelPeer
    confirms: Confirms
    queues: dict[bytes, list[Expected]] = field(default_factory=dict)
    # The last channel with deliveries that it never acks.
    holder: ChannelPeer | None = None
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def declare(self, name: bytes, arguments: bytes = b"") -> None:
        self.channel.declare(name, durable=True, arguments=arguments)
        self.queues[name] = []

    def publish(
        self,
        key: bytes,
        size: int,
        properties: bytes = PERSISTENT,
        exchange: bytes = b"",
        queues: tuple[bytes, ...] | None = None,
    ) -> None:
        """Publish random bytes, expected in `queues`; by default in the queue that `key` names."""
        body = self.chance.randbytes(size)
        self.confirms.publish(key, body, properties, exchange, lambda: None)
        while len(self.confirms.waiting) > 500:
            self.confirms.read(5)
        for queue in (key,) if queues is None else queues:
            self.queues[queue].append((exchange, key, properties, body))
            if queue == LEVELS:
                self.queues[queue].sort(key=level_of, reverse=True)

    def take(self, queue: bytes, count: int, ack_every: int) -> None:
        """Deliver the oldest messages and ack one in `ack_every`; the others stay unacked."""
        channel = self.peer.channel()
        channel.qos(count)
        tag = channel.consume(queue)
        deliveries = [channel.message() for _ in range(count)]
        channel.cancel(tag)
        known = self.queues[queue]
        for number, delivery in enumerate(deliveries):
            assert delivery.body == known[number][3]
            if number % ack_every == 0:
                channel.ack(delivery.deliver.delivery_tag)
        self.queues[queue] = [
            message for number, message in enumerate(known) if number >= count or number % ack_every
        ]
        self.holder = channel

    def sync(self) -> None:
        """Return when all publishes and acks so far are durable."""
        self.publish(b"ticks", 1)
        self.confirms.drain()
        self.publish(b"ticks", 1)
        self.confirms.drain()


def level_of(message: Expected) -> int:
    """The level of a message in the queue LEVELS."""
    return min(decode_properties(message[2]).priority or 0, LEVELS_MAX)


def new_vhost(node: BrokerProcess) -> MixedVhost:
    """The vhost / of a running node, with no queue but `ticks`."""
    peer = connect(node)
    channel = peer.channel()
    vhost = MixedVhost(node, peer, channel, Confirms(channel))
    vhost.declare(b"ticks")
    return vhost


def fill(node: BrokerProcess) -> MixedVhost:
    """Fill the vhost / of a running node."""
    vhost = new_vhost(node)
    _declare(vhost)
    sizes = vhost.chance
    for number in range(4000):
        vhost.publish(
            b"small",
            sizes.randrange(0, 300),
            Properties(delivery_mode=2, priority=number % 9).encode(),
        )
    for _ in range(60):
        vhost.publish(b"large", sizes.choice((4096, 5000, 20_000, 300_000)))
        vhost.publish(b"lazy", sizes.randrange(0, 9000))
    for number in range(50):
        vhost.publish(b"mixed", sizes.randrange(0, 9000))
        # These messages are confirmed, and lost when the node ends.
        vhost.publish(b"mixed", 100, TRANSIENT if number % 2 else b"\x00\x00", queues=())
    for number in range(90):
        vhost.publish(
            b"some.key.%d" % number,
            sizes.choice((0, 100, 5000, 40_000)),
            Properties(delivery_mode=2, priority=number % 4).encode(),
            b"fan-out",
            FAN_QUEUES,
        )
    for number in range(200):
        # The last two of these priorities are above the queue's highest level.
        raw = Properties(delivery_mode=2, priority=number % (LEVELS_MAX + 3)).encode()
        vhost.publish(LEVELS, sizes.randrange(0, 9000), raw)
    for size in (0, 5, 6000):
        vhost.publish(b"typed", size, EVERY_PROPERTY.encode())
        vhost.publish(b"key \xc3\xbd", size, EVERY_PROPERTY.encode(), ODD, (ODD,))
        vhost.publish(b"timed", size, Properties(delivery_mode=2, expiration=b"3000000").encode())
    for _ in range(900):
        vhost.publish(b"holes", sizes.randrange(0, 6000))
    vhost.sync()
    vhost.take(b"holes", 400, 3)
    vhost.take(b"fan-b", 60, 2)
    vhost.take(b"drained", 0, 1)
    vhost.sync()
    return vhost


def _declare(vhost: MixedVhost) -> None:
    channel = vhost.channel
    for name in (
        b"small",
        b"large",
        b"mixed",
        b"typed",
        b"holes",
        b"drained",
        b"gr\xc3\xbc\xc3\x9fe",
        ODD,
        *FAN_QUEUES[:-1],
    ):
        vhost.declare(name)
    vhost.declare(LEVELS, table(x__max__priority=LEVELS_MAX))
    vhost.declare(b"lazy", table(x__queue__mode="lazy"))
    vhost.declare(b"timed", table(x__message__ttl=3_600_000, x__expires=86_400_000))
    channel.exchange(b"fan-out", b"fanout", durable=True)
    channel.exchange(ODD, b"direct", durable=True)
    channel.exchange(b"topics", b"topic", durable=True, internal=True)
    channel.exchange(
        b"heads", b"headers", durable=True, arguments=table(alternate__exchange="fan-out")
    )
    for name in FAN_QUEUES:
        channel.bind(name, b"fan-out")
    channel.bind(ODD, ODD, b"key \xc3\xbd")
    channel.bind(b"small", b"heads", arguments=encode_table(EVERY_TYPE))
    channel.bind_exchange(b"topics", b"heads", b"a.*.#", table(x__match="any", colour="red"))
    channel.bind(b"large", b"topics", b"#.large")


def contents_of(node: BrokerProcess, queues: list[bytes]) -> dict[bytes, list[Expected]]:
    """Take all messages out of the queues of a running node."""
    peer = connect(node)
    channel = peer.channel()
    found: dict[bytes, list[Expected]] = {}
    for queue in queues:
        found[queue] = []
        while isinstance(item := channel.call(BasicGet(queue, True)), Message):
            assert isinstance(item.method, BasicGetOk)
            found[queue].append(
                (item.method.exchange, item.method.routing_key, item.raw, item.body)
            )
    peer.drop()
    return found


def shown(definitions: Definitions, vhost: bytes = b"/") -> list[tuple[object, ...]]:
    """The definitions of a vhost as rows, for comparison."""
    rows: list[tuple[object, ...]] = []
    for exchange in definitions.exchanges:
        if exchange.vhost == vhost:
            rows.append(
                (
                    exchange.name,
                    exchange.type,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                )
            )
    for queue in definitions.queues:
        if queue.vhost == vhost:
            rows.append((queue.id, queue.name, queue.durable, queue.auto_delete, queue.arguments))
    for binding in definitions.bindings:
        if binding.vhost == vhost:
            rows.append(
                (
                    binding.source,
                    binding.destination,
                    binding.destination_is_queue,
                    binding.key,
                    binding.arguments,
                )
            )
    for permission in definitions.permissions:
        if permission.vhost == vhost:
            rows.append((permission.user, permission.configure, permission.write, permission.read))
    users = {row[0] for row in rows}
    rows += [
        (user.name, user.password_hash, user.hashing, tuple(user.tags))
        for user in definitions.users
        if user.name in users
    ]
    return rows
