"""Confirms and transactions of publishers on the queue's node and on another one."""

import pytest

from tests.cluster.nodes.real_cluster import RealCluster
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer
from warrenmq.wire.methods import (
    BasicAck,
    BasicNack,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

HOME = "n2"
PUBLISHERS = ["n1", "n2"]
NO_ROUTE = 312
DOWN = "home node '{}' of durable queue 'q' in vhost '/' is down or inaccessible"
each_publisher = pytest.mark.parametrize("publisher", PUBLISHERS, ids=["elsewhere", "at home"])


def answers(client: ChannelPeer, upto: int) -> dict[int, type]:
    """What became of each publish up to a number; returns of messages are taken by the caller."""
    found: dict[int, type] = {}
    for answer in client.confirms(upto):
        first = (
            min(set(range(1, upto + 1)) - set(found)) if answer.multiple else answer.delivery_tag
        )
        for tag in range(first, answer.delivery_tag + 1):
            found.setdefault(tag, type(answer))
    return found


@each_publisher
def test_every_publish_is_confirmed_once(cluster: RealCluster, publisher: str) -> None:
    """Persistent and transient, small and large, to queues on all nodes at once."""
    with cluster.clients() as clients, cluster.client(publisher) as client:
        for number, declarer in enumerate(clients):
            declarer.declare(b"q%d" % number, durable=True)
            declarer.bind(b"q%d" % number, b"amq.fanout")
        client.confirm_select()
        for number in range(200):
            body = b"%d " % number * (2000 if number % 20 == 0 else 1)
            properties = PERSISTENT if number % 2 else b"\0\0"
            client.publish(b"q%d" % (number % 3), body, properties)
            client.publish(b"", body, properties, b"amq.fanout", mandatory=True)
        assert set(answers(client, 400).values()) == {BasicAck}
        counts = [client.count(b"q%d" % number) for number in range(3)]
        assert counts == [267, 267, 266]
        for number in range(3):
            bodies = [int(body.split()[0]) for body in client.drain(b"q%d" % number)]
            assert bodies == sorted(bodies), "the publisher's order"
            client.delete(b"q%d" % number)


def test_a_later_confirm_does_not_cover_one_that_waits(cluster: RealCluster) -> None:
    """The home of the first message stands still: those behind it are confirmed without it."""
    with cluster.client("n1") as client, cluster.client(HOME) as other:
        client.declare(b"here", durable=True)
        other.declare(b"q", durable=True)
        client.confirm_select()
        cluster[HOME].freeze()
        try:
            client.publish(b"q", b"first", PERSISTENT)
            for _ in range(20):
                client.publish(b"here", b"m", PERSISTENT)
            waiting = set(range(2, 22))
            while waiting:
                answer = client.event()
                if isinstance(answer, BasicNack):
                    # A home that is silent for too long counts as lost.
                    assert (answer.delivery_tag, answer.multiple) == (1, False)
                    continue
                assert isinstance(answer, BasicAck) and not answer.multiple, answer
                # 1 is not among them.
                waiting.remove(answer.delivery_tag)
        finally:
            cluster[HOME].thaw()
    cluster.await_linked()
    with cluster.client("n1") as client:
        client.delete(b"here")
        client.delete(b"q")


@each_publisher
def test_what_nobody_takes_is_returned_and_confirmed(cluster: RealCluster, publisher: str) -> None:
    with cluster.client(publisher) as client, cluster.client(HOME) as other:
        other.declare(b"q", durable=True)
        client.confirm_select()
        client.publish(b"nobody", b"returned", PERSISTENT, mandatory=True)
        # The return comes before the confirm.
        returned = client.message()
        assert (returned.returned.reply_code, returned.body) == (NO_ROUTE, b"returned")
        client.publish(b"nobody", b"lost", PERSISTENT)
        client.publish(b"q", b"taken", PERSISTENT, mandatory=True)
        assert set(answers(client, 3).values()) == {BasicAck}
        assert client.drain(b"q") == [b"taken"]
        client.delete(b"q")


@each_publisher
def test_a_queue_is_deleted_meanwhile(cluster: RealCluster, publisher: str) -> None:
    """Every publish is answered: taken before the deletion, or without a queue after it."""
    with cluster.client(publisher) as client, cluster.client(HOME) as other:
        other.declare(b"q", durable=True)
        client.confirm_select()
        for number in range(300):
            client.publish(b"q", b"m", PERSISTENT)
            if number == 150:
                other.send(QueueDelete(b"q"))
        assert set(answers(client, 300)) == set(range(1, 301))
        other.reply()
        client.publish(b"q", b"m", PERSISTENT, mandatory=True)
        assert client.message().returned.reply_code == NO_ROUTE


@pytest.mark.kill
def test_a_queue_that_is_down_refuses(cluster: RealCluster) -> None:
    """A publish to it is nacked and never acked; a transaction with it is not complete."""
    with cluster.clients() as (client, home, third):
        home.declare(b"q", durable=True)
        client.declare(b"here", durable=True)
        for queue in (b"q", b"here"):
            client.bind(queue, b"amq.fanout")
        client.confirm_select()
        client.publish(b"q", b"before", PERSISTENT)
        assert answers(client, 1) == {1: BasicAck}
        cluster[HOME].kill()
        text = DOWN.format(cluster[HOME].node)
        eventually(lambda: is_down(third, text), "the queue is down")
        lost = client.peer.channel()
        lost.confirm_select()
        # Down for the third node: the first one may not have noticed, and nacks all the same.
        lost.publish(b"q", b"1", PERSISTENT)
        lost.publish(b"q", b"2", PERSISTENT, mandatory=True)
        lost.publish(b"q", b"3")
        lost.publish(b"", b"4", PERSISTENT, b"amq.fanout")
        lost.publish(b"here", b"5", PERSISTENT)
        found = answers(lost, 5)
        assert [found[number] for number in range(1, 6)] == [BasicNack] * 4 + [BasicAck]
        sent = client.peer.channel()
        assert isinstance(sent.call(TxSelect()), TxSelectOk)
        sent.publish(b"q", b"6", PERSISTENT)
        sent.publish(b"here", b"7", PERSISTENT)
        sent.refused(TxCommit(), 406, "partial tx completion")
        cluster[HOME].start()
        cluster.await_linked()
        back = client.peer.channel()
        assert back.drain(b"q") == [b"before"]
        assert back.drain(b"here") == [b"4", b"5", b"7"]
        for queue in (b"q", b"here"):
            back.delete(queue)


def is_down(client: ChannelPeer, text: str) -> bool:
    """Whether a passive declaration of `q` says so."""
    channel = client.peer.channel()
    channel.send(QueueDeclare(b"q", True))
    try:
        channel.reply()
    except ChannelClosedError:
        close = channel.await_close()
        assert close.reply_text.decode().endswith(text), close
        return True
    channel.close()
    return False


@each_publisher
def test_a_transaction_comes_whole_or_not(cluster: RealCluster, publisher: str) -> None:
    """It has queues of two nodes."""
    with cluster.client(publisher) as client, cluster.client(HOME) as home:
        home.declare(b"q", durable=True)
        client.declare(b"here", durable=True)
        assert isinstance(client.call(TxSelect()), TxSelectOk)
        for number in range(3):
            for queue in (b"q", b"here"):
                client.publish(queue, b"%d" % number, PERSISTENT)
            assert home.count(b"q") == (0 if number == 0 else 1)
            method, reply = (
                (TxRollback(), TxRollbackOk) if number == 1 else (TxCommit(), TxCommitOk)
            )
            assert isinstance(client.call(method), reply)
        for queue in (b"q", b"here"):
            assert home.drain(queue) == [b"0", b"2"]
            home.delete(queue)


@each_publisher
def test_a_full_queue_refuses(cluster: RealCluster, publisher: str) -> None:
    """With room for one message the first is confirmed, and all others are nacked."""
    arguments = table(**{"x-max-length": 1, "x-overflow": "reject-publish"})
    with cluster.client(publisher) as client, cluster.client(HOME) as home:
        home.declare(b"q", durable=True, arguments=arguments)
        client.confirm_select()
        for number in range(50):
            client.publish(b"q", b"%d" % number, PERSISTENT)
        found = answers(client, 50)
        assert [found[number] for number in range(1, 51)] == [BasicAck] + [BasicNack] * 49
        assert client.drain(b"q") == [b"0"]
        client.delete(b"q")
