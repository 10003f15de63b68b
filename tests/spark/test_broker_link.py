"""A broker that is away for a moment is waited for, and not for ever."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from warren.admin.client import AdminRefusedError, NodeAddress
from warren.admin.protocol import DescribeQueue, GroupList, ListGroups, QueueDescription
from warren.spark.broker_link import BrokerLink, SourceError, link_to


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def test_link_survives_a_restart_of_the_broker(broker: BrokerProcess) -> None:
    """The request that met the dead broker is answered by the next one."""
    link = BrokerLink(NodeAddress(broker.uri), "a test", 30_000)
    assert link.request(ListGroups(), GroupList).groups == []
    broker.kill()
    restart = threading.Timer(0.5, broker.start)
    restart.start()
    assert link.request(ListGroups(), GroupList).groups == []
    restart.join()


def test_link_gives_up_after_the_timeout(broker: BrokerProcess) -> None:
    """With the reason, and without the password."""
    link = BrokerLink(NodeAddress(broker.uri), "a test", 300)
    broker.kill()
    begin = time.monotonic()
    with pytest.raises(
        SourceError, match=r"given up after 0.3 s \(retryTimeoutMs\): no connection"
    ) as caught:
        link.request(ListGroups(), GroupList)
    assert time.monotonic() - begin < 5
    assert "guest" not in str(caught.value)


def test_refusals_are_not_retried(broker: BrokerProcess) -> None:
    """They are answers."""
    link = BrokerLink(NodeAddress(broker.uri), "a test", 30_000)
    begin = time.monotonic()
    with pytest.raises(AdminRefusedError):
        link.request(DescribeQueue(b"nope"), QueueDescription)
    assert time.monotonic() - begin < 5


def test_links_are_shared_within_a_process() -> None:
    """One connection serves many tasks."""
    assert link_to("amqp://a", "x", 1) is link_to("amqp://a", "x", 1)
    assert link_to("amqp://a", "x", 1) is not link_to("amqp://b", "x", 1)
