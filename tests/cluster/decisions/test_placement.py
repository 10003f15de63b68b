"""Which node a new queue is placed on, while some nodes are in maintenance."""

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL, MIN_MASTERS, RANDOM, Placement
from warrenmq.cluster.definitions_copy import DefinitionsCopy

HERE, OTHER = b"a@here", b"b@there"


def place(locator: str, nodes: list[bytes], is_exclusive: bool = False) -> bytes:
    """The node for a queue with `locator`, declared here, when `nodes` can take it."""
    placement = Placement(
        HERE,
        MemoryBroker().broker,
        DefinitionsCopy(),
        lambda: nodes,
        CLIENT_LOCAL,
        lambda found: found[-1],
    )
    arguments = table(**{"x-queue-master-locator": locator})
    return placement.choose(
        PutQueue(b"/", 0, b"q", True, False, arguments, is_exclusive=is_exclusive)
    )


@pytest.mark.parametrize("locator", [CLIENT_LOCAL, MIN_MASTERS, RANDOM])
def test_a_node_in_maintenance_gets_no_new_queue(locator: str) -> None:
    assert place(locator, [OTHER]) == OTHER
    assert place(locator, [HERE]) == HERE
    # An exclusive queue lives with its connection, and some node must take the others.
    assert place(locator, [OTHER], is_exclusive=True) == HERE
    assert place(locator, []) == HERE


def test_without_maintenance_the_locator_decides() -> None:
    both = [OTHER, HERE]
    assert [place(each, both) for each in (CLIENT_LOCAL, MIN_MASTERS, RANDOM)] == [
        HERE,
        HERE,
        OTHER,
    ]
