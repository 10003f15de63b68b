"""Objects that a node drops are freed while it runs.

The cycle collector does not see entries, so the code that drops a queue, a channel, a group or a
failed batch must break the cycles through entries itself.
"""

import gc
from collections.abc import Iterator

import pytest

from simulator.histories import make_history
from simulator.sessions.draining import REST_ROUNDS, drain_queues
from simulator.sessions.reserved_messages import take_back
from simulator.sessions.sinks import clear_sinks
from simulator.simulation import Simulation
from warrenmq.broker.broker import Broker

HISTORIES = 60
# The first pass may free only the error that kept a failed batch, whose entries kept the rest.
PASSES = 3


class Survivor(Simulation):
    """Runs a history without a restart at its end: the node is drained as it is."""

    node_is_empty = False

    def _finish(self) -> None:
        self._lift_faults()
        self.sessions.close_all()
        take_back(self.node, self.oracle)
        drain_queues(self.node, self.oracle)
        clear_sinks(self.node)
        for _ in range(REST_ROUNDS):
            self._move_clock(3_000)
            self.node.tick()
            self.node.drain()
        self.node_is_empty = True


@pytest.fixture
def own_objects() -> Iterator[None]:
    """Hide older objects from the collector, which would walk through them at each collection."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("own_objects")
def test_an_empty_node_can_be_freed_as_a_whole() -> None:
    """One entry left anywhere would keep its queue, and with it the broker."""
    for seed in range(1, HISTORIES + 1):
        gc.collect()
        survivor = Survivor(make_history(seed))
        violation = survivor.run()
        assert violation is None, (seed, violation)
        assert survivor.node_is_empty
        survivor.node.broker.vhosts[b"of the survivor"] = survivor.node.vhost
        # Nodes that crashed earlier remain, and refer to this node through their clients' models.
        survivor.disk.files.interrupt = None
        survivor.staged.sinks.clear()
        del survivor.node, survivor.sessions, survivor
        for _ in range(PASSES):
            gc.collect()
        left = [
            thing
            for thing in gc.get_objects()
            if type(thing) is Broker and b"of the survivor" in thing.vhosts
        ]
        assert left == [], seed
