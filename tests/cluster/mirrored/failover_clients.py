"""What clients have open with a mirrored queue, and what becomes of it when the master is lost.

| watch | promise |
|---|---|
| `consumer_goes_on` | a consumer keeps its tag, its unacked messages count for its prefetch |
| `stale_settlements` | an ack, a nack or a reject of an old delivery settles its message only |
| `consumer_is_cancelled` | one with `x-cancel-on-ha-failover` gets basic.cancel |
| `no_ack_consumer`, `exclusive_consumer`, `single_active_consumer` | they stay what they are |
| `got_message` | a message that basic.get took can be acked |
| `confirms` | each publish is answered once, a confirmed one is there; with mandatory, too |
| `transaction` | it comes whole or not |
| `full_queue` | a full queue goes on to refuse |
| `deleted_queue` | a deletion after the loss answers the publishers |
| `dead_letters` | expired messages arrive at their target, timers continue |
| `letters_from_afar` | dead letters and delayed messages of a living node go to the next master |
| `unused_queue` | a queue expires after its disuse |
| `longest_queue` | a queue keeps to its length |
| `priorities` | the order of priorities stays |
"""

from collections.abc import Iterator

from tests.cluster.mirrored.failover import Failover, Watch
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    ChannelFlow,
    ChannelFlowOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

NO_ROUTE = 312
IN_FLIGHT = 300


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Bodies `first`, `first` + 1 and so on."""
    return [b"%d" % number for number in range(first, first + count)]


def answers(channel: ChannelPeer, count: int) -> dict[int, bool]:
    """Whether each publish of a new channel was confirmed; each is answered once."""
    found: dict[int, bool] = {}
    for answer in channel.confirms(count):
        first = 1 if answer.multiple else answer.delivery_tag
        for tag in range(first, answer.delivery_tag + 1):
            found.setdefault(tag, isinstance(answer, BasicAck))
    return found


def synchronise(channel: ChannelPeer) -> None:
    """Return when the broker has handled what was sent before."""
    assert isinstance(channel.call(ChannelFlow(True)), ChannelFlowOk)


# -- consumers -------------------------------------------------------------------------------------


def consumer_goes_on(world: Failover) -> Iterator[None]:
    queue = world.declare(b"consumer")
    channel = world.near()
    channel.qos(3)
    tag = channel.consume(queue)
    world.fill(queue, *numbered(6))
    old = [channel.message() for _ in range(3)]
    yield
    world.await_served(queue)
    # The three are unacked still; acked by their old tags they make room for three others. The
    # first ack makes room for the second message, if that one's ack comes a moment later.
    for message in old:
        channel.ack(message.deliver.delivery_tag)
    synchronise(channel)
    seen = _take_until(channel, set(numbered(3, 3)), tag)
    assert set(seen) - set(numbered(3, 3)) <= set(numbered(2, 1)), seen
    assert all(seen.values()), "the last master may have delivered any of them"
    world.fill(queue, b"later")
    assert channel.message().body == b"later"


def _take_until(channel: ChannelPeer, wanted: set[bytes], tag: bytes = b"") -> dict[bytes, bool]:
    """Ack deliveries until all of `wanted` have come; which were redeliveries. None comes twice."""
    seen: dict[bytes, bool] = {}
    while not wanted <= set(seen):
        message = channel.message()
        assert message.body not in seen, "delivered twice"
        assert tag in (b"", message.deliver.consumer_tag)
        seen[message.body] = message.deliver.redelivered
        channel.ack(message.deliver.delivery_tag)
    return seen


def stale_settlements(world: Failover) -> Iterator[None]:
    queue = world.declare(b"stale")
    channel = world.far()
    channel.qos(5)
    channel.consume(queue)
    world.fill(queue, *numbered(8))
    old = [channel.message().deliver.delivery_tag for _ in range(5)]
    yield
    world.await_served(queue)
    channel.ack(old[0])
    channel.reject(old[1], requeue=False)
    channel.nack(old[2], requeue=True)
    synchronise(channel)
    seen = _take_until(channel, {b"2", *numbered(3, 5)})
    assert b"0" not in seen, seen
    assert all(seen.values()), seen
    # Closing returns what was not settled.
    channel.close()
    other = world.near()
    left = set(numbered(2, 3)) - set(seen)
    eventually(lambda: other.count(queue) == len(left), "the others return")
    assert set(other.drain(queue)) == left


def consumer_is_cancelled(world: Failover) -> Iterator[None]:
    queue = world.declare(b"cancelled")
    channel = world.near()
    tag = channel.consume(queue, arguments=table(**{"x-cancel-on-ha-failover": True}))
    yield
    event = channel.event()
    assert isinstance(event, BasicCancel) and event.consumer_tag == tag, event


def no_ack_consumer(world: Failover) -> Iterator[None]:
    queue = world.declare(b"no-ack")
    channel = world.far()
    channel.consume(queue, no_ack=True)
    world.fill(queue, *numbered(5))
    assert channel.bodies(5) == numbered(5)
    yield
    world.await_served(queue)
    world.fill(queue, *numbered(5, 5))
    assert channel.bodies(5) == numbered(5, 5)


def exclusive_consumer(world: Failover) -> Iterator[None]:
    queue = world.declare(b"exclusive")
    channel = world.near()
    channel.consume(queue, exclusive=True)
    yield
    world.await_served(queue)
    world.fill(queue, b"m")
    assert channel.bodies(1) == [b"m"]
    other = world.far()
    other.send(BasicConsume(queue, b"", False, False, False, False, b""))
    assert other.await_close().reply_code == 403


def single_active_consumer(world: Failover) -> Iterator[None]:
    queue = world.declare(b"single", table(**{"x-single-active-consumer": True}))
    first, second = world.near(), world.far()
    first.consume(queue, no_ack=True)
    second.consume(queue, no_ack=True)
    world.fill(queue, b"before")
    assert first.bodies(1) == [b"before"]
    yield
    world.await_served(queue)
    world.fill(queue, *numbered(10))
    eventually(lambda: _received(first) + _received(second) == 10, "all are delivered")
    assert 10 in (_received(first), _received(second)), "two were active"


def _received(channel: ChannelPeer) -> int:
    synchronise(channel)
    return len(channel.events)


def got_message(world: Failover) -> Iterator[None]:
    queue = world.declare(b"got")
    world.fill(queue, *numbered(3))
    channel = world.near()
    message = channel.get(queue)
    yield
    world.await_served(queue)
    channel.ack(message.got.delivery_tag)
    synchronise(channel)
    assert world.far().drain(queue) == numbered(2, 1)


# -- publishers ------------------------------------------------------------------------------------


def confirms(world: Failover) -> Iterator[None]:
    """One publisher at the node of each mirror; the loss comes while most publishes wait."""
    queue = world.declare(b"confirms")
    channels = {b"near": world.near(), b"far": world.far()}
    for place, channel in channels.items():
        channel.confirm_select()
        for number in range(IN_FLIGHT):
            channel.publish(queue, b"%s %d" % (place, number), PERSISTENT, mandatory=number % 2 > 0)
    yield
    world.await_served(queue)
    confirmed: set[bytes] = set()
    for place, channel in channels.items():
        found = answers(channel, IN_FLIGHT)
        assert sorted(found) == list(range(1, IN_FLIGHT + 1))
        confirmed |= {b"%s %d" % (place, tag - 1) for tag, is_ack in found.items() if is_ack}
        channel.publish(queue, b"%s last" % place, PERSISTENT)
        assert isinstance(channel.event(), BasicAck)
        channel.publish(b"nobody", b"", PERSISTENT, mandatory=True)
        assert channel.message().returned.reply_code == NO_ROUTE
        assert isinstance(channel.event(), BasicAck)
    bodies = world.near().drain(queue)
    assert confirmed <= set(bodies) and len(set(bodies)) == len(bodies)
    for place in channels:
        mine = [body for body in bodies if body.startswith(place)]
        assert mine[-1] == b"%s last" % place
        numbers = [int(body.split()[1]) for body in mine[:-1]]
        assert numbers == sorted(numbers)


def transaction(world: Failover) -> Iterator[None]:
    queue = world.declare(b"tx")
    channel = world.near()
    assert isinstance(channel.call(TxSelect()), TxSelectOk)
    for body in numbered(3):
        channel.publish(queue, body, PERSISTENT)
    yield
    world.await_served(queue)
    channel.send(TxCommit())
    try:
        channel.expect(TxCommitOk)
        is_whole = True
    except ChannelClosedError:
        is_whole = False
    assert world.far().drain(queue) == (numbered(3) if is_whole else [])


def full_queue(world: Failover) -> Iterator[None]:
    queue = world.declare(b"full", table(**{"x-max-length": 1, "x-overflow": "reject-publish"}))
    world.fill(queue, b"first")
    yield
    world.await_served(queue)
    for channel in (world.near(), world.far()):
        channel.confirm_select()
        for body in numbered(20):
            channel.publish(queue, body, PERSISTENT)
        assert not any(answers(channel, 20).values())
    assert world.far().drain(queue) == [b"first"]


def deleted_queue(world: Failover) -> Iterator[None]:
    queue = world.declare(b"deleted")
    channel = world.near()
    channel.confirm_select()
    for body in numbered(IN_FLIGHT):
        channel.publish(queue, body, PERSISTENT)
    yield
    world.await_served(queue)
    world.far().delete(queue)
    assert len(answers(channel, IN_FLIGHT)) == IN_FLIGHT
    channel.publish(queue, b"m", PERSISTENT, mandatory=True)
    assert channel.message().returned.reply_code == NO_ROUTE


# -- what queues do by themselves ------------------------------------------------------------------


def dead_letters(world: Failover) -> Iterator[None]:
    """Messages expire before, during and after the loss."""
    target = world.declare(b"letters")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target.decode()}
    queue = world.declare(b"expiring", table(**arguments))
    for number, body in enumerate(numbered(30)):
        properties = Properties(delivery_mode=2, expiration=b"%d" % (100 + 100 * number)).encode()
        world.fill(queue, body, properties=properties)
    yield
    world.await_served(target)
    channel = world.near()
    arrived: set[bytes] = set()

    def have_all() -> bool:
        arrived.update(channel.drain(target))
        return len(arrived) == 30

    eventually(have_all, "all are dead letters", 0.1)
    assert channel.count(queue) == 0


def letters_from_afar(world: Failover) -> Iterator[None]:
    """They become due before, during and after the loss of their target's master."""
    target = world.declare(b"from afar")
    channel = world.near()
    channel.exchange(
        b"later", b"x-delayed-message", durable=True, arguments=table(x__delayed__type="fanout")
    )
    channel.bind(target, b"later")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target.decode()}
    # No policy mirrors it, and it lives at its client's node.
    channel.declare(b"near", durable=True, arguments=table(**arguments))
    channel.confirm_select()
    for number in range(30):
        due_ms = 100 + 100 * number
        expiring = Properties(delivery_mode=2, expiration=b"%d" % due_ms).encode()
        channel.publish(b"near", b"letter %d" % number, expiring)
        delayed = Properties(delivery_mode=2, headers=table(x__delay=due_ms)).encode()
        channel.publish(b"", b"delayed %d" % number, delayed, b"later")
    assert all(isinstance(each, BasicAck) for each in channel.confirms(60))
    yield
    world.await_served(target)
    drain = world.near()
    arrived: set[bytes] = set()

    def have_all() -> bool:
        arrived.update(drain.drain(target))
        return len(arrived) == 60

    eventually(have_all, "all have arrived", 0.1)


def unused_queue(world: Failover) -> Iterator[None]:
    queue = world.declare(b"unused", table(**{"x-expires": 8000}))
    yield
    # A declaration would count as a use.
    eventually(lambda: f"%2F/{queue.decode()}" not in world.cluster.keys("q"), "it expires", 0.2)


def longest_queue(world: Failover) -> Iterator[None]:
    queue = world.declare(b"longest", table(**{"x-max-length": 5}))
    world.fill(queue, *numbered(10))
    yield
    world.await_served(queue)
    world.fill(queue, *numbered(3, 10))
    assert world.near().drain(queue) == numbered(5, 8)


def priorities(world: Failover) -> Iterator[None]:
    queue = world.declare(b"priorities", table(**{"x-max-priority": 3}))
    for priority in (1, 3, 2):
        properties = Properties(delivery_mode=2, priority=priority).encode()
        world.fill(queue, *numbered(3, 10 * priority), properties=properties)
    channel = world.near()
    channel.ack(channel.get(queue).got.delivery_tag)
    synchronise(channel)
    yield
    world.await_served(queue)
    drained = world.far().drain(queue)
    assert drained == [*numbered(2, 31), *numbered(3, 20), *numbered(3, 10)]


WATCHES: tuple[Watch, ...] = (
    consumer_goes_on,
    stale_settlements,
    consumer_is_cancelled,
    no_ack_consumer,
    exclusive_consumer,
    single_active_consumer,
    got_message,
    transaction,
    full_queue,
    dead_letters,
    letters_from_afar,
    longest_queue,
    priorities,
    unused_queue,
    # Last, so that their publishes are under way when the master is lost.
    deleted_queue,
    confirms,
)
