"""A client of another node sees what a client of the queue's node sees.

Two clusters do the same: in one the clients are at the front, in the other at the back, where the
queues are. After each step both are quiet, and both clients must have got the same replies, and the
same messages from each queue.
"""

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.cluster.remote.conftest import read_arrived
from tests.cluster.remote.two_nodes import TwoNodes
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from warrenmq.wire.properties import Properties

QUEUES: list[tuple[bytes, bytes]] = [
    (b"plain", b""),
    (b"short", table(x__max__length=2, x__overflow="reject-publish")),
    (b"levels", table(x__max__priority=3)),
    (b"single", table(x__single__active__consumer=True)),
    (b"dying", table(x__dead__letter__exchange="", x__dead__letter__routing__key="plain")),
]
NAMES = st.sampled_from([name for name, _ in QUEUES])


class Client:
    """One channel at a node of a cluster, and what it has got that no reply is."""

    def __init__(self, at_front: bool) -> None:
        self.cluster = TwoNodes()
        node = self.cluster.front if at_front else self.cluster.back
        self.peer = Peer(node.connect()).open()
        self.channel: ChannelPeer = self.peer.channel()
        self.confirmed: set[tuple[int, bool]] = set()
        self._upto = 0
        # Unacked deliveries by queue, with delivery tag and body.
        self.unacked: dict[bytes, list[tuple[int, bytes]]] = {}

    def open(self) -> None:
        """Open a channel after one that was closed; consumers and unacked messages are gone."""
        self.channel = self.peer.channel()
        self.confirmed = set()
        self._upto = 0
        self.unacked = {}

    def settle(self) -> None:
        """Let everything happen that happens without time."""
        self.cluster.pump()
        read_arrived(self.peer)

    def send(self, method: Method) -> None:
        self.channel.send(method)
        self.settle()

    def replies(self) -> list[object]:
        """Replies since the last call, in a form that can be compared."""
        found: list[object] = []
        while self.channel.replies:
            item = self.channel.replies.popleft()
            if isinstance(item, Message):
                got = item.got
                self.unacked.setdefault(b"", []).append((got.delivery_tag, item.body))
                found.append(("got", item.body, got.redelivered, got.message_count))
            elif isinstance(item, ChannelClose):
                found.append(("closed", item.reply_code, item.reply_text))
                self.peer.method(self.channel.number, ChannelCloseOk())
                del self.peer.channels[self.channel.number]
                self.settle()
                self.open()
            else:
                values = {
                    name: getattr(item, name)
                    for name in ("message_count", "consumer_count")
                    if hasattr(item, name)
                }
                found.append((type(item).__name__, values))
        return found

    def events(self) -> Counter[object]:
        """Deliveries, confirms and cancels since the last call."""
        found: Counter[object] = Counter()
        while self.channel.events:
            item = self.channel.events.popleft()
            if isinstance(item, Message):
                deliver = item.deliver
                queue = deliver.consumer_tag.partition(b"/")[0]
                self.unacked.setdefault(queue, []).append((deliver.delivery_tag, item.body))
                found[queue, item.body, deliver.redelivered] += 1
            elif isinstance(item, BasicAck | BasicNack):
                first = self._upto + 1 if item.multiple else item.delivery_tag
                for number in range(first, item.delivery_tag + 1):
                    self.confirmed.add((number, isinstance(item, BasicAck)))
                if item.multiple:
                    self._upto = item.delivery_tag
            elif isinstance(item, BasicCancel):
                found["cancelled", item.consumer_tag] += 1
            else:
                assert isinstance(item, BasicDeliver), item
        return found


class FarAndNear(RuleBasedStateMachine):
    """The rules are the methods of a client; `near` is at the node of the queues."""

    def __init__(self) -> None:
        super().__init__()
        self.far = Client(True)
        self.near = Client(False)
        self.clients = (self.far, self.near)
        self.bodies = 0
        self.tags: set[bytes] = set()
        for client in self.clients:
            for name, arguments in QUEUES:
                client.channel.declare(name, durable=True, arguments=arguments)
            client.send(ConfirmSelect())
            client.replies()
        self.is_confirming = True

    def both(self, method: Method) -> None:
        for client in self.clients:
            client.send(method)

    def compare(self) -> None:
        """Assert that both clients have got the same since the last call."""
        far, near = (client.replies() for client in self.clients)
        assert far == near
        if any(isinstance(each, tuple) and each[0] == "closed" for each in far):
            self.tags = set()
            self.is_confirming = False
        far_events, near_events = (client.events() for client in self.clients)
        assert far_events == near_events
        assert self.far.confirmed == self.near.confirmed

    @rule(
        name=NAMES, is_persistent=st.booleans(), priority=st.integers(0, 4), count=st.integers(1, 4)
    )
    def publish(self, name: bytes, is_persistent: bool, priority: int, count: int) -> None:
        for _ in range(count):
            self.bodies += 1
            properties = Properties(
                delivery_mode=2 if is_persistent else 1, priority=priority
            ).encode()
            for client in self.clients:
                client.channel.publish(name, b"%d" % self.bodies, properties)
        for client in self.clients:
            client.settle()
        self.compare()

    @rule(name=NAMES, no_ack=st.booleans())
    def get(self, name: bytes, no_ack: bool) -> None:
        self.both(BasicGet(name, no_ack))
        self.compare()

    @precondition(lambda self: len(self.tags) < 4)
    @rule(name=NAMES, no_ack=st.booleans(), exclusive=st.booleans(), priority=st.integers(-1, 1))
    def consume(self, name: bytes, no_ack: bool, exclusive: bool, priority: int) -> None:
        if any(tag.startswith(name + b"/") for tag in self.tags):
            # Who of several consumers gets a message may differ.
            return
        tag = b"%s/%d" % (name, len(self.tags))
        if tag in self.tags:
            return
        self.tags.add(tag)
        arguments = table(x__priority=priority)
        self.both(BasicConsume(name, tag, False, no_ack, exclusive, False, arguments))
        self.compare()

    @precondition(lambda self: len(self.tags) > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)))
        self.tags.remove(tag)
        self.both(BasicCancel(tag))
        self.compare()

    @rule(count=st.integers(0, 3))
    def limit_later_consumers(self, count: int) -> None:
        self.both(BasicQos(0, count, False))
        self.compare()

    @rule(data=st.data(), way=st.sampled_from(["ack", "requeue", "reject"]))
    def settle_one(self, data: st.DataObject, way: str) -> None:
        held = self.far.unacked
        queues = sorted(name for name in held if held[name])
        if not queues:
            return
        name = data.draw(st.sampled_from(queues))
        place = data.draw(st.integers(0, len(held[name]) - 1))
        for client in self.clients:
            # The order of deliveries of different queues may differ, and with it the tags.
            tag, _ = client.unacked[name].pop(place)
            if way == "ack":
                client.send(BasicAck(tag, False))
            else:
                client.send(BasicReject(tag, way == "requeue"))
        self.compare()

    @rule(way=st.sampled_from(["ack", "requeue", "recover"]))
    def settle_all(self, way: str) -> None:
        for client in self.clients:
            client.unacked = {}
        if way == "recover":
            self.both(BasicRecover(True))
        elif way == "ack":
            self.both(BasicAck(0, True))
        else:
            self.both(BasicNack(0, True, True))
        self.compare()

    @rule(name=NAMES)
    def count(self, name: bytes) -> None:
        self.both(QueueDeclare(name, True))
        self.compare()

    @rule(name=NAMES)
    def purge(self, name: bytes) -> None:
        self.both(QueuePurge(name))
        self.compare()

    @rule(name=NAMES, if_empty=st.booleans(), if_unused=st.booleans())
    def delete_and_declare(self, name: bytes, if_empty: bool, if_unused: bool) -> None:
        self.both(QueueDelete(name, if_unused, if_empty))
        arguments = dict(QUEUES)[name]
        for client in self.clients:
            client.unacked.pop(name, None)
        self.compare()
        self.tags = {tag for tag in self.tags if not tag.startswith(name + b"/")}
        self.both(QueueDeclare(name, False, True, False, False, False, arguments))
        self.compare()

    @rule()
    def close_the_channel(self) -> None:
        for client in self.clients:
            client.channel.close()
            client.open()
        self.tags = set()
        self.is_confirming = False
        self.compare()

    @precondition(lambda self: not self.is_confirming)
    @rule()
    def confirm(self) -> None:
        self.both(ConfirmSelect())
        self.is_confirming = True
        self.compare()

    @rule(ms=st.sampled_from([50, 200]))
    def wait(self, ms: int) -> None:
        for client in self.clients:
            client.cluster.advance(ms)
            client.settle()
        self.compare()

    @invariant()
    def nodes_agree_with_themselves(self) -> None:
        for client in self.clients:
            client.cluster.check()

    @invariant()
    def queues_have_the_same(self) -> None:
        far, near = (client.cluster.back.vhost.queues for client in self.clients)
        for name in far:
            assert far[name].ready_count == near[name].ready_count, name
            assert far[name].unacked_count == near[name].unacked_count, name


TestFarAndNear = FarAndNear.TestCase
TestFarAndNear.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_a_refusal_that_nobody_waits_for_is_no_nack_of_a_later_publish() -> None:
    """Random walks meet this rarely: the queue refuses before the channel asks for confirms."""
    walk = FarAndNear()
    walk.close_the_channel()
    walk.publish(b"short", False, 0, 3)
    walk.confirm()
    walk.consume(b"short", False, False, 0)
    walk.publish(b"short", False, 0, 1)
    assert walk.far.confirmed == {(1, True)}
