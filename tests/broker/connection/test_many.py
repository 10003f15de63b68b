"""What one of many connections costs, counted."""

from typing import cast

from tests.support.brokers.amqp_frames import PROTOCOL_HEADER
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker

OTHERS = 1000


class Other:
    """Stands for another connection, and counts comparisons with it."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Other.compared += 1
        return self is other

    __hash__ = object.__hash__


def test_a_client_that_leaves_is_compared_with_no_other() -> None:
    broker = MemoryBroker().broker
    connections = cast(dict[object, None], broker.connections)
    connections.update(dict.fromkeys(Other() for _ in range(OTHERS)))
    leaving = broker.connect("test", True, 0)
    Other.compared = 0
    broker.disconnect(leaving, 0)
    assert len(connections) == OTHERS
    # Equal hashes are possible.
    assert Other.compared < OTHERS // 10


def test_the_shell_looks_only_at_sockets_that_have_a_deadline_or_are_not_read() -> None:
    memory = MemoryBroker()
    broker = memory.broker
    for _ in range(4):
        Peer(memory.connect()).open()
    assert broker.tick_connections(memory.now_ms) == []
    memory.connect().send(PROTOCOL_HEADER)
    _idle, closing, unread, unsent, opening = broker.connections
    closing.abort(memory.now_ms)
    unread.is_unread = True
    unsent.out.set_unsent(1)
    assert broker.tick_connections(memory.now_ms) == [closing, unread, unsent, opening]
