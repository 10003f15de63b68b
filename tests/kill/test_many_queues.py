"""Very many durable queues: cases T10 and T71 of docs/guarantees.md.
The tests use 40,000 queues where warren is compiled, and fewer where it is interpreted, which
takes a multiple of the time; `python -m tests.kill.many` does the same with 100,000, or with any
number, and prints the duration of each step.
"""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import WatchedBroker
from tests.support.kills.many_queues import ManyQueues
from warrenmq.build import build_name

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]

QUEUES = 40_000 if build_name() == "compiled" else 5_000
# Fractions of a stop's duration after which the node is killed.
MOMENTS = (0.0, 0.4, 0.8)
# Descriptors beyond those of a node without queues: clients that hang up, files open for a moment.
DESCRIPTORS = 80
# Bytes of memory for a queue with two messages, one of which may be in memory.
QUEUE_BYTES = 16_000


def test_killed_while_it_stops(node: BrokerProcess) -> None:
    """T10: a stop killed out of impatience loses nothing, and the next start is like any other."""
    many = ManyQueues(node, QUEUES)
    node.start()
    assert node.stop() == 0
    many.define()
    node.start()
    many.publish(range(QUEUES))
    stop_s = many.stop_while_publishing()
    assert stop_s > 0
    kills = 0
    # Each stop may be shorter than the last. If all had ended before their kill, one more is killed
    # as soon as it begins.
    for moment in (*MOMENTS, *[0.0] * 5):
        if kills > 0 and moment == 0.0:
            break
        node.start()
        many.check_counts()
        kills += many.stop_while_publishing(moment * stop_s) == 0
    assert kills > 0
    node.start()
    many.check_counts()
    many.check_messages(many.some(5000))
    many.stop()
    assert node.errors() == [] and "did not take" not in node.log_path.read_text()


def test_starts_and_stops(node: BrokerProcess) -> None:
    """T71: no queue has a descriptor of its own, and no restart costs memory."""
    many = ManyQueues(node, QUEUES)
    broker = WatchedBroker(node)
    node.start()
    descriptors = broker.descriptors() + DESCRIPTORS
    empty_bytes = broker.rss()
    many.declare()
    many.publish(range(QUEUES))
    assert broker.descriptors() <= descriptors
    many.stop()
    resident: list[int] = []
    for is_killed in (True, False, True):
        node.start()
        assert broker.descriptors() <= descriptors
        many.check_counts()
        many.publish(many.some(QUEUES // 10))
        assert broker.descriptors() <= descriptors
        resident.append(broker.rss() - empty_bytes)
        if is_killed:
            node.kill()
        else:
            many.stop()
    node.start()
    many.check_messages(many.some(5000))
    assert max(resident) <= QUEUES * QUEUE_BYTES
    assert resident[-1] <= resident[0] * 1.2
    assert node.errors() == []
