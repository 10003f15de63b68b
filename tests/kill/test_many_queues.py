"""Very many durable queues: cases T10 and T71 of docs/guarantees.md.

100,000 of them where warren is compiled. Interpreted it takes a multiple of the time, so there are fewer;
`python -m tests.kill.many --queues N` does the same with any number, and prints how long everything took.
"""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import WatchedBroker
from tests.support.kills.many_queues import ManyQueues
from warrenmq.build import build_name

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]

QUEUES = 100_000 if build_name() == "compiled" else 10_000
# Parts of the time that a stop takes, after which the node is killed.
MOMENTS = (0.0, 0.4, 0.8)
# More than a node has without queues: clients that hang up, files that are open for a moment.
DESCRIPTORS = 80
# A queue with two messages, one of them in memory perhaps.
QUEUE_BYTES = 16_000


def test_killed_while_it_stops(node: BrokerProcess) -> None:
    """T10: whoever has no more patience with a stop than this loses nothing, and the next start is like any other."""
    many = ManyQueues(node, QUEUES)
    node.start()
    assert node.stop() == 0
    many.define()
    node.start()
    many.publish(range(QUEUES))
    stop_s = many.stop_while_publishing()
    assert stop_s > 0
    kills = 0
    # No stop takes as long as the one before it: another one is killed as soon as it begins, should all have been over.
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
