"""A queue whose master moves: consumers go along, and no ack settles another message."""

from collections.abc import Callable

import pytest

from tests.cluster.remote.three_nodes import THIRD, ThreeNodes, channel_at, left, mirrored
from tests.cluster.remote.two_nodes import BACK, FRONT
from tests.support.brokers.amqp_peer import Message
from warrenmq.queues.remote.queue import REFUSALS_MAX
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import (
    BasicCancel,
    BasicConsume,
    BasicRecover,
    BasicRecoverOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

Move = Callable[[ThreeNodes], None]
MOVES = pytest.mark.parametrize(
    "move", [ThreeNodes.fail_over, ThreeNodes.hand_over], ids=["lost", "handed over"]
)
# Moves with the nodes whose clients outlive them.
PLACES = pytest.mark.parametrize(
    ("move", "node"),
    [
        (ThreeNodes.fail_over, FRONT),
        (ThreeNodes.fail_over, THIRD),
        (ThreeNodes.hand_over, FRONT),
        (ThreeNodes.hand_over, BACK),
        (ThreeNodes.hand_over, THIRD),
    ],
)
CANCELS = encode_table(fields_from_python({"x-cancel-on-ha-failover": True}))
SINGLE_ACTIVE = encode_table(fields_from_python({"x-single-active-consumer": True}))


def tags(messages: list[Message]) -> list[int]:
    return [message.deliver.delivery_tag for message in messages]


# -- the queue ---------------------------------------------------------------------------------


def test_a_hidden_copy_serves_nobody(nodes: ThreeNodes) -> None:
    mirrored(nodes, b"1", b"2")
    copy = nodes.queue(THIRD)
    assert copy.is_hidden and copy.ready_count == 2
    assert nodes.third.vhost.queues == {}
    assert copy not in nodes.third.broker.timed_queues
    nodes.third.vhost.remove_hidden_queue(copy, nodes.front.now_ms)
    assert copy.is_deleted and copy.id not in nodes.third.vhost.queues_by_id


@pytest.mark.parametrize("arguments", [{"x-message-ttl": 100}, {"x-max-length": 1}])
def test_a_hidden_copy_drops_nothing_by_itself(
    nodes: ThreeNodes, arguments: dict[str, object]
) -> None:
    raw = encode_table(fields_from_python(dict(arguments)))
    mirrored(nodes, b"1", arguments=raw)
    nodes.queue(BACK).backing.feed = None
    nodes.advance(500)
    assert nodes.queue(THIRD).ready_count == 1
    nodes.isolate(BACK)
    nodes.promote(THIRD)
    nodes.advance(500)
    assert nodes.queue(THIRD).ready_count == (0 if "x-message-ttl" in arguments else 1)


@MOVES
def test_bindings_and_policies_stay(nodes: ThreeNodes, move: Move) -> None:
    channel = mirrored(nodes)
    channel.bind(b"q", b"amq.topic", b"a.*")
    for node in nodes.nodes.values():
        value = '{"pattern": "q", "priority": 0, "definition": {"message-ttl": 70000}}'
        node.vhost.put_parameter("policy", "p", value)
    nodes.advance(100)
    events: list[str] = []
    for node in nodes.nodes.values():
        node.broker.events = lambda event, *_rest: events.append(event)
    move(nodes)
    assert [event for event in events if not event.startswith(("channel", "connection"))] == []
    for node in nodes.nodes.values():
        taker = node.vhost.taker(b"q")
        assert taker is not None and taker.settings.message_ttl_ms == 70000
        assert list(node.vhost.queues) + list(node.vhost.remote_queues) == [b"q"]
    channel.publish(b"a.b", b"x", exchange=b"amq.topic")
    channel.quiet()
    assert left(nodes) == [b"x"]


def test_a_queue_moves_there_and_back(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1", b"2", b"3")
    channel.consume(b"q", b"c")
    messages = [channel.message() for _ in range(3)]
    nodes.follow(BACK, THIRD)
    nodes.promote(THIRD, is_fed=True)
    nodes.follow(FRONT, THIRD)
    nodes.follow(THIRD, BACK)
    nodes.promote(BACK, is_fed=True)
    nodes.follow(FRONT, BACK)
    # Those of the first life are ready at a master that is the same node again.
    channel.ack(tags(messages)[0])
    nodes.advance(200)
    channel.qos(1)
    assert nodes.queue(BACK).ready_count + nodes.queue(BACK).unacked_count >= 2
    assert nodes.queue(THIRD).is_hidden and not nodes.queue(BACK).is_hidden


# -- consumers -----------------------------------------------------------------------------------


@PLACES
def test_a_consumer_goes_along_silently(nodes: ThreeNodes, move: Move, node: bytes) -> None:
    mirrored(nodes)
    channel = channel_at(nodes, node)
    channel.consume(b"q", b"c")
    move(nodes)
    nodes.advance(100)
    channel_at(nodes, THIRD).publish(b"q", b"x")
    message = channel.message()
    assert message.deliver.consumer_tag == b"c" and not message.deliver.redelivered
    channel.ack(message.deliver.delivery_tag)
    channel.cancel(b"c")
    channel.quiet()
    assert nodes.queue(THIRD).consumers == [] and left(nodes) == []


@MOVES
@pytest.mark.parametrize("node", [FRONT, THIRD])
@pytest.mark.parametrize("wants_notice", [False, True])
def test_a_consumer_may_want_to_be_cancelled(
    nodes: ThreeNodes, move: Move, node: bytes, wants_notice: bool
) -> None:
    mirrored(nodes)
    channel = channel_at(nodes, node, wants_notice)
    channel.consume(b"q", b"c", arguments=CANCELS)
    move(nodes)
    nodes.advance(100)
    if wants_notice:
        cancel = channel.event()
        assert isinstance(cancel, BasicCancel) and cancel.consumer_tag == b"c"
    channel.quiet()
    # A client that cannot be told goes along.
    assert len(nodes.queue(THIRD).consumers) == (0 if wants_notice else 1)


def test_consumers_wait_for_the_master_that_comes_back(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1")
    channel.consume(b"q", b"c")
    first = channel.message()
    nodes.isolate(BACK)
    nodes.advance(1000)
    channel.quiet()
    nodes.join()
    again = channel.message()
    assert again.body == b"1" and again.deliver.redelivered
    # The first delivery is one of a link that is lost; the second one counts.
    channel.ack(first.deliver.delivery_tag)
    channel.ack(again.deliver.delivery_tag)
    channel.quiet()
    assert nodes.queue(BACK).ready_count + nodes.queue(BACK).unacked_count == 0


def test_an_ack_while_there_is_no_master_counts_when_one_is_there(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1", b"2")
    channel.qos(2)
    channel.consume(b"q", b"c")
    one, two = channel.message(), channel.message()
    nodes.isolate(BACK)
    channel.ack(one.deliver.delivery_tag)
    channel.cancel(b"c")
    channel.quiet()
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    assert left(nodes) == [b"2"]
    channel.ack(two.deliver.delivery_tag)
    channel.quiet()


def test_an_ack_of_an_earlier_link_names_the_level(nodes: ThreeNodes) -> None:
    channel = channel_at(nodes, FRONT)
    arguments = encode_table(fields_from_python({"x-max-priority": 3}))
    channel.declare(b"q", durable=True, arguments=arguments)
    nodes.front.vhost.remote_queues[b"q"].keep_consumers()
    channel.publish(b"q", b"low")
    channel.publish(b"q", b"high", properties=Properties(priority=2).encode())
    old = channel.get(b"q")
    assert old.body == b"high"
    nodes.isolate(BACK)
    nodes.join()
    channel.ack(old.got.delivery_tag)
    assert channel.drain(b"q") == [b"low"]


def test_a_cancel_while_there_is_no_master(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes)
    channel.consume(b"q", b"c")
    nodes.isolate(BACK)
    channel.cancel(b"c")
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    nodes.advance(100)
    assert nodes.queue(THIRD).consumers == []


def test_a_channel_that_closes_while_there_is_no_master(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1")
    channel.consume(b"q", b"c")
    channel.message()
    nodes.isolate(BACK)
    channel.close()
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    nodes.advance(100)
    assert nodes.queue(THIRD).consumers == [] and left(nodes) == [b"1"]


def test_a_node_that_knows_the_master_before_it_does(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes)
    channel.consume(b"q", b"c")
    nodes.isolate(BACK)
    nodes.epoch = 0
    nodes.follow(FRONT, THIRD)
    nodes.advance(200)
    nodes.promote(THIRD)
    nodes.advance(100)
    channel.publish(b"q", b"x")
    assert channel.message().body == b"x"


def test_a_master_that_knows_of_its_successor_before_others(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1")
    channel.consume(b"q", b"c")
    channel.message()
    nodes.follow(BACK, THIRD)
    nodes.advance(200)
    channel.quiet()
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    again = channel.message()
    assert again.body == b"1" and again.deliver.redelivered


@MOVES
def test_an_exclusive_consumer_stays_exclusive(nodes: ThreeNodes, move: Move) -> None:
    channel = mirrored(nodes)
    channel.consume(b"q", b"c", exclusive=True)
    move(nodes)
    nodes.advance(100)
    text = "queue 'q' in vhost '/' in exclusive use"
    channel_at(nodes, THIRD).refused(BasicConsume(b"q"), 403, text)
    channel.publish(b"q", b"x")
    assert channel.message().body == b"x"


def test_a_consumer_that_is_refused_again_and_again_is_cancelled(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes)
    channel.consume(b"q", b"c")
    nodes.isolate(BACK)
    nodes.promote(THIRD)
    other = channel_at(nodes, THIRD)
    other.consume(b"q", exclusive=True)
    nodes.follow(FRONT, THIRD)
    nodes.advance((REFUSALS_MAX - 5) * 50)
    assert list(channel.events) == []
    nodes.advance(20 * 50)
    assert isinstance(channel.event(), BasicCancel)


@MOVES
def test_a_single_active_consumer(nodes: ThreeNodes, move: Move) -> None:
    channel = mirrored(nodes, arguments=SINGLE_ACTIVE)
    channel.consume(b"q", b"first")
    channel.consume(b"q", b"second")
    move(nodes)
    nodes.advance(100)
    channel.publish_each(b"q", b"1", b"2")
    found = [channel.message() for _ in range(2)]
    assert [message.deliver.consumer_tag for message in found] == [b"first", b"first"]
    channel.cancel(b"first")
    channel.publish(b"q", b"3")
    assert channel.message().deliver.consumer_tag == b"second"


@MOVES
@pytest.mark.parametrize("node", [FRONT, THIRD])
@pytest.mark.parametrize("whole_channel", [False, True])
def test_old_deliveries_count_towards_the_prefetch(
    nodes: ThreeNodes, move: Move, node: bytes, whole_channel: bool
) -> None:
    mirrored(nodes, *[b"%d" % number for number in range(6)])
    channel = channel_at(nodes, node)
    channel.qos(3, whole_channel)
    channel.consume(b"q", b"c")
    old = [channel.message() for _ in range(3)]
    move(nodes)
    nodes.advance(300)
    channel.quiet()
    # An ack makes room for one more: the head, which is the second of the old ones.
    channel.ack(tags(old)[0])
    second = channel.message()
    assert second.body == b"1" and second.deliver.redelivered
    nodes.advance(300)
    channel.quiet()
    # This message has been delivered again, so the old delivery settles nothing.
    channel.ack(tags(old)[1])
    assert channel.message().body == b"2"
    channel.ack(tags(old)[2])
    third = channel.message()
    assert third.body == b"3" and not third.deliver.redelivered
    channel.peer.drop()
    nodes.advance(100)
    assert left(nodes) == [b"1", b"2", b"3", b"4", b"5"]


@MOVES
def test_a_no_ack_consumer_loses_nothing_that_has_arrived(nodes: ThreeNodes, move: Move) -> None:
    channel = mirrored(nodes)
    channel.consume(b"q", b"c", no_ack=True)
    channel.publish_each(b"q", b"1", b"2")
    assert channel.bodies(2) == [b"1", b"2"]
    move(nodes)
    nodes.advance(100)
    channel.publish(b"q", b"3")
    assert channel.bodies(1) == [b"3"]
    assert left(nodes) == []


# -- acks of old deliveries ------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize("settle", ["ack", "all", "reject", "nack", "requeue", "recover", "tx"])
def test_an_old_delivery_settles_its_own_message_only(
    nodes: ThreeNodes, move: Move, node: bytes, settle: str
) -> None:
    mirrored(nodes, b"1", b"2", b"3")
    channel = channel_at(nodes, node)
    messages = [channel.get(b"q") for _ in range(2)]
    first, second = [message.got.delivery_tag for message in messages]
    if settle == "tx":
        assert isinstance(channel.call(TxSelect()), TxSelectOk)
    move(nodes)
    # They must not settle what the new master numbers next.
    channel_at(nodes, THIRD).publish_each(b"q", b"4", b"5")
    if settle == "ack":
        channel.ack(first)
    elif settle == "all":
        channel.ack(second, multiple=True)
    elif settle == "reject":
        channel.reject(first, requeue=False)
    elif settle == "nack":
        channel.nack(second, multiple=True, requeue=False)
    elif settle == "requeue":
        channel.nack(second, multiple=True)
    elif settle == "recover":
        assert isinstance(channel.call(BasicRecover(True)), BasicRecoverOk)
    else:
        channel.ack(first)
        assert isinstance(channel.call(TxCommit()), TxCommitOk)
    channel.quiet()
    expected = {
        "ack": [b"2", b"3", b"4", b"5"],
        "tx": [b"2", b"3", b"4", b"5"],
        "reject": [b"2", b"3", b"4", b"5"],
        "all": [b"3", b"4", b"5"],
        "nack": [b"3", b"4", b"5"],
        "requeue": [b"1", b"2", b"3", b"4", b"5"],
        "recover": [b"1", b"2", b"3", b"4", b"5"],
    }[settle]
    assert left(nodes) == expected


@MOVES
def test_an_old_delivery_does_not_settle_what_was_delivered_again(
    nodes: ThreeNodes, move: Move
) -> None:
    channel = mirrored(nodes, b"1")
    old = channel.get(b"q")
    move(nodes)
    other = channel_at(nodes, THIRD)
    other.get(b"q")
    channel.ack(old.got.delivery_tag)
    channel.quiet()
    other.close()
    assert left(nodes) == [b"1"]


def test_an_old_delivery_does_not_settle_what_is_on_disk_only(nodes: ThreeNodes) -> None:
    """Nothing in memory tells whether the message is still there, so it is delivered again."""
    channel = mirrored(nodes, b"1", b"2")
    old = channel.get(b"q")
    nodes.fail_over()
    queue = nodes.queue(THIRD)
    queue.backing.memory.set_mode(True)
    queue.backing.ask_for_turn()
    nodes.advance(1000)
    assert queue.backing.ready.entry_count == 0
    channel.ack(old.got.delivery_tag)
    channel.quiet()
    assert left(nodes) == [b"1", b"2"]


def test_an_ack_that_a_transaction_holds_while_the_queue_moves(nodes: ThreeNodes) -> None:
    mirrored(nodes, b"1", b"2")
    channel = channel_at(nodes, BACK)
    assert isinstance(channel.call(TxSelect()), TxSelectOk)
    message = channel.get(b"q")
    channel.get(b"q")
    channel.ack(message.got.delivery_tag)
    channel.quiet()
    nodes.hand_over()
    assert isinstance(channel.call(TxCommit()), TxCommitOk)
    assert left(nodes) == [b"2"]


def test_a_rejected_old_delivery_becomes_a_dead_letter(nodes: ThreeNodes) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    raw = encode_table(fields_from_python(dict(arguments)))
    channel = mirrored(nodes, b"1", arguments=raw)
    nodes.place_at = THIRD
    channel.declare(b"dead", durable=True)
    old = channel.get(b"q")
    nodes.fail_over()
    channel.reject(old.got.delivery_tag, requeue=False)
    channel.quiet()
    nodes.advance(100)
    assert channel.get(b"dead", True).body == b"1"
    assert left(nodes) == []


def test_a_message_of_a_later_epoch_is_never_settled(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes, b"1")
    nodes.fail_over()
    channel.publish(b"q", b"2")
    channel.quiet()
    queue = nodes.queue(THIRD)
    newest = queue.next_seq - 1
    queue.settle_stale(0, newest, 0, 1, nodes.front.now_ms)
    assert queue.ready_count == 2
    queue.settle_stale(0, newest, 1, 1, nodes.front.now_ms)
    assert left(nodes) == [b"1"]
