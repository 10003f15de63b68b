"""What the ticks tell, one answer after another, adds up to the listings, whatever happens.

Clients act on a broker in memory between two answers, so objects come, go and change in the midst
of a tick.
"""

from collections.abc import Callable
from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.admin.changes.node_walk import NodeWalk
from warrenmq.admin.changes.tick import OBJECTS_MAX, Ticks
from warrenmq.admin.changes.walk import Walk
from warrenmq.admin.changes.walks import ChannelWalk, ConnectionWalk, ExchangeWalk, QueueWalk
from warrenmq.admin.listings.listing import listing
from warrenmq.admin.protocol.changes import (
    CHANNEL,
    CONNECTION,
    COUNTERS,
    EXCHANGE,
    LEVELS,
    NODE,
    QUEUE,
    ChangedObject,
    Changes,
)
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.wire.methods import (
    BasicGet,
    ExchangeDelete,
    ExchangeDeleteOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

STARTED_MS = 1000
WALKS: dict[str, Callable[[Broker], Walk]] = {
    NODE: lambda broker: NodeWalk(broker, 20, 10),
    QUEUE: QueueWalk,
    EXCHANGE: ExchangeWalk,
    CHANNEL: ChannelWalk,
    CONNECTION: ConnectionWalk,
}
Listed = Literal["queues", "exchanges", "channels", "connections"]
# The listing of each kind, with its columns that the feed has too.
LISTINGS: dict[str, tuple[Listed, tuple[str, ...]]] = {
    QUEUE: ("queues", LEVELS[QUEUE][:5]),
    EXCHANGE: ("exchanges", ()),
    CHANNEL: ("channels", LEVELS[CHANNEL]),
    CONNECTION: ("connections", (*COUNTERS[CONNECTION], *LEVELS[CONNECTION])),
}
NAMES = st.sampled_from([b"a", b"b", b"c"])
NUMBERS = st.integers(0, 50)


class Reader:
    """A session that asks for one kind, and what it was told in all."""

    def __init__(self, broker: Broker, kind: str, objects_max: int = OBJECTS_MAX) -> None:
        self.kind = kind
        self.objects_max = objects_max
        self.objects: dict[int, ChangedObject] = {}
        self.ever: dict[int, tuple[str, str]] = {}
        self.has_more = False
        self._ticks = Ticks(kind, lambda: WALKS[kind](broker), objects_max)

    def ask(self) -> Changes:
        """Take one answer."""
        answer = self._ticks.answer(STARTED_MS, 2000)
        assert len(answer.changed) + len(answer.gone) <= self.objects_max
        for each in answer.changed:
            assert len(each.counters) == len(COUNTERS[self.kind])
            assert len(each.levels) == len(LEVELS[self.kind])
            before = self.objects.get(each.id)
            if before is not None:
                pairs = zip(before.counters, each.counters, strict=True)
                assert all(old <= new for old, new in pairs)
            # No id is that of another object.
            assert self.ever.setdefault(each.id, (each.vhost, each.name)) == (each.vhost, each.name)
            self.objects[each.id] = each
        for gone in answer.gone:
            del self.objects[gone]
        self.has_more = answer.has_more
        return answer

    def tick(self) -> list[Changes]:
        """End the current tick, then take a whole one."""
        if self.has_more:
            self._rest()
        return self._rest()

    def _rest(self) -> list[Changes]:
        answers = [self.ask()]
        while answers[-1].has_more:
            answers.append(self.ask())
        return answers

    def figures(self) -> list[dict[str, Any]]:
        """All figures by name, of one object after another."""
        names = [*COUNTERS[self.kind], *LEVELS[self.kind]]
        return [
            {"name": each.name, **dict(zip(names, [*each.counters, *each.levels], strict=True))}
            for each in self.objects.values()
        ]


class FeedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryBroker()
        self.peers: list[Peer] = []
        self.channels: list[ChannelPeer] = []
        self.transactional: set[ChannelPeer] = set()
        # Small answers, so that a tick takes several.
        self.readers = [Reader(self.memory.broker, kind, 3) for kind in WALKS]
        self.connect()
        self.open_channel(0)
        for name in (b"a", b"b"):
            self.channels[0].declare(name)
            self.publish(0, name, 3)

    # -- what clients do ---------------------------------------------------------------------------

    @rule()
    def connect(self) -> None:
        self.peers.append(Peer(self.memory.connect()).open())

    @rule(number=NUMBERS)
    def disconnect(self, number: int) -> None:
        if len(self.peers) > 1:
            peer = self.peers.pop(number % len(self.peers))
            self.channels = [each for each in self.channels if each.peer is not peer]
            peer.drop()

    @rule(number=NUMBERS)
    def open_channel(self, number: int) -> None:
        self.channels.append(self.peers[number % len(self.peers)].channel())

    def channel(self, number: int) -> ChannelPeer:
        if not self.channels:
            self.open_channel(number)
        return self.channels[number % len(self.channels)]

    @rule(number=NUMBERS)
    def close_channel(self, number: int) -> None:
        channel = self.channel(number)
        self.channels.remove(channel)
        channel.close()

    @rule(number=NUMBERS, name=NAMES, highest=st.sampled_from([b"", b"\x0ex-max-priorityb\x05"]))
    def declare(self, number: int, name: bytes, highest: bytes) -> None:
        if name not in self.memory.vhost.queues:
            self.channel(number).declare(name, arguments=highest)

    @rule(number=NUMBERS, name=NAMES)
    def delete(self, number: int, name: bytes) -> None:
        self.channel(number).delete(name)

    @rule(number=NUMBERS, name=NAMES)
    def declare_exchange(self, number: int, name: bytes) -> None:
        self.channel(number).exchange(name, b"fanout")

    @rule(number=NUMBERS, name=NAMES)
    def delete_exchange(self, number: int, name: bytes) -> None:
        assert isinstance(self.channel(number).call(ExchangeDelete(name)), ExchangeDeleteOk)

    @rule(number=NUMBERS, name=NAMES, count=st.integers(1, 4))
    def publish(self, number: int, name: bytes, count: int) -> None:
        for _ in range(count):
            self.channel(number).publish(name, b"body")

    @rule(number=NUMBERS, name=NAMES, no_ack=st.booleans())
    def get(self, number: int, name: bytes, no_ack: bool) -> None:
        if name in self.memory.vhost.queues:
            channel = self.channel(number)
            channel.send(BasicGet(name, no_ack))
            channel.reply()

    @rule(number=NUMBERS, name=NAMES, no_ack=st.booleans())
    def consume(self, number: int, name: bytes, no_ack: bool) -> None:
        if name in self.memory.vhost.queues:
            self.channel(number).consume(name, no_ack=no_ack)

    @rule(number=NUMBERS, requeue=st.booleans(), acks=st.booleans())
    def settle(self, number: int, requeue: bool, acks: bool) -> None:
        channel = self.channel(number)
        if acks:
            channel.ack(0, multiple=True)
        else:
            channel.nack(0, multiple=True, requeue=requeue)

    @rule(number=NUMBERS, commits=st.booleans())
    def end_transaction(self, number: int, commits: bool) -> None:
        channel = self.channel(number)
        if channel not in self.transactional:
            self.transactional.add(channel)
            assert isinstance(channel.call(TxSelect()), TxSelectOk)
        elif commits:
            assert isinstance(channel.call(TxCommit()), TxCommitOk)
        else:
            assert isinstance(channel.call(TxRollback()), TxRollbackOk)

    # -- what is told ------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def ask(self, number: int) -> None:
        self.readers[number % len(self.readers)].ask()

    @rule()
    def compare(self) -> None:
        self.memory.pump()
        by_kind = {}
        for reader in self.readers:
            reader.tick()
            by_kind[reader.kind] = reader.figures()
        for kind, (what, names) in LISTINGS.items():
            columns = ["name", *names]
            rows = listing(self.memory.broker, List(what=what, columns=columns, vhost="/"))
            told = [[each[name] for name in columns] for each in by_kind[kind]]
            assert sorted(told) == sorted(rows)
        (node,) = by_kind[NODE]
        assert node["connections"] == len(by_kind[CONNECTION])
        assert node["channels"] == len(by_kind[CHANNEL])
        if not node["channel_closed"]:
            for name in COUNTERS[CHANNEL]:
                assert node[name] == sum(each[name] for each in by_kind[CHANNEL])

    def teardown(self) -> None:
        self.compare()
        # Nothing changes any more, so nothing is told.
        for reader in self.readers:
            (*_, last) = reader.tick()
            assert (last.changed, last.gone) == ([], [])


TestFeed = FeedMachine.TestCase
TestFeed.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def node_figures(memory: MemoryBroker) -> dict[str, Any]:
    """What a new session is told of the node."""
    reader = Reader(memory.broker, NODE)
    reader.ask()
    (figures,) = reader.figures()
    return figures


def test_disk_writes_outlive_the_vhost_and_channels_their_end() -> None:
    memory = MemoryBroker()
    peer = Peer(memory.connect()).open()
    channel = peer.channel()
    channel.declare(b"q", durable=True)
    for _ in range(3):
        channel.publish(b"q", properties=Properties(delivery_mode=2).encode())
    memory.pump()
    open_ones = node_figures(memory)
    assert (open_ones["publish"], open_ones["disk_writes"], open_ones["disk_reads"]) == (3, 3, 0)
    peer.drop()
    memory.broker.remove_vhost(memory.vhost)
    closed = node_figures(memory)
    assert (closed["publish"], closed["disk_writes"], closed["channel_closed"]) == (3, 3, 1)
    assert closed["recv_oct"] >= open_ones["recv_oct"] > 0
    for name in ("published_bytes", "journal_bytes"):
        assert closed[name] >= open_ones[name] > 0


def test_a_delayed_message_counts_for_its_queue_when_it_is_due() -> None:
    memory = MemoryBroker()
    channel = Peer(memory.connect()).open().channel()
    channel.declare(b"q")
    arguments = table(x__delayed__type="fanout")
    channel.exchange(b"late", b"x-delayed-message", arguments=arguments)
    channel.bind(b"q", b"late")
    delay = Properties(headers=table(x__delay=1000)).encode()
    channel.publish(b"", b"body", delay, exchange=b"late")

    def publishes() -> tuple[int, int, int]:
        (queue,) = _told(memory.broker, QUEUE, "q")
        (exchange,) = _told(memory.broker, EXCHANGE, "late")
        return queue["publish"], exchange["publish_in"], exchange["publish_out"]

    assert publishes() == (0, 1, 0)
    memory.advance(2000)
    assert publishes() == (1, 1, 1)


def _told(broker: Broker, kind: str, name: str) -> list[dict[str, Any]]:
    reader = Reader(broker, kind)
    reader.tick()
    return [each for each in reader.figures() if each["name"] == name]


def test_an_answer_looks_at_a_thousand_objects() -> None:
    memory = MemoryBroker()
    channel = Peer(memory.connect()).open().channel()
    for number in range(OBJECTS_MAX + 5):
        channel.declare(b"q%d" % number)
    reader = Reader(memory.broker, QUEUE)
    assert [len(answer.changed) for answer in reader.tick()] == [OBJECTS_MAX, 5]
    channel.publish(b"q2")
    assert [len(answer.changed) for answer in reader.tick()] == [1, 0]
    for number in range(OBJECTS_MAX + 5):
        channel.delete(b"q%d" % number)
    assert [len(answer.gone) for answer in reader.tick()] == [OBJECTS_MAX, 5]
    assert reader.objects == {}
