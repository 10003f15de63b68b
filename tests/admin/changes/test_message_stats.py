"""The counters of queues, exchanges and channels are those of RabbitMQ's `message_stats`.

The same clients use both brokers. What is expected is what RabbitMQ counts.
"""

import copy
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.node_thread import NodeThread
from tests.support.rabbitmq.http_api import ADMINISTRATOR, rabbitmq_api
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.changes import (
    CHANNEL,
    COUNTERS,
    EXCHANGE,
    QUEUE,
    Changes,
    ReadChanges,
)
from warrenmq.wire.methods import (
    BasicRecover,
    BasicRecoverOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

# By kind and name the counters that are not 0.
Stats = dict[str, dict[str, dict[str, int]]]
EXPECTED: Stats = {
    QUEUE: {
        "a": {"publish": 5, "deliver": 6, "get": 3, "get_no_ack": 1, "redeliver": 5, "ack": 4},
        "b": {"publish": 2, "deliver_no_ack": 2},
        "full": {"publish": 2},
        "empty": {"get_empty": 1},
        "dying": {"publish": 1, "get": 1},
        "dead": {"deliver": 1, "ack": 1},
        "tx": {"publish": 2, "get": 2, "ack": 1},
    },
    EXCHANGE: {
        "": {"publish_in": 10, "publish_out": 8},
        "fan": {"publish_in": 1, "publish_out": 2},
        "outer": {"publish_in": 2, "publish_out": 2},
    },
    CHANNEL: {
        "1": {"publish": 8, "confirm": 7, "drop_unroutable": 1},
        "2": {"publish": 1, "return_unroutable": 1},
        "3": {"get": 3, "get_no_ack": 1, "get_empty": 1, "redeliver": 1, "ack": 2},
        "4": {"deliver": 6, "redeliver": 4, "ack": 2},
        "5": {"deliver_no_ack": 2},
        "6": {"publish": 1, "deliver": 1, "get": 1, "ack": 1},
        "7": {"publish": 3, "drop_unroutable": 1, "get": 2, "ack": 1},
    },
}


def publish(peer: Peer) -> None:
    """Channel 1: publish in confirm mode to queues, to none, and to a full one."""
    channel = peer.channel(1)
    channel.declare(b"a")
    channel.declare(b"b")
    channel.declare(b"full", arguments=table(x__max__length=1, x__overflow="reject-publish"))
    channel.exchange(b"fan", b"fanout")
    channel.exchange(b"outer", b"direct")
    for queue in (b"a", b"b"):
        channel.bind(queue, b"fan")
    channel.bind_exchange(b"fan", b"outer", b"key")
    channel.confirm_select()
    channel.publish(b"", b"1", exchange=b"fan")
    channel.publish(b"key", b"2", exchange=b"outer")
    channel.publish(b"other", b"3", exchange=b"outer")
    channel.publish_each(b"a", b"4", b"5", b"6")
    channel.publish_each(b"full", b"7")
    channel.confirms(7)
    channel.publish_each(b"full", b"8")
    channel.event()
    returning = peer.channel(2)
    returning.publish(b"nowhere", b"9", mandatory=True)
    returning.message()


def get(peer: Peer) -> None:
    """Channel 3: take by basic.get, with and without ack, again, and nothing."""
    channel = peer.channel(3)
    channel.get(b"a", no_ack=True)
    channel.ack(channel.get(b"a").got.delivery_tag)
    channel.reject(channel.get(b"a").got.delivery_tag)
    again = channel.get(b"a")
    assert again.got.redelivered
    channel.ack(again.got.delivery_tag)
    channel.declare(b"empty")
    assert channel.is_empty(b"empty")


def consume(peer: Peer) -> None:
    """Channels 4 and 5: take by basic.consume; requeue, ack several at once, and no-ack."""
    channel = peer.channel(4)
    channel.consume(b"a", b"tag")
    channel.bodies(2)
    channel.nack(0, multiple=True)
    last = [channel.message() for _ in range(2)][-1]
    assert last.deliver.redelivered
    channel.send(BasicRecover(True))
    last = [channel.message() for _ in range(2)][-1]
    channel.expect(BasicRecoverOk)
    channel.ack(last.deliver.delivery_tag, multiple=True)
    no_ack = peer.channel(5)
    no_ack.consume(b"b", no_ack=True)
    no_ack.bodies(2)


def dead_letter(peer: Peer) -> None:
    """Channel 6: reject a message, which becomes a dead letter, and take that."""
    channel = peer.channel(6)
    arguments = table(x__dead__letter__exchange="", x__dead__letter__routing__key="dead")
    channel.declare(b"dying", arguments=arguments)
    channel.declare(b"dead")
    channel.consume(b"dead", b"tag")
    channel.publish(b"dying", b"10")
    channel.reject(channel.get(b"dying").got.delivery_tag, requeue=False)
    channel.ack(channel.message().deliver.delivery_tag)


def commit(peer: Peer) -> None:
    """Channel 7: publish and ack in a transaction that is committed, and in one that is not."""
    channel = peer.channel(7)
    channel.declare(b"tx")
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    channel.publish_each(b"tx", b"11", b"12")
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    first, second = channel.get(b"tx"), channel.get(b"tx")
    channel.ack(first.got.delivery_tag)
    channel.publish(b"nowhere", b"13")
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    channel.ack(second.got.delivery_tag)
    channel.publish(b"tx", b"14")
    channel.send(TxRollback())
    channel.expect(TxRollbackOk)


def use(peer: Peer) -> None:
    """All of it."""
    for step in (publish, get, consume, dead_letter, commit):
        step(peer)


def counted(kind: str, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, int]]:
    """The counters of `kind` that are not 0, by name; objects without any are left out."""
    found = {}
    for name, stats in rows:
        counters = {key: stats[key] for key in COUNTERS[kind] if stats.get(key)}
        if counters:
            found[name] = counters
    return found


def told_by(client: AdminClient) -> Stats:
    """What the node tells a session in its first tick."""
    stats = {}
    for kind in (QUEUE, EXCHANGE, CHANNEL):
        answer = client.request(ReadChanges(kind), Changes)
        rows = [
            (
                each.name.rpartition("(")[2].removesuffix(")"),
                dict(zip(COUNTERS[kind], each.counters, strict=True)),
            )
            for each in answer.changed
        ]
        stats[kind] = counted(kind, rows)
    return stats


def shown_by(address: str) -> Stats:
    """What RabbitMQ's API shows at this moment."""
    stats = {}
    for kind, path in ((QUEUE, "queues"), (EXCHANGE, "exchanges"), (CHANNEL, "channels")):
        found = httpx.get(address + path, auth=ADMINISTRATOR).json()
        rows = [
            (each["name"].rpartition("(")[2].removesuffix(")"), each.get("message_stats") or {})
            for each in found
        ]
        stats[kind] = counted(kind, rows)
    return stats


def test_the_counters_are_as_expected(tmp_path: Path) -> None:
    node = NodeThread(tmp_path)
    peer = node.peer().open()
    use(peer)
    with AdminClient(NodeAddress(node.uri)) as client:
        assert told_by(client) == EXPECTED
    peer.close()
    node.stop()


@pytest.mark.slow
def test_rabbitmq_counts_the_same(tmp_path: Path) -> None:
    # RabbitMQ counts queues that the default exchange routes to although they do not exist: the one
    # that messages 9 and 13 name.
    to_none = 2
    expected = copy.deepcopy(EXPECTED)
    expected[EXCHANGE][""]["publish_out"] += to_none
    with rabbitmq_api(tmp_path, settings=("collect_statistics_interval = 200",)) as rabbitmq:
        peer = Peer(SocketLink("127.0.0.1", rabbitmq.broker.port), is_foreign=True).open()
        use(peer)
        eventually(lambda: shown_by(rabbitmq.address) == expected, "RabbitMQ counts the same")
        peer.close()
