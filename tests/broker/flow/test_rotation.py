"""A consumer that can take a ready message gets it, after any mix of limits, acks and cancels."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.stores.model_store import ModelHost
from tests.support.stores.paging_queues import Taker
from warrenmq.broker.flow.rotation import Rotation
from warrenmq.queues.backing.variable_queue import READY

STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 3)), max_size=40)


def assert_nobody_waits_in_vain(engine: MemoryBroker) -> None:
    for queue in engine.vhost.queues.values():
        if queue.backing.ready.count > 0 and queue.backing.ready.head_state() == READY:
            able = [consumer.tag for consumer in queue.consumers if consumer.can_take()]
            assert able == [], queue.name


def test_a_cancelled_consumer_does_not_keep_the_turn_of_its_queue() -> None:
    """Consumers of other queues are served, and a queue without a waiting consumer is forgotten."""
    host = ModelHost()
    cancelled, waiting = (Taker(host, host.declare(), 1) for _ in range(2))
    rotation = Rotation()
    for consumer in (cancelled, waiting):
        rotation.add(consumer)
    assert cancelled.waits_in is not None
    cancelled.waits_in.remove(cancelled)
    assert rotation.take() is waiting
    assert rotation.count == 0 and rotation.take() is None


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_nobody_waits_in_vain(steps: list[tuple[int, int, int]]) -> None:
    amqp = Amqp("")
    engine = amqp.engine()
    peer = amqp.connect()
    channels = [peer.channel(), peer.channel(), amqp.channel()]
    queues = [channels[0].declare(amqp.name()).queue for _ in range(3)]
    tags: list[tuple[int, bytes]] = []
    for what, which, number in steps:
        channel = channels[which]
        if what <= 1:
            channel.publish(queues[which], b"x")
            channel.publish(queues[number % 3], b"x")
        elif what == 2:
            arguments = table(x__priority=number % 2)
            tags.append(
                (
                    which,
                    channel.consume(queues[number % 3], no_ack=number == 3, arguments=arguments),
                )
            )
        elif what == 3:
            channel.qos(number)
        elif what == 4 and tags:
            holder, tag = tags.pop(number % len(tags))
            channels[holder].cancel(tag)
        elif what == 5:
            channel.qos(number, whole_channel=True)
        elif what == 6:
            channel.ack(0, multiple=True)
        else:
            channel.nack(0, multiple=True)
            if number == 0:
                channel.qos(1, whole_channel=True)
        assert_nobody_waits_in_vain(engine)
        for link in engine.links:
            assert link.connection is not None
            for one in link.connection.channels.values():
                full = one.room.prefetch != 0 and one.room.unacked_count >= one.room.prefetch
                assert full or one.room.rotation.count == 0
