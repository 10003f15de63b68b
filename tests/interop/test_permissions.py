"""Users with rights by chance: RabbitMQ and warren refuse the same operations in the same words.

The users' topic permissions and the limits are compared as well. At last all rights change: warren
answers on channels that were open before as RabbitMQ does on new ones.
"""

import base64
import json
import random
from collections.abc import Callable, Iterator

import pytest

from bench.brokers import RabbitmqBroker, rabbitmq_server
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import ChannelPeer, ConnectionClosedError, Peer
from tests.support.brokers.memory_broker import GUEST, MemoryBroker
from warrenmq.broker.definitions.limits import VHOST_LIMITS
from warrenmq.broker.definitions.metadata import (
    NO_LIMIT,
    Definitions,
    PutParameter,
    PutPermission,
    PutTopicPermission,
    PutUser,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ConnectionCloseOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)

USERS = 40
PATTERNS = (
    "", ".*", "^$", "^x", "a$", "amq.default", "amq\\.", "q-(a|new)", "new", "-", "[xq]-a", "b",
    "^(?!x)", "gone", "^amq\\.gen", "X",
)  # fmt: skip
# Names of topic exchanges, and of others, where topic permissions have no effect.
TOPIC_EXCHANGES = (b"x-t", b"amq.topic", b"x-a", b"x-gone")
TOPIC_PATTERNS = (
    "", ".*", "^$", "^a", "k$", "^{username}$", "{vhost}", "[.]", "^(?!a)", "{client_id}", "user-.$",
    "#",
)  # fmt: skip
ALTERNATE = table(**{"alternate-exchange": "x-b"})
OPERATIONS: tuple[Method, ...] = (
    ExchangeDeclare(b"x-a", b"direct", True),
    ExchangeDeclare(b"x-gone", b"direct", True),
    ExchangeDeclare(b"x-a", b"direct"),
    ExchangeDeclare(b"x-a", b"fanout"),
    ExchangeDeclare(b"x-new", b"direct"),
    ExchangeDeclare(b"x-new-alternate", b"direct", arguments=ALTERNATE),
    ExchangeDeclare(b"amq.new", b"direct"),
    ExchangeDeclare(b"", b"direct"),
    ExchangeBind(b"x-b", b"x-a", b"k"),
    ExchangeBind(b"x-gone", b"x-a", b"k"),
    ExchangeBind(b"x-b", b"x-gone", b"k"),
    ExchangeBind(b"", b"x-a", b"k"),
    ExchangeBind(b"x-b", b"", b"k"),
    ExchangeUnbind(b"x-b", b"x-a", b"k"),
    ExchangeUnbind(b"x-gone", b"x-a", b"k"),
    QueueDeclare(b"q-a", True),
    QueueDeclare(b"q-gone", True),
    QueueDeclare(b"q-a"),
    QueueDeclare(b"q-new"),
    QueueDeclare(b"amq.new"),
    QueueBind(b"q-a", b"x-a", b"k"),
    QueueBind(b"q-gone", b"x-a", b"k"),
    QueueBind(b"q-a", b"x-gone", b"k"),
    QueueBind(b"q-a", b"", b"k"),
    QueueUnbind(b"q-a", b"x-a", b"k"),
    QueueUnbind(b"q-gone", b"x-a", b"k"),
    *(BasicPublish(b"x-t", key) for key in (b"a.k", b"b.k", b"", b"user-7", b"/", b"{client_id}")),
    BasicPublish(b"amq.topic", b"a.k"),
    QueueBind(b"q-a", b"x-t", b"a.k"),
    QueueBind(b"q-a", b"x-t", b"b.#"),
    QueueBind(b"q-a", b"x-t"),
    QueueBind(b"q-gone", b"amq.topic", b"a.k"),
    QueueUnbind(b"q-a", b"x-t", b"a.k"),
    ExchangeBind(b"x-b", b"x-t", b"a.k"),
    ExchangeUnbind(b"x-b", b"x-t", b"a.k"),
    BasicPublish(b"x-a", b"k"),
    BasicPublish(b"", b"q-a"),
    BasicPublish(b"x-gone", b"k"),
    BasicPublish(b"amq.rabbitmq.trace", b"k"),
    BasicGet(b"q-b", no_ack=True),
    BasicGet(b"q-gone", no_ack=True),
    BasicConsume(b"q-b", b"c", no_ack=True),
    BasicConsume(b"q-gone", b"c", no_ack=True),
    QueuePurge(b"q-b"),
    QueuePurge(b"q-gone"),
    QueueDelete(b"q-new"),
    QueueDelete(b"q-gone"),
    ExchangeDelete(b"x-new"),
    ExchangeDelete(b"x-gone"),
    ExchangeDelete(b"amq.direct"),
    ExchangeDelete(b""),
)


def definitions(seed: int = 15) -> Definitions:
    """Users, all with the password of guest, and their rights in the vhost /, by `seed`."""
    rng = random.Random(seed)
    found = Definitions()
    for number in range(USERS):
        name = b"user-%d" % number
        found.users.append(PutUser(name, GUEST.password_hash, GUEST.hashing, []))
        rights = [rng.choice(PATTERNS) for _ in range(3)]
        if number % 4 == 1:
            # Only the topic permissions refuse something.
            rights = [".*", ".*", ".*"]
        found.permissions.append(PutPermission(b"/", name, *rights))
        for exchange in TOPIC_EXCHANGES:
            # The same exchanges whatever the seed: an import deletes no permission.
            if number % 3 != 0:
                topics = [rng.choice(TOPIC_PATTERNS) for _ in range(2)]
                topic_permission = PutTopicPermission(b"/", name, exchange, *topics)
                found.topic_permissions.append(topic_permission)
    return found


def exported(found: Definitions) -> str:
    """The same definitions as RabbitMQ imports them."""
    return json.dumps(
        {
            "users": [
                {
                    "name": user.name.decode(),
                    "password_hash": base64.b64encode(user.password_hash).decode(),
                    "hashing_algorithm": user.hashing,
                    "tags": "",
                    "limits": {
                        key: value
                        for key, value in (
                            ("max-connections", user.max_connections),
                            ("max-channels", user.max_channels),
                        )
                        if value != NO_LIMIT
                    },
                }
                for user in found.users
            ],
            "topic_permissions": [
                {
                    "user": each.user.decode(),
                    "vhost": each.vhost.decode(),
                    "exchange": each.exchange.decode(),
                    "write": each.write,
                    "read": each.read,
                }
                for each in found.topic_permissions
            ],
            "parameters": [
                {
                    "vhost": each.vhost.decode(),
                    "component": each.component,
                    "name": each.name,
                    "value": json.loads(each.value),
                }
                for each in found.parameters
            ],
            "permissions": [
                {
                    "user": each.user.decode(),
                    "vhost": each.vhost.decode(),
                    "configure": each.configure,
                    "write": each.write,
                    "read": each.read,
                }
                for each in found.permissions
            ],
        }
    )


class Side:
    """One of the two brokers."""

    def __init__(self, connect: Callable[[], Peer]) -> None:
        self.connect = connect
        # Connections that count against a limit.
        self.held: list[Peer] = []

    def prepare(self) -> None:
        """Leave exactly the exchanges and queues that the operations count on."""
        peer = self.connect().open()
        channel = peer.channel()
        for name in (b"q-a", b"q-b", b"q-new", b"q-gone"):
            channel.call(QueueDelete(name))
        for name in (b"x-a", b"x-b", b"x-new", b"x-new-alternate", b"x-gone", b"x-t"):
            channel.call(ExchangeDelete(name))
        for name in (b"q-a", b"q-b"):
            channel.call(QueueDeclare(name))
        for name in (b"x-a", b"x-b"):
            channel.call(ExchangeDeclare(name, b"direct"))
        channel.call(ExchangeDeclare(b"x-t", b"topic"))
        peer.close()

    def open(self, user: bytes) -> Peer:
        """A connection of the user, with a channel that has found a route."""
        peer = self.connect().open(user=user)
        channel = peer.channel()
        channel.publish(b"k", exchange=b"x-a")
        channel.send(ChannelFlow(True))
        if answer(channel) is not None:
            forget(channel)
        return peer

    def refusal(self, user: bytes) -> str:
        """Open a connection of the user and leave it open; the code and text that refuse it."""
        try:
            self.held.append(self.connect().open(user=user))
        except ConnectionClosedError as refusal:
            return str(refusal)
        return ""

    def answers(self, peer: Peer) -> list[str]:
        """The answer to each of OPERATIONS: ok, or the code and text of the channel's close."""
        found = []
        channel: ChannelPeer | None = next(iter(peer.channels.values()), None)
        for operation in OPERATIONS:
            if channel is None:
                channel = peer.channel()
            if isinstance(operation, BasicPublish):
                channel.publish(operation.routing_key, exchange=operation.exchange)
                channel.send(ChannelFlow(True))
            else:
                channel.send(operation)
            closed = answer(channel)
            if closed is None:
                found.append("ok")
                if isinstance(operation, BasicConsume):
                    channel.call(BasicCancel(operation.consumer_tag))
            else:
                found.append(f"{closed.reply_code} {closed.reply_text.decode()}")
                forget(channel)
                channel = None
        peer.close()
        return found


def forget(channel: ChannelPeer) -> None:
    """Answer the broker's close of the channel."""
    channel.send(ChannelCloseOk())
    del channel.peer.channels[channel.number]


def answer(channel: ChannelPeer) -> ChannelClose | None:
    while not channel.replies:
        assert channel.peer.read(), "no answer"
    item = channel.replies.popleft()
    return item if isinstance(item, ChannelClose) else None


class Both:
    """The two brokers, and what changes their definitions."""

    def __init__(
        self, theirs: Side, ours: Side, rabbitmq: RabbitmqBroker, engine: MemoryBroker
    ) -> None:
        self.theirs = theirs
        self.ours = ours
        self._rabbitmq = rabbitmq
        self._engine = engine

    def change(self, found: Definitions) -> None:
        """Add `found` to the definitions of both."""
        path = self._rabbitmq.directory / "definitions.json"
        path.write_text(exported(found))
        self._rabbitmq.control("import_definitions", str(path))
        for change in (*found.users, *found.permissions, *found.topic_permissions):
            self._engine.broker.access.apply(change)
        for parameter in found.parameters:
            self._engine.vhost.put_parameter(parameter.component, parameter.name, parameter.value)


def differences(theirs: list[str], ours: list[str]) -> list[tuple[Method, str, str]]:
    return [
        (operation, their, our)
        for operation, their, our in zip(OPERATIONS, theirs, ours, strict=True)
        if their != our
    ]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """RabbitMQ, a node of its own, and warren in memory, both with the same users."""
    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    rabbitmq = RabbitmqBroker(tmp_path_factory.mktemp("rabbitmq-permissions"), set())
    rabbitmq.start()
    try:
        engine = MemoryBroker()
        both = Both(
            Side(lambda: Peer(SocketLink("127.0.0.1", rabbitmq.port), True)),
            Side(lambda: Peer(engine.connect(True))),
            rabbitmq,
            engine,
        )
        both.change(definitions())
        yield both
    finally:
        rabbitmq.stop()


@pytest.mark.parametrize("number", range(USERS))
def test_both_brokers_give_the_same_answers(both: Both, number: int) -> None:
    answers = []
    for side in (both.theirs, both.ours):
        side.prepare()
        answers.append(side.answers(side.open(b"user-%d" % number)))
    assert differences(*answers) == []
    # Chance gives nobody none of the rights that the operations need.
    assert "ok" in answers[0]


def test_the_users_meet_refusals_of_each_kind(both: Both) -> None:
    """The comparison is not empty: each operation that needs a right is refused to somebody."""
    refused: set[int] = set()
    refused_topics: set[int] = set()
    for number in range(USERS):
        both.ours.prepare()
        answers = both.ours.answers(both.ours.open(b"user-%d" % number))
        for place, text in enumerate(answers):
            if text.startswith("403") and "refused for user" in text:
                refused.add(place)
            if "access to topic" in text:
                refused_topics.add(place)
    needs_none = {0, 1, 6, 7, 15, 16, 19, len(OPERATIONS) - 1, len(OPERATIONS) - 2}
    assert set(range(len(OPERATIONS))) - refused <= needs_none
    assert refused_topics == set(range(26, 40))


def test_open_channels_get_the_answers_of_new_rights(both: Both) -> None:
    """RabbitMQ's open channels keep old answers for a while, so its channels are new ones."""
    peers = [both.ours.open(b"user-%d" % number) for number in range(USERS)]
    both.change(definitions(16))
    for number, peer in enumerate(peers):
        both.theirs.prepare()
        both.ours.prepare()
        theirs = both.theirs.answers(both.theirs.open(b"user-%d" % number))
        assert differences(theirs, both.ours.answers(peer)) == []


def limited_users() -> Definitions:
    """Users and a vhost with limits."""
    found = Definitions()
    for name, connections, channels in (
        (b"one-connection", 1, NO_LIMIT),
        (b"no-connection", 0, NO_LIMIT),
        (b"one-channel", NO_LIMIT, 1),
        (b"no-channel", NO_LIMIT, 0),
    ):
        found.users.append(
            PutUser(name, GUEST.password_hash, GUEST.hashing, [], connections, channels)
        )
        found.permissions.append(PutPermission(b"/", name, ".*", ".*", ".*"))
    # Without permissions: RabbitMQ looks at the limits first.
    found.users.append(PutUser(b"stranger", GUEST.password_hash, GUEST.hashing, [], 0))
    limits = json.dumps({"max-connections": 100, "max-queues": 2})
    found.parameters.append(PutParameter(b"/", VHOST_LIMITS, "limits", limits))
    return found


def limit_answers(side: Side) -> list[str]:
    """What the limits refuse."""
    found = [side.refusal(b"one-connection"), side.refusal(b"one-connection")]
    found += [side.refusal(b"no-connection"), side.refusal(b"stranger")]
    side.prepare()
    peer = side.open(b"guest")
    side.held.append(peer)
    for declare in (
        QueueDeclare(b"q-a"),
        QueueDeclare(b"q-c"),
        QueueDeclare(b"q-c", exclusive=True),
        QueueDeclare(b"q-c", passive=True),
        QueueDeclare(b"q-c", arguments=table(**{"x-dead-letter-exchange": 5})),
        QueueDeclare(b"q-a", durable=True),
    ):
        channel = peer.channel()
        channel.send(declare)
        closed = answer(channel)
        found.append("" if closed is None else closed.reply_text.decode())
        if closed is not None:
            forget(channel)
    for user in (b"one-channel", b"no-channel"):
        peer = side.connect().open(user=user)
        try:
            while True:
                peer.channel()
        except ConnectionClosedError as refusal:
            found.append(str(refusal))
            peer.method(0, ConnectionCloseOk())
    while not (refusal_text := side.refusal(b"guest")):
        pass
    # The limit of the vhost comes first.
    return [*found, refusal_text, side.refusal(b"no-connection")]


def test_limits_refuse_in_the_same_words(both: Both) -> None:
    both.change(limited_users())
    theirs = limit_answers(both.theirs)
    assert theirs == limit_answers(both.ours)
    assert len([text for text in theirs if text]) == 12
