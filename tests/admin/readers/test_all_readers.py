"""A monitor sees all reader groups and sinks of a node, without a session in their vhosts."""

from tests.support.brokers.memory_node import USER, MemoryClient, MemoryNode
from tests.support.brokers.one_queue_group import open_one
from tests.support.brokers.staged import bodies, stage, staged_message, started
from warrenmq.admin.protocol.readers import DescribeReaders, NodeReaders
from warrenmq.admin.protocol.requests import Login
from warrenmq.broker.definitions.metadata import Definitions, PutUser


def client_of(node: MemoryNode, tag: str) -> MemoryClient:
    """A client of a user with `tag`, in a session without a vhost."""
    definitions = Definitions()
    definitions.users = [PutUser(b"someone", USER.password_hash, USER.hashing, [tag])]
    node.broker.load_users(definitions)
    client = MemoryClient(node, log_in=False)
    client.must(Login("someone", "guest", ""))
    return client


def test_groups_and_sinks_are_told_by_vhost_and_name() -> None:
    node, client = started()
    for body in (b"1", b"2", b"3"):
        node.publish(b"q", body)
    node.commit()
    group = open_one(client, "reports")
    client.must(group.reserve(0, max_messages=2))
    stage(client, "orders", 7, [staged_message(b"a"), staged_message(b"b")])
    node.clock.advance(5_000)
    found = client_of(node, "monitoring").must(DescribeReaders())
    assert isinstance(found, NodeReaders)
    (shown,) = found.groups
    assert (shown.vhost, shown.group, shown.held, shown.lag) == ("/", "reports", 2, 3)
    assert 5 <= shown.lag_seconds < 6
    (sink,) = found.sinks
    assert (sink.vhost, sink.sink.sink, sink.sink.batch) == ("/", "orders", None)
    assert (sink.sink.stages, sink.sink.staged_messages) == (1, 2)
    assert bodies(node) == [b"3"]


def test_groups_and_sinks_are_for_monitors() -> None:
    node, _client = started()
    assert client_of(node, "management").refused(DescribeReaders()) == "access_refused"
