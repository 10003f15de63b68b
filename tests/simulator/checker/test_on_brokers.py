"""Real brokers keep all promises that clients can see, over a restart and a SIGKILL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.brokers import RabbitmqBroker
from tests.support.brokers.other_brokers import OtherBroker, running
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.workload_process import RecordedRun

CONFIRMS = 400


@pytest.fixture
def warren(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process that has not been started yet."""
    process = BrokerProcess(tmp_path / "node")
    yield process
    process.kill()


def judged(broker: OtherBroker, directory: Path) -> None:
    running(broker)
    with RecordedRun(directory, [broker.uri], ["--rate", "300", "--prefix", "judged"]) as run:
        run.await_confirms(CONFIRMS)
        # The restart comes first: RabbitMQ once lost the binding declared last, and the messages
        # with its key, in a kill two seconds later. A stop writes all definitions.
        with run.fault("restart", "the node"):
            broker.stop()
            broker.start()
        run.await_confirms(CONFIRMS)
        with run.fault("kill", "the node", is_lone_crash=True):
            broker.kill()
            broker.start()
        run.await_confirms(CONFIRMS)
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()
    assert verdict.counts["confirmed"] >= 3 * CONFIRMS
    assert [gap.fault.kind for gap in verdict.gaps] == ["restart", "kill"]


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.interop
def test_a_lone_node_keeps_its_promises(warren: BrokerProcess, tmp_path: Path) -> None:
    judged(warren, tmp_path)


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.interop
def test_rabbitmq_keeps_its_promises(rabbitmq: RabbitmqBroker, tmp_path: Path) -> None:
    judged(rabbitmq, tmp_path)
