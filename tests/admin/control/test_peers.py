"""Requests that pass from node to node, without nodes: what is encoded, and what is not known."""

from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.peers import Answer, Peers, ask_other
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.node import AdminNode
from warrenmq.admin.peer_calls import PeerCalls
from warrenmq.admin.protocol.control import Done, PurgeQueue, Rows
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.cluster.membership.control import ClusterControl

PURGE = PurgeQueue(vhost="/", queue=b"q")


class FakeCluster:
    """Two linked nodes; `asked` has the requests, with what takes their answers."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[bytes, Callable[[bytes, str], None]]] = {}

    def reachable(self) -> list[str]:
        return ["a@one", "b@two"]

    def ask(
        self, node: str, request: bytes, _wait_ms: int, done: Callable[[bytes, str], None]
    ) -> None:
        self.asked[node] = (request, done)


class FakeNode:
    """Carries out nothing; `carried` has the users and requests."""

    def __init__(self) -> None:
        self.carried: list[object] = []

    def carry(
        self, user: bytes, request: object, _clock: Clock, reply: Callable[[Answer], None]
    ) -> None:
        self.carried.append((user, request))
        reply(Done())


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def peers(cluster: FakeCluster) -> Peers:
    return Peers(cast(ClusterControl, cluster), b"user", lambda step: step())


def test_answers_come_together_whatever_their_order(cluster: FakeCluster, peers: Peers) -> None:
    found: list[dict[str, Answer]] = []
    peers.ask_all(PURGE, found.append)
    cluster.asked["b@two"][1](msgspec.msgpack.encode(Rows([[1]])), "")
    assert found == []
    cluster.asked["a@one"][1](b"", "the link was lost")
    assert found == [
        {"a@one": ErrorReply("unreachable", "the link was lost"), "b@two": Rows([[1]])}
    ]
    assert list(found[0]) == ["a@one", "b@two"]


def test_a_request_arrives_with_its_user(cluster: FakeCluster, peers: Peers) -> None:
    found: list[Answer] = []
    peers.ask("a@one", PURGE, found.append)
    request, done = cluster.asked["a@one"]
    node = FakeNode()
    calls = PeerCalls(cast(AdminNode, node), cast(Clock, None))
    calls.answer("c@three", request, lambda answer: done(answer, ""))
    assert node.carried == [(b"user", PURGE)]
    assert found == [Done()]


def test_a_node_without_a_link_is_not_asked(cluster: FakeCluster, peers: Peers) -> None:
    for known, node in ((peers, "c@three"), (None, "a@one")):
        with pytest.raises(Refusal, match=f"there is no link to a node {node}") as refused:
            ask_other(known, node, PURGE, lambda _answer: None)
        assert refused.value.code == "unreachable"
    assert cluster.asked == {}


def test_what_only_a_later_version_knows_is_refused(cluster: FakeCluster, peers: Peers) -> None:
    found: list[Answer] = []
    peers.ask("a@one", PURGE, found.append)
    cluster.asked["a@one"][1](msgspec.msgpack.encode({"type": "later"}), "")
    assert isinstance(found[0], ErrorReply) and found[0].code == "unreachable"
    replies: list[bytes] = []
    calls = PeerCalls(cast(AdminNode, FakeNode()), cast(Clock, None))
    for request in ([b"user", {"type": "later"}], [b"user"], "nonsense"):
        calls.answer("a@one", msgspec.msgpack.encode(request), replies.append)
    codes = [msgspec.msgpack.decode(reply, type=ErrorReply).code for reply in replies]
    assert codes == ["bad_request"] * 3
