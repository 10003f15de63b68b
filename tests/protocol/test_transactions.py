"""tx.select, commit, rollback (protocol section 6, P25)."""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicGet,
    BasicPublish,
    ExchangeDelete,
    QueueUnbind,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties


def selected(amqp: Amqp, durable: bool = False) -> tuple[ChannelPeer, bytes]:
    """A transactional channel and a queue."""
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=durable).queue
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    return channel, queue


def commit(channel: ChannelPeer) -> None:
    channel.send(TxCommit())
    channel.expect(TxCommitOk)


def rollback(channel: ChannelPeer) -> None:
    channel.send(TxRollback())
    channel.expect(TxRollbackOk)


@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_not_without_select(amqp: Amqp, method: Method) -> None:
    amqp.channel().refused(method, 406, "channel is not transactional")


def test_not_in_confirm_mode(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    channel.refused(TxSelect(), 406, "cannot switch from confirm to tx mode")


def test_select_may_be_repeated(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"x")
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    commit(channel)
    assert channel.drain(queue) == [b"x"]


def test_empty_commit_and_rollback(amqp: Amqp) -> None:
    channel, _ = selected(amqp)
    commit(channel)
    rollback(channel)


@pytest.mark.parametrize("durable", [False, True])
def test_publishes_become_visible_at_commit(amqp: Amqp, durable: bool) -> None:
    channel, queue = selected(amqp, durable)
    for body in (b"1", b"2"):
        channel.publish(queue, body, PERSISTENT)
    other = amqp.channel()
    assert other.count(queue) == 0
    commit(channel)
    channel.publish(queue, b"3", PERSISTENT)
    assert other.drain(queue) == [b"1", b"2"]
    commit(channel)
    assert other.drain(queue) == [b"3"]
    other.delete(queue)


def test_rollback_drops_publishes(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"x")
    rollback(channel)
    commit(channel)
    assert channel.is_empty(queue)


def test_routing_happens_at_publish(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    channel.publish(b"", b"too early", exchange=exchange)
    channel.bind(queue, exchange)
    commit(channel)
    assert channel.is_empty(queue)


def test_checks_happen_at_publish(amqp: Amqp) -> None:
    channel, _ = selected(amqp)
    missing = amqp.name("x")
    channel.publish(b"k", exchange=missing)
    channel.closed_with(404, f"no exchange '{missing.decode()}' in vhost '/'", BasicPublish())


def returned_at_commit(channel: ChannelPeer) -> list[bytes]:
    """Commit; returns the bodies of the returned messages, all of which precede the commit-ok."""
    channel.log.clear()
    commit(channel)
    bodies = []
    while channel.events:
        message = channel.message()
        assert message.returned.reply_code == 312
        bodies.append(message.body)
    assert all(isinstance(item, Message) for item in channel.log[: len(bodies)])
    return bodies


def test_a_queue_deleted_before_the_commit(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"dropped")
    channel.publish(queue, b"returned", mandatory=True)
    channel.delete(queue)
    assert returned_at_commit(channel) == [b"returned"]


def test_a_queue_of_the_same_name_gets_what_was_routed_to_it(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    other = channel.declare(amqp.name()).queue
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    for name in (queue, other):
        channel.bind(name, exchange)
    channel.publish(queue, b"1", mandatory=True)
    channel.publish(b"", b"2", exchange=exchange, mandatory=True)
    channel.delete(queue)
    channel.declare(queue)
    assert returned_at_commit(channel) == []
    assert (channel.drain(queue), channel.drain(other)) == ([b"1", b"2"], [b"2"])


def test_the_default_exchange_finds_a_queue_that_is_declared_before_the_commit(amqp: Amqp) -> None:
    channel, _ = selected(amqp)
    late = [amqp.name(), amqp.name()]
    copied = Properties(headers=table(CC=[late[1].decode()])).encode()
    channel.publish(late[0], b"x", copied, mandatory=True)
    for name in late:
        channel.declare(name)
    assert returned_at_commit(channel) == []
    assert [channel.drain(name) for name in late] == [[b"x"], [b"x"]]


def test_bindings_and_exchanges_that_go_before_the_commit_have_routed(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    channel.bind(queue, exchange)
    channel.publish(b"", b"1", exchange=exchange, mandatory=True)
    channel.call(QueueUnbind(queue, exchange))
    channel.publish(b"", b"2", exchange=exchange, mandatory=True)
    channel.bind(queue, exchange)
    channel.publish(b"", b"3", exchange=exchange, mandatory=True)
    channel.call(ExchangeDelete(exchange))
    assert returned_at_commit(channel) == [b"2"]
    assert channel.drain(queue) == [b"1", b"3"]


def test_a_direct_reply_is_delivered_at_once_and_returned_at_the_commit(amqp: Amqp) -> None:
    requester = amqp.channel()
    requester.consume(b"amq.rabbitmq.reply-to", no_ack=True)
    channel, queue = selected(amqp)
    requester.publish(queue, b"question", Properties(reply_to=b"amq.rabbitmq.reply-to").encode())
    observer = amqp.channel()
    amqp.eventually(lambda: observer.count(queue) == 1)
    reply_to = channel.get(queue, no_ack=True).properties.reply_to
    assert reply_to is not None
    channel.publish(reply_to, b"answer", mandatory=True)
    assert requester.bodies(1) == [b"answer"]
    channel.quiet()
    assert returned_at_commit(channel) == [b"answer"]


def test_mandatory_is_returned_at_commit(amqp: Amqp) -> None:
    channel, _ = selected(amqp)
    channel.publish(amqp.name(), b"x", mandatory=True)
    channel.quiet()
    channel.log.clear()
    commit(channel)
    message = channel.message()
    assert (message.returned.reply_code, message.body) == (312, b"x")
    assert isinstance(channel.log[0], Message), "the return comes before commit-ok"


def test_acks_take_effect_at_commit(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"1")
    channel.publish(queue, b"2")
    commit(channel)
    tags = [channel.get(queue).got.delivery_tag for _ in range(2)]
    channel.ack(tags[0])
    commit(channel)
    channel.ack(tags[1])
    channel.quiet()
    # An uncommitted ack does not count when the channel ends.
    channel.close()
    assert amqp.channel().drain(queue) == [b"2"]


def test_an_acked_tag_is_not_outstanding_before_the_commit(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"1")
    commit(channel)
    channel.get(queue)
    channel.ack(1)
    channel.refused(BasicAck(1), 406, "unknown delivery tag 1")


def test_rollback_makes_acks_undone_without_redelivery(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    for body in (b"1", b"2", b"3"):
        channel.publish(queue, body)
    commit(channel)
    channel.consume(queue)
    channel.bodies(3)
    channel.ack(1)
    channel.nack(2)
    channel.reject(3, requeue=False)
    rollback(channel)
    channel.quiet()
    channel.ack(3, multiple=True)
    commit(channel)
    channel.close()
    assert amqp.channel().is_empty(queue)


def test_prefetch_room_comes_back_at_commit(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    for body in (b"1", b"2"):
        channel.publish(queue, body)
    commit(channel)
    channel.qos(1)
    channel.consume(queue)
    assert channel.bodies(1) == [b"1"]
    channel.ack(1)
    channel.quiet()
    commit(channel)
    assert channel.bodies(1) == [b"2"]


def test_publishes_first_then_acks(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"1")
    commit(channel)
    channel.get(queue)
    channel.nack(1)
    channel.publish(queue, b"2")
    commit(channel)
    assert channel.drain(queue) == [b"1", b"2"]


def test_channel_close_is_a_rollback(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    channel.publish(queue, b"gone")
    channel.close()
    assert amqp.channel().is_empty(queue)


def test_get_and_declare_are_not_transactional(amqp: Amqp) -> None:
    channel, queue = selected(amqp)
    amqp.channel().publish(queue, b"x")
    observer = amqp.channel()
    amqp.eventually(lambda: observer.count(queue) == 1)
    assert channel.get(queue, no_ack=True).body == b"x"
    rollback(channel)
    assert channel.is_empty(queue)


def test_commit_waits_for_the_disk(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel, queue = selected(amqp, durable=True)
    engine.holds_commits = True
    channel.publish(queue, b"x", PERSISTENT)
    channel.send(TxCommit())
    assert not channel.peer.read(0.1)
    engine.holds_commits = False
    engine.pump()
    channel.expect(TxCommitOk)


def test_methods_behind_a_commit_wait_for_it(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel, queue = selected(amqp, durable=True)
    engine.holds_commits = True
    channel.publish(queue, b"1", PERSISTENT)
    channel.send(TxCommit())
    channel.publish(queue, b"2", PERSISTENT)
    channel.send(TxRollback())
    engine.holds_commits = False
    engine.pump()
    channel.expect(TxCommitOk)
    channel.expect(TxRollbackOk)
    assert channel.drain(queue) == [b"1"]


def test_methods_behind_a_commit_are_handled_at_the_time_it_is_done(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel, queue = selected(amqp, durable=True)
    amqp.channel().publish(queue, b"short-lived", Properties(expiration=b"100").encode())
    engine.holds_commits = True
    channel.publish(queue, b"x", PERSISTENT)
    channel.send(TxCommit())
    channel.send(BasicGet(queue, True))
    engine.now_ms += 1000
    engine.holds_commits = False
    engine.pump()
    channel.expect(TxCommitOk)
    got = channel.reply()
    assert isinstance(got, Message) and got.body == b"x"


def test_a_failed_commit_is_told(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel, queue = selected(amqp, durable=True)
    channel.publish(queue, b"x", PERSISTENT)
    engine.failing_commits = 1
    channel.send(TxCommit())
    assert channel.peer.await_close().reply_code == 506
