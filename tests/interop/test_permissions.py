"""Users with rights by chance: RabbitMQ and warren refuse the same operations in the same words."""

import base64
import json
import random
from collections.abc import Callable, Iterator

import pytest

from bench.brokers import RabbitmqBroker, rabbitmq_server
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import GUEST, MemoryBroker
from warrenmq.broker.definitions.metadata import Definitions, PutPermission, PutUser
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
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


def definitions() -> Definitions:
    """Users, all with the password of guest, and their rights in the vhost /."""
    rng = random.Random(15)
    found = Definitions()
    for number in range(USERS):
        name = b"user-%d" % number
        found.users.append(PutUser(name, GUEST.password_hash, GUEST.hashing, []))
        rights = [rng.choice(PATTERNS) for _ in range(3)]
        found.permissions.append(PutPermission(b"/", name, *rights))
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
                }
                for user in found.users
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
        self._connect = connect

    def prepare(self) -> None:
        """Leave exactly the exchanges and queues that the operations count on."""
        peer = self._connect().open()
        channel = peer.channel()
        for name in (b"q-a", b"q-b", b"q-new", b"q-gone"):
            channel.call(QueueDelete(name))
        for name in (b"x-a", b"x-b", b"x-new", b"x-new-alternate", b"x-gone"):
            channel.call(ExchangeDelete(name))
        for name in (b"q-a", b"q-b"):
            channel.call(QueueDeclare(name))
        for name in (b"x-a", b"x-b"):
            channel.call(ExchangeDeclare(name, b"direct"))
        peer.close()

    def answers(self, user: bytes) -> list[str]:
        """The answer to each of OPERATIONS: ok, or the code and text of the channel's close."""
        peer = self._connect().open(user=user)
        found = []
        channel: ChannelPeer | None = None
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
                channel.send(ChannelCloseOk())
                del peer.channels[channel.number]
                channel = None
        peer.close()
        return found


def answer(channel: ChannelPeer) -> ChannelClose | None:
    while not channel.replies:
        assert channel.peer.read(), "no answer"
    item = channel.replies.popleft()
    return item if isinstance(item, ChannelClose) else None


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """RabbitMQ, a node of its own, and warren in memory, both with the same users."""
    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    directory = tmp_path_factory.mktemp("rabbitmq-permissions")
    found = definitions()
    (directory / "definitions.json").write_text(exported(found))
    rabbitmq = RabbitmqBroker(directory, set())
    rabbitmq.start()
    try:
        rabbitmq.control("import_definitions", str(directory / "definitions.json"))
        engine = MemoryBroker()
        engine.broker.load_users(found)
        yield (
            Side(lambda: Peer(SocketLink("127.0.0.1", rabbitmq.port), True)),
            Side(lambda: Peer(engine.connect(True))),
        )
    finally:
        rabbitmq.stop()


@pytest.mark.parametrize("number", range(USERS))
def test_both_brokers_give_the_same_answers(sides: tuple[Side, Side], number: int) -> None:
    answers = []
    for side in sides:
        side.prepare()
        answers.append(side.answers(b"user-%d" % number))
    theirs, ours = answers
    assert [
        (type(operation).__name__, their, our)
        for operation, their, our in zip(OPERATIONS, theirs, ours, strict=True)
        if their != our
    ] == []
    # Chance gives nobody all rights or none of those that the operations need.
    assert "ok" in theirs


def test_the_users_meet_refusals_of_each_kind(sides: tuple[Side, Side]) -> None:
    """The comparison is not empty: each operation that needs a right is refused to somebody."""
    engine_side = sides[1]
    refused: set[int] = set()
    for number in range(USERS):
        engine_side.prepare()
        for place, text in enumerate(engine_side.answers(b"user-%d" % number)):
            if text.startswith("403") and "refused for user" in text:
                refused.add(place)
    needs_none = {0, 1, 6, 7, 15, 16, 19, len(OPERATIONS) - 1, len(OPERATIONS) - 2}
    assert set(range(len(OPERATIONS))) - refused <= needs_none
