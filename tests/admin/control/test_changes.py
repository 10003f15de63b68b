"""Sessions are told of changed figures apart from each other; who may not see them is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.protocol.changes import (
    CONNECTION,
    COUNTERS,
    EXCHANGE,
    LEVELS,
    NODE,
    QUEUE,
    Changes,
    ReadChanges,
)
from warrenmq.admin.protocol.control import AddUser, Done, SetUserTags
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, BAD_REQUEST


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    running = NodeThread(tmp_path)
    yield running
    running.stop()


def ask(client: AdminClient, kind: str) -> Changes:
    return client.request(ReadChanges(kind), Changes)


def test_each_session_is_told_everything_once(node: NodeThread) -> None:
    peer = node.peer().open()
    channel = peer.channel()
    channel.declare(b"q")
    with AdminClient(NodeAddress(node.uri)) as first, AdminClient(NodeAddress(node.uri)) as second:
        for client in (first, second):
            assert [(each.vhost, each.name) for each in ask(client, QUEUE).changed] == [("/", "q")]
            assert ask(client, QUEUE).changed == []
            assert "amq.direct" in [each.name for each in ask(client, EXCHANGE).changed]
            assert [each.vhost for each in ask(client, CONNECTION).changed] == ["/"]
        channel.delete(b"q")
        for client in (first, second):
            answer = ask(client, QUEUE)
            assert (answer.changed, len(answer.gone), answer.has_more) == ([], 1, False)
    peer.close()


def test_the_node_is_told_as_one_object(node: NodeThread) -> None:
    peer = node.peer().open()
    peer.channel()
    with AdminClient(NodeAddress(node.uri)) as client:
        answer = ask(client, NODE)
        (told,) = answer.changed
        assert told.name == node.node.config.node_name
        counters = dict(zip(COUNTERS[NODE], told.counters, strict=True))
        levels = dict(zip(LEVELS[NODE], told.levels, strict=True))
        assert (counters["connection_created"], counters["channel_created"]) == (1, 1)
        assert (levels["connections"], levels["channels"]) == (1, 1)
        # The session has a socket too.
        assert levels["fd_used"] > levels["sockets_used"] == 2
        assert answer.started_ms <= answer.now_ms
    peer.close()


def test_who_may_not_monitor_is_told_nothing(node: NodeThread) -> None:
    with AdminClient(NodeAddress(node.uri)) as client:
        client.request(AddUser(name="u", password="p"), Done)
        client.request(SetUserTags(name="u", tags=["policymaker"]), Done)
        with pytest.raises(AdminRefusedError) as refused:
            ask(client, "planet")
        assert refused.value.code == BAD_REQUEST
    address = NodeAddress(f"amqp://u:p@127.0.0.1:{node.port}")
    address.vhost = ""
    with AdminClient(address) as client:
        with pytest.raises(AdminRefusedError) as refused:
            ask(client, QUEUE)
        assert refused.value.code == ACCESS_REFUSED
