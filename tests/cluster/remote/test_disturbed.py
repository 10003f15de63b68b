"""Publishers and consumers of another node while the link is slow and goes down again and again.

Rules of the checker hold (`simulator/checker/`): what is confirmed is delivered or still there
(C1), nothing comes that was not sent (C2), no message comes twice without its mark (C5), and an ack
that a successful call followed is final (C6).
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.remote.conftest import far, near, read_arrived
from tests.cluster.remote.two_nodes import TwoNodes
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.memory_broker import EngineLink
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicNack,
    BasicQos,
    QueueDeclare,
    QueueDeclareOk,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.sampled_from([0, 5, 10, 25])),
        st.tuples(st.just("ack"), st.integers(0, 1)),
        st.tuples(st.just("return"), st.integers(0, 1)),
        st.tuples(st.just("sync"), st.integers(0, 1)),
        st.tuples(st.just("stick"), st.integers(0, 1)),
        st.tuples(st.just("cut"), st.just(0)),
    ),
    max_size=40,
)


class Consumer:
    """A channel that consumes the queue `q`, and what it has got."""

    def __init__(self, channel: ChannelPeer, prefetch: int, shared: bool) -> None:
        self.channel = channel
        self.delivered: Counter[tuple[bytes, bool]] = Counter()
        self.unacked: list[tuple[int, bytes]] = []
        # Bodies of messages that were acked, and those of them whose ack a call followed.
        self.acked: list[bytes] = []
        self.final: set[bytes] = set()
        self._is_asking = False
        channel.send(BasicQos(0, prefetch, shared))
        self.consume()

    def consume(self) -> None:
        self.channel.send(BasicConsume(b"q", b"c"))

    def read(self) -> None:
        """Take what has come, without a wait."""
        read_arrived(self.channel.peer)
        while self.channel.events:
            item = self.channel.events.popleft()
            if isinstance(item, Message):
                assert item.body not in self.final, "C6"
                self.delivered[item.body, item.deliver.redelivered] += 1
                self.unacked.append((item.deliver.delivery_tag, item.body))
            else:
                assert isinstance(item, BasicCancel)
        while self.channel.replies:
            item = self.channel.replies.popleft()
            if isinstance(item, QueueDeclareOk):
                self.final.update(self.acked)
                self._is_asking = False

    def settle(self, is_ack: bool) -> None:
        for tag, body in self.unacked:
            if is_ack:
                self.channel.ack(tag)
                self.acked.append(body)
            else:
                self.channel.nack(tag)
        self.unacked = []

    def sync(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self.channel.send(QueueDeclare(b"q", True))

    def stick(self) -> None:
        """Let the socket take nothing, or everything again."""
        link = self.channel.peer.link
        assert isinstance(link, EngineLink) and link.connection is not None
        connection = link.connection
        connection.is_writable = not connection.is_writable
        if connection.is_writable:
            connection.on_written(link.memory.now_ms)


@pytest.mark.parametrize("shared", [False, True], ids=["windows", "asking"])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS, prefetch=st.integers(1, 3), delay_ms=st.sampled_from([0, 10]))
def test_rules_hold(
    shared: bool, steps: list[tuple[str, int]], prefetch: int, delay_ms: int
) -> None:
    cluster = TwoNodes()
    publisher = far(cluster)
    publisher.declare(b"q", durable=True)
    publisher.confirm_select()
    cluster.delay_ms = delay_ms
    consumers = [Consumer(far(cluster), prefetch, shared), Consumer(near(cluster), 1, False)]
    sent: list[bytes] = []
    confirmed: set[int] = set()
    undecided: set[int] = set()

    def read() -> None:
        for consumer in consumers:
            consumer.read()
        read_arrived(publisher.peer)
        while publisher.events:
            item = publisher.events.popleft()
            assert isinstance(item, BasicAck | BasicNack)
            tag = item.delivery_tag
            decided = {one for one in undecided if one == tag or (item.multiple and one < tag)}
            undecided.difference_update(decided)
            if isinstance(item, BasicAck):
                confirmed.update(decided)

    for kind, number in steps:
        if kind == "publish":
            for _ in range(number):
                sent.append(b"%d" % (len(sent) + 1))
                undecided.add(len(sent))
                publisher.publish(b"q", sent[-1], PERSISTENT)
        elif kind == "wait":
            cluster.advance(number)
        elif kind == "sync":
            consumers[number].sync()
        elif kind == "stick":
            consumers[number].stick()
        elif kind == "cut":
            cluster.cut()
            cluster.advance(0)
            read()
            # The consumer of the other node may have been refused, or its call.
            consumers[0] = replaced(cluster, consumers[0], prefetch, shared)
        else:
            consumers[number].settle(kind == "ack")
        read()
        cluster.check()
    cluster.cut()
    read()
    found = Counter(near(cluster).drain(b"q"))
    delivered: Counter[tuple[bytes, bool]] = Counter()
    for consumer in consumers:
        delivered += consumer.delivered
        assert not consumer.final & found.keys(), "C6"
    bodies = {body for body, _ in delivered} | found.keys()
    assert bodies <= set(sent), "C2"
    assert {sent[number - 1] for number in confirmed} <= bodies, "C1"
    assert all(count == 1 for (_, redelivered), count in delivered.items() if not redelivered), "C5"
    assert all(count == 1 for count in found.values()), "C5"


def replaced(cluster: TwoNodes, before: Consumer, prefetch: int, shared: bool) -> Consumer:
    """A consumer on a new connection, over a new link, that goes on for `before`."""
    before.channel.peer.drop()
    cluster.join()
    after = Consumer(far(cluster), prefetch, shared)
    after.delivered, after.final = before.delivered, before.final
    return after
