"""A workload in a network that is disturbed: clients reconnect, and a node keeps its promises."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster.networks import Network, text_of
from tests.support.cluster.parties import Party, running
from tests.support.cluster.relays import RelayNetwork
from tests.support.cluster.workload_process import RecordedRun

AMQP = "amqp"
CONFIRMS = 100
# Of the options below: two queues with two consumers each.
CONSUMERS = 4
OPTIONS = ["--queues", "3", "--rate", "200"]


@contextmanager
def running_node(network: Network, directory: Path) -> Iterator[Party]:
    """A lone node and the place of its clients."""
    for name in ("client", "node"):
        network.add(name)
    command = [sys.executable, "-m", "warrenmq", "server", "--data-dir", str(directory / "data")]
    command += ["--listen", text_of(network.listen("node", AMQP))]
    command += ["--set", "loopback_users.guest=false"]
    node = Party("node", network, directory, command, "warren is ready")
    with running([node]):
        yield node


def run_workload(network: Network, directory: Path) -> RecordedRun:
    address = text_of(network.reach("client", "node", AMQP))
    uri = f"amqp://guest:guest@{address}/%2F"
    return RecordedRun(directory, [uri], OPTIONS, network.prefix("client"))


@pytest.mark.slow
def test_clients_survive_a_freeze_a_cut_and_a_death(network: Network, tmp_path: Path) -> None:
    """The cut lasts until every client has given its connection up."""
    with running_node(network, tmp_path) as node, run_workload(network, tmp_path) as run:
        run.await_confirms(CONFIRMS)
        with run.fault("freeze", "node"):
            node.freeze()
            node.thaw()
        run.await_confirms(CONFIRMS)
        with run.fault("cut", "node"):
            network.cut("client", "node")
            run.await_losses(CONSUMERS)
            network.heal()
        run.await_confirms(CONFIRMS)
        with run.fault("kill", "node", is_lone_crash=True):
            node.restart()
        run.await_confirms(CONFIRMS)
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()
    assert [gap.fault.kind for gap in verdict.gaps] == ["freeze", "cut", "kill"]


@pytest.mark.slow
def test_clients_survive_resets_and_a_slow_link(relays: RelayNetwork, tmp_path: Path) -> None:
    with running_node(relays, tmp_path), run_workload(relays, tmp_path) as run:
        link = relays.between("client", "node")
        run.await_confirms(CONFIRMS)
        for _ in range(3):
            with run.fault("reset", "node"):
                link.reset()
                run.await_losses(CONSUMERS)
            run.await_confirms(CONFIRMS)
        with run.fault("delay", "node"):
            link.delay_ms = 100
            run.await_confirms(CONFIRMS)
            link.delay_ms = 0
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()
