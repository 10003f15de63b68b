"""x-max-length, x-max-length-bytes and the three overflows (protocol 7.1, 7.2)."""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import BasicAck, BasicNack, TxCommit, TxCommitOk, TxSelect, TxSelectOk
from warrenmq.wire.properties import Properties

REJECTING = ["reject-publish", "reject-publish-dlx"]


def limited(amqp: Amqp, durable: bool = False, **arguments: object) -> tuple[ChannelPeer, bytes]:
    """A channel, and a queue with these arguments."""
    channel = amqp.channel()
    queue = channel.declare(
        amqp.name(), durable=durable, exclusive=not durable, arguments=table(**arguments)
    ).queue
    return channel, queue


def refused(channel: ChannelPeer, first: int, last: int) -> list[int]:
    """Wait for the confirms of the publishes `first` to `last`; returns those that got a nack."""
    undecided = set(range(first, last + 1))
    found: list[int] = []
    while undecided:
        item = channel.event()
        assert isinstance(item, BasicAck | BasicNack), item
        decided = {
            number
            for number in undecided
            if number == item.delivery_tag or (item.multiple and number < item.delivery_tag)
        }
        assert decided
        undecided -= decided
        if isinstance(item, BasicNack):
            found.extend(decided)
    return sorted(found)


# -- drop-head -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "published", "kept"),
    [
        ({"x__max__length": 2}, [b"1", b"2", b"3", b"4"], [b"3", b"4"]),
        ({"x__max__length": 0}, [b"1", b"2"], []),
        # 13 bytes with the last one.
        ({"x__max__length__bytes": 10}, [b"aaaa", b"bbbb", b"cc", b"ddd"], [b"bbbb", b"cc", b"ddd"]),
        # One that never fits takes all others with it.
        ({"x__max__length__bytes": 5}, [b"aa", b"bb", b"cccccc"], []),
        ({"x__max__length__bytes": 0}, [b"", b"x", b"", b""], [b"", b""]),
        ({"x__max__length": 3, "x__max__length__bytes": 4}, [b"1", b"22", b"3", b"44"], [b"3", b"44"]),
        ({"x__max__length": 2, "x__queue__mode": "lazy"}, [b"1", b"2", b"3"], [b"2", b"3"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("properties", [b"\0\0", PERSISTENT], ids=["transient", "persistent"])
def test_the_oldest_leave(
    amqp: Amqp,
    limit: dict[str, object],
    published: list[bytes],
    kept: list[bytes],
    properties: bytes,
) -> None:
    channel, queue = limited(amqp, properties == PERSISTENT, **limit)
    channel.confirm_select()
    for body in published:
        channel.publish(queue, body, properties, mandatory=True)
    assert refused(channel, 1, len(published)) == []
    # The head of a lazy queue is loaded before it is dropped.
    amqp.eventually(lambda: channel.count(queue) == len(kept))
    assert channel.drain(queue) == kept
    channel.delete(queue)


def test_what_a_consumer_takes_at_once_has_no_limit(amqp: Amqp) -> None:
    """A limit of 0 leaves just that, and unacked messages are free."""
    channel, queue = limited(amqp, x__max__length=0)
    channel.qos(2)
    channel.consume(queue)
    channel.publish_each(queue, b"1", b"2", b"3", b"4")
    assert channel.bodies(2) == [b"1", b"2"]
    channel.ack(0, multiple=True)
    channel.publish(queue, b"5")
    assert channel.message().body == b"5"


def test_a_return_over_the_limit_drops_the_head(amqp: Amqp) -> None:
    """Returned messages take their places at the head, where they are dropped again."""
    channel, queue = limited(amqp, x__max__length=3)
    for body in (b"1", b"2", b"3"):
        channel.publish(queue, body)
    tags = [channel.get(queue).got.delivery_tag for _ in range(3)]
    channel.publish_each(queue, b"4", b"5")
    channel.nack(tags[1])
    assert channel.count(queue) == 3
    channel.nack(tags[0])
    channel.nack(tags[2])
    assert channel.drain(queue) == [b"3", b"4", b"5"]


def test_expired_messages_go_when_those_before_them_do(amqp: Amqp) -> None:
    channel, queue = limited(amqp, x__max__length=2)
    channel.confirm_select()
    channel.publish(queue, b"first")
    channel.publish(queue, b"short", Properties(expiration=b"1").encode())
    channel.confirms(2)
    amqp.pause(60)
    channel.publish(queue, b"last")
    assert channel.count(queue) == 1
    assert channel.drain(queue) == [b"last"]


def test_expired_messages_go_at_once_when_a_lazy_queue_drops_its_head(amqp: Amqp) -> None:
    """All have to be read from disk; no timer comes to help."""
    began_ms = amqp.engine().now_ms
    channel, queue = limited(amqp, x__max__length=2, x__queue__mode="lazy")
    channel.publish(queue, b"head")
    for body in (b"1", b"2"):
        channel.publish(queue, body, Properties(expiration=b"0").encode())
    assert channel.count(queue) == 0
    assert amqp.engine().now_ms == began_ms


# -- reject-publish --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "published", "nacked"),
    [
        ({"x__max__length": 2}, [b"1", b"2", b"3", b"4"], [3, 4]),
        ({"x__max__length": 0}, [b"1", b""], [1, 2]),
        ({"x__max__length__bytes": 5}, [b"aaa", b"bbb", b"cc", b"", b"d"], [2, 5]),
        ({"x__max__length__bytes": 0}, [b"x", b""], [1]),
    ],
)
@pytest.mark.parametrize("overflow", REJECTING)
@pytest.mark.parametrize("properties", [b"\0\0", PERSISTENT], ids=["transient", "persistent"])
def test_the_newest_are_refused(
    amqp: Amqp,
    limit: dict[str, object],
    published: list[bytes],
    nacked: list[int],
    overflow: str,
    properties: bytes,
) -> None:
    """A refused publish gets a nack, and is not returned although it is mandatory."""
    channel, queue = limited(amqp, properties == PERSISTENT, x__overflow=overflow, **limit)
    channel.confirm_select()
    for body in published:
        channel.publish(queue, body, properties, mandatory=True)
    assert refused(channel, 1, len(published)) == nacked
    kept = [body for number, body in enumerate(published, 1) if number not in nacked]
    assert channel.drain(queue) == kept
    channel.quiet()
    channel.delete(queue)


@pytest.mark.parametrize("overflow", REJECTING)
def test_a_limit_of_0_refuses_although_a_consumer_waits(amqp: Amqp, overflow: str) -> None:
    channel, queue = limited(amqp, x__overflow=overflow, x__max__length=0)
    channel.confirm_select()
    channel.consume(queue)
    channel.publish(queue, b"x")
    assert refused(channel, 1, 1) == [1]
    channel.quiet()


def test_a_refused_message_is_taken_when_there_is_room_again(amqp: Amqp) -> None:
    channel, queue = limited(amqp, x__overflow="reject-publish", x__max__length=1)
    channel.confirm_select()
    channel.publish_each(queue, b"1", b"2")
    assert refused(channel, 1, 2) == [2]
    tag = channel.get(queue).got.delivery_tag
    # The message is unacked, which is no longer in the way.
    channel.publish(queue, b"3")
    assert refused(channel, 3, 3) == []
    # A return is never refused, but it leaves no room.
    channel.nack(tag)
    assert channel.count(queue) == 2
    channel.publish(queue, b"4")
    assert refused(channel, 4, 4) == [4]
    assert channel.drain(queue) == [b"1", b"3"]


def test_without_confirms_nobody_is_told(amqp: Amqp) -> None:
    channel = amqp.channel()
    arguments = table(x__overflow="reject-publish", x__max__length=1)
    queue = channel.declare(exclusive=True, arguments=arguments).queue
    channel.publish_each(queue, b"1", b"2")
    channel.quiet()
    assert channel.drain(queue) == [b"1"]


@pytest.mark.parametrize("is_first", [True, False])
def test_one_of_two_queues_refuses(amqp: Amqp, is_first: bool) -> None:
    """The publisher gets one nack, and the other queue has the message."""
    channel, full = limited(amqp, x__overflow="reject-publish", x__max__length=0)
    channel.confirm_select()
    open_queue = channel.declare(exclusive=True).queue
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout", auto_delete=True)
    for queue in (full, open_queue) if is_first else (open_queue, full):
        channel.bind(queue, exchange)
    channel.publish(b"", b"1", exchange=exchange)
    assert refused(channel, 1, 1) == [1]
    assert channel.drain(open_queue) == [b"1"]
    assert channel.is_empty(full)


def test_a_commit_that_a_queue_refuses(amqp: Amqp) -> None:
    """The commit closes the channel; what other queues took, they keep."""
    channel = amqp.channel()
    arguments = table(x__overflow="reject-publish", x__max__length=1)
    full, other = amqp.name(), amqp.name()
    channel.declare(full, arguments=arguments)
    channel.declare(other)
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    channel.publish(full, b"1")
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    channel.publish(full, b"2")
    channel.publish(other, b"3")
    channel.refused(TxCommit(), 406, "partial tx completion")
    second = amqp.channel()
    assert second.drain(full) == [b"1"]
    assert second.drain(other) == [b"3"]
    for queue in (full, other):
        second.delete(queue)


# -- policies --------------------------------------------------------------------------------------


def test_a_policy_limits_a_queue_in_use(amqp: Amqp) -> None:
    """The lower limit counts. The overflow is the policy's, as no argument says one."""
    channel, queue = limited(amqp, True, x__max__length=4)
    channel.confirm_select()
    last = 0

    def is_taken() -> bool:
        nonlocal last
        last += 1
        channel.publish(queue, b"%d" % last, PERSISTENT)
        return refused(channel, last, last) == []

    assert all(is_taken() for _ in range(6))
    amqp.set_policy(queue, max__length=2)
    amqp.eventually(lambda: channel.count(queue) == 2)
    assert is_taken() and channel.count(queue) == 2
    amqp.set_policy(queue, max__length=9, overflow="reject-publish")
    amqp.eventually(lambda: not is_taken())
    assert channel.count(queue) == 4
    amqp.clear_policy(queue)
    amqp.eventually(is_taken)
    numbers = [int(body) for body in channel.drain(queue)]
    # The last one has taken the place of the oldest.
    assert numbers[-1] == last and len(numbers) == 4
    channel.delete(queue)


def test_a_policy_limits_the_bytes_of_what_waits(amqp: Amqp) -> None:
    channel, queue = limited(amqp, True)
    channel.confirm_select()
    for size in (10, 20, 30, 40):
        channel.publish(queue, bytes(size), PERSISTENT)
    channel.confirms(4)
    tag = channel.get(queue).got.delivery_tag
    amqp.set_policy(queue, "operator_policy", max__length__bytes=75)
    amqp.eventually(lambda: channel.count(queue) == 2)
    channel.nack(tag)
    assert [len(body) for body in channel.drain(queue)] == [30, 40]
    channel.delete(queue)
