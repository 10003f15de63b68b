"""Tests that the link retries while the broker is away, up to its timeout."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress, ReplyType
from warrenmq.admin.protocol.requests import (
    DescribeQueue,
    GroupList,
    ListGroups,
    QueueDescription,
    Request,
)
from warrenmq.spark.broker_link import BrokerLink, link_to
from warrenmq.spark.retry import SourceError
from warrenmq.vocabulary.error_codes import STORAGE_FAILED


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def test_link_survives_a_restart_of_the_broker(broker: BrokerProcess) -> None:
    """The restarted broker answers a request that failed at the killed one."""
    link = BrokerLink(NodeAddress(broker.uri), "a test", 100_000)
    assert link.request(ListGroups(), GroupList).groups == []
    broker.kill()
    restart = threading.Timer(0.5, broker.start)
    restart.start()
    assert link.request(ListGroups(), GroupList).groups == []
    restart.join()


def test_link_gives_up_after_the_timeout(broker: BrokerProcess) -> None:
    """The error after the timeout has the reason, and not the password."""
    link = BrokerLink(NodeAddress(broker.uri), "a test", 300)
    broker.kill()
    begin = time.monotonic()
    with pytest.raises(
        SourceError, match=r"given up after 0.3 s \(retryTimeoutMs\): no connection"
    ) as caught:
        link.request(ListGroups(), GroupList)
    assert time.monotonic() - begin < 30
    assert "guest" not in str(caught.value)


def test_refusals_are_not_retried(broker: BrokerProcess) -> None:
    """A refusal is an answer, so it is not retried."""
    # With this timeout a retry would outlast the test.
    link = BrokerLink(NodeAddress(broker.uri), "a test", 86_400_000)
    with pytest.raises(AdminRefusedError):
        link.request(DescribeQueue(b"nope"), QueueDescription)


def test_a_broker_that_cannot_store_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that cannot store is asked again over the same connection: its disk may be freed."""
    made: list[AdminClient] = []
    refusals = 2

    class Client(AdminClient):
        def __init__(self, address: NodeAddress, purpose: str = "") -> None:
            made.append(self)

        def request(
            self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
        ) -> ReplyType:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                raise AdminRefusedError(STORAGE_FAILED, "the broker could not store it")
            reply = GroupList([])
            assert isinstance(reply, expected)
            return reply

    monkeypatch.setattr("warrenmq.spark.broker_link.AdminClient", Client)
    link = BrokerLink(NodeAddress("amqp://h"), "a test", 60_000)
    assert link.request(ListGroups(), GroupList).groups == []
    assert len(made) == 1
    refusals = 1 << 62
    link = BrokerLink(NodeAddress("amqp://h"), "a test", 200)
    with pytest.raises(
        SourceError, match=r"given up after 0.2 s \(retryTimeoutMs\): the broker could not store"
    ):
        link.request(ListGroups(), GroupList)


def test_a_broker_of_another_kind_is_not_waited_for() -> None:
    """A broker of another kind is a permanent error: it will not become a node."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        # The client closes the connection at once.
        with accepted, contextlib.suppress(OSError):
            accepted.recv(8)
            accepted.sendall(b"AMQP\x00\x00\x09\x01")
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(65536):
                pass

    server = threading.Thread(target=serve)
    server.start()
    link = BrokerLink(
        NodeAddress(f"amqp://127.0.0.1:{listener.getsockname()[1]}"), "a test", 120_000
    )
    with pytest.raises(SourceError, match=r"broker of another kind or version; .* broker=amqp"):
        link.request(ListGroups(), GroupList)
    server.join()
    listener.close()


def test_links_are_shared_within_a_process() -> None:
    """One connection of a process serves many tasks."""
    assert link_to("amqp://a", "x", 1) is link_to("amqp://a", "x", 1)
    assert link_to("amqp://a", "x", 1) is not link_to("amqp://b", "x", 1)
