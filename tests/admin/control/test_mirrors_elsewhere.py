"""A mirrored queue whose master is another node: listings, and requests that are passed on (F9)."""

from typing import Any, cast

import msgspec
import pytest

from tests.admin.control.test_peers import FakeCluster
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.mirrors import MirrorsOfTest, copy, facts
from warrenmq.admin.control.listings import ListingCalls
from warrenmq.admin.control.mirrors import MirrorCalls
from warrenmq.admin.control.peers import Peers, decode_passed
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.listings.listing import down_queue_rows
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.mirrors import CancelSync, DescribeMirrors, MirrorStatus, SyncQueue
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.session_user import SessionUser
from warrenmq.cluster.membership.control import ClusterControl
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.remote.queue_link import QueueLink

HOME = "a@one"
DESCRIBE = DescribeMirrors(vhost="/", queue=b"q")
LIST = List(what="queues", columns=["name", "state"], vhost="/")
SYNC = SyncQueue(vhost="/", queue=b"q")


class Link(QueueLink):
    """A link on which nothing is sent."""


class Elsewhere:
    """A node that knows the queue `q`, whose master is on HOME; there is no link to it yet."""

    def __init__(self) -> None:
        memory = MemoryBroker()
        self.broker = memory.broker
        self.mirrors = MirrorsOfTest()
        self.broker.mirrors = self.mirrors
        mirror = copy("warren@localhost", is_synced=False, lag=(-1, -1))
        self.mirrors.put("q", facts(mirror, master=HOME, reason="declared"))
        settings = parse_arguments(b"", "queue 'q'")
        definition = QueueDefinition(b"q", 0, True, False, None, b"", settings, 40)
        memory.vhost.add_remote_queue(definition, HOME.encode())
        self.cluster = FakeCluster()
        self.replies: list[Any] = []
        permits = Permits(self.broker, SessionUser(self.broker.access, b"", True))
        peers = Peers(cast(ClusterControl, self.cluster), b"", lambda step: step())
        self.calls = MirrorCalls(self.broker, permits, peers, self.replies.append)
        self.listings = ListingCalls(
            self.broker, permits, peers, lambda step: step(), self.replies.append
        )
        self.passed = MirrorCalls(self.broker, permits, None, self.replies.append)

    def answer_listing(self, node: str, *rows: list[Any]) -> None:
        """Let `node` answer a listing: the columns that were asked for, and the name."""
        request, done = self.cluster.asked.pop(node)
        _user, asked = decode_passed(request)
        assert asked == msgspec.structs.replace(
            LIST, which="local", columns=[*LIST.columns, "name"]
        )
        done(msgspec.msgpack.encode(Rows([[*row, row[0]] for row in rows])), "")


def test_a_queue_without_its_master_is_listed_with_its_copies() -> None:
    side = Elsewhere()
    columns = ["name", "state", "reason", "leader", "members", "online", "slave_nodes"]
    request = List(what="queues", columns=columns, vhost="/")
    mirror = ["warren@localhost"]
    assert list(down_queue_rows(side.broker, request)) == [
        ["q", "down", "declared", HOME, mirror, mirror, mirror]
    ]


def test_a_queue_that_moves_between_the_answers_is_listed() -> None:
    """Node b answers before the queue comes to it, and node a when it is gone."""
    side = Elsewhere()
    side.broker.remote_node(HOME.encode()).link_up(Link())
    side.listings.start(LIST)
    side.answer_listing("b@two")
    side.answer_listing(HOME)
    assert side.replies == []
    side.answer_listing("b@two", ["q", "running"])
    side.answer_listing(HOME)
    assert side.replies == [Rows([["q", "running"]], [])] and side.cluster.asked == {}


def test_a_queue_that_two_nodes_answer_for_is_listed_once() -> None:
    """The queue moves from node b, which has listed it, to node a, which has not answered yet."""
    side = Elsewhere()
    side.listings.start(LIST)
    side.answer_listing("b@two", ["q", "running"])
    side.answer_listing(HOME, ["q", "running"], ["new", "running"])
    (rows,) = side.replies
    assert sorted(rows.rows) == [["new", "running"], ["q", "running"]]


def test_a_queue_that_no_node_has_is_listed_as_down() -> None:
    side = Elsewhere()
    side.broker.remote_node(HOME.encode()).link_up(Link())
    side.listings.start(LIST)
    while side.cluster.asked:
        side.answer_listing(HOME)
        side.answer_listing("b@two")
    assert side.replies == [Rows([["q", "down"]], [])]


def test_a_node_that_does_not_answer_is_not_asked_again() -> None:
    side = Elsewhere()
    side.broker.remote_node(HOME.encode()).link_up(Link())
    side.listings.start(LIST)
    side.answer_listing("b@two")
    _request, done = side.cluster.asked.pop(HOME)
    done(b"", "no answer")
    assert side.replies == [Rows([], [HOME])] and side.cluster.asked == {}


def test_a_vhost_that_goes_between_the_answers_is_not_found() -> None:
    side = Elsewhere()
    side.listings.start(LIST)
    side.answer_listing("b@two", ["q", "running"])
    del side.broker.vhosts[b"/"]
    side.answer_listing(HOME)
    assert side.replies == [ErrorReply("no_such_vhost", "Virtual host '/' does not exist")]


def test_without_its_master_a_queue_is_described_and_nothing_else() -> None:
    side = Elsewhere()
    side.calls.start(DESCRIBE)
    (status,) = side.replies
    assert isinstance(status, MirrorStatus)
    assert (status.state, status.node, status.pid, status.messages) == ("down", HOME, None, None)
    assert status.mirrors[0].lag_messages is None
    for request in (SYNC, CancelSync(vhost="/", queue=b"q")):
        with pytest.raises(Refusal) as refused:
            side.calls.start(request)
        assert refused.value.code == "unreachable"
        assert refused.value.text == "the master of queue 'q' in vhost '/' is down: declared"
    assert side.mirrors.asked == [] and side.cluster.asked == {}


def test_the_node_of_the_master_answers() -> None:
    side = Elsewhere()
    side.broker.remote_node(HOME.encode()).link_up(Link())
    for request in (DESCRIBE, SYNC):
        side.calls.start(request)
        passed, _done = side.cluster.asked.pop(HOME)
        assert decode_passed(passed) == (b"", request)
    assert side.replies == [] and side.mirrors.asked == []
    # The master has moved while the request was under way: it does not go round.
    with pytest.raises(Refusal):
        side.passed.start(SYNC)
    assert side.cluster.asked == {}
