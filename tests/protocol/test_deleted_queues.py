"""A deleted queue's memory is free at once, without the cycle collector, which runs seldom."""

import gc

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.fixtures import Amqp
from warrenmq.queues.queue import Queue
from warrenmq.wire.field_table import encode_table, fields_from_python


def queue_count() -> int:
    return sum(type(thing) is Queue for thing in gc.get_objects())


def test_deleted_queues_leave_no_cycles(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    gc.collect()
    gc.disable()
    try:
        before = queue_count()
        kinds: list[dict[str, object]] = [{}, {"x-queue-mode": "lazy"}, {"x-message-ttl": 1000}]
        for arguments in kinds:
            for durable in (False, True):
                table = encode_table(fields_from_python(arguments))
                queue = channel.declare(amqp.name(), durable, arguments=table).queue
                for _ in range(20):
                    channel.publish(queue, b"x" * 5000, PERSISTENT)
                channel.get(queue)
                channel.delete(queue)
        # Unacked messages refer to their queue.
        channel.close()
        engine.advance(10_000)
        assert queue_count() == before
    finally:
        gc.enable()
