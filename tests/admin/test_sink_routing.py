"""Messages of a sink are routed through every kind of exchange and queue.

Exchanges and queues may be declared and deleted between stage, commit and move. The subjects are
broker/vhost/sinks/staged_routes.py and broker/vhost/sinks/staging.py.
"""

import pytest

from tests.support.brokers.memory_node import MemoryClient, MemoryNode
from tests.support.brokers.staged import PERSISTENT, bodies, settle, stage, staged_message, started
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    DeleteSink,
    DescribeSink,
    FinishStage,
    OpenStage,
    SinkStatus,
    Staged,
    StageMessages,
    StageOpened,
)
from warrenmq.queues.settings import QueueSettings
from warrenmq.routing.exchange import Exchange
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.properties import Properties


def table(**values: object) -> bytes:
    return encode_table(fields_from_python(dict(values)))


def exchange(node: MemoryNode, name: bytes, **arguments: object) -> Exchange:
    return node.vhost.router.declare_exchange(
        name, b"direct", True, False, False, table(**arguments)
    )


def bind(
    node: MemoryNode, source: bytes, queue: bytes, key: bytes = b"", **arguments: object
) -> None:
    router = node.vhost.router
    router.bind(router.exchanges[source], node.vhost.queues[queue], key, table(**arguments))


def publish(client: MemoryClient, *messages: bytes, batch: int = 0) -> None:
    """Stage, commit and move messages as one batch."""
    client.must(CommitBatch("s", batch, [stage(client, "s", batch, list(messages))], wait_ms=1000))


def test_an_alternate_exchange_gets_what_its_own_does_not_route() -> None:
    node, client = started()
    node.declare(b"rest")
    exchange(node, b"main", **{"alternate-exchange": "amq.fanout"})
    bind(node, b"main", b"q", b"known")
    bind(node, b"amq.fanout", b"rest")
    publish(
        client, staged_message(b"a", b"known", b"main"), staged_message(b"b", b"other", b"main")
    )
    assert (bodies(node), bodies(node, b"rest")) == ([b"a"], [b"b"])


def test_exchanges_behind_exchanges_and_headers_behind_them() -> None:
    """Each queue gets a message once, whatever the number of paths to it."""
    node, client = started()
    node.declare(b"r")
    router = node.vhost.router
    router.bind(router.exchanges[b"amq.topic"], router.exchanges[b"amq.headers"], b"a.*", b"")
    router.bind(router.exchanges[b"amq.topic"], router.exchanges[b"amq.fanout"], b"#", b"")
    bind(node, b"amq.fanout", b"q")
    bind(node, b"amq.topic", b"q", b"a.b")
    bind(node, b"amq.headers", b"r", size=5)
    match = Properties(headers=table(size=5)).encode()
    other = Properties(headers=table(size=6)).encode()
    publish(
        client,
        staged_message(b"1", b"a.b", b"amq.topic", match),
        staged_message(b"2", b"a.b", b"amq.topic", other),
        staged_message(b"3", b"c", b"amq.topic", match),
    )
    assert (bodies(node), bodies(node, b"r")) == ([b"1", b"2", b"3"], [b"1"])


def test_copies_go_to_the_keys_in_the_headers_and_blind_ones_are_not_seen() -> None:
    node, client = started()
    node.declare(b"c")
    node.declare(b"b")
    copies = Properties(headers=table(CC=["c", "q"], BCC=["b"], x=1)).encode()
    publish(
        client,
        staged_message(b"a", properties=copies),
        staged_message(b"b", b"none", properties=copies),
    )
    for name in (b"q", b"c", b"b"):
        entry = node.vhost.queues[name].get(False, node.clock.now_ms())
        assert entry is not None
        assert entry.message.properties == Properties(headers=table(CC=["c", "q"], x=1)).encode()
        assert bodies(node, name) == [b"b"]


@pytest.mark.parametrize("keys", ["c", [1], {"a": 1}])
def test_copies_are_a_list_of_keys(keys: object) -> None:
    """CC must be a list; members that are no strings are ignored, as in basic.publish."""
    node, client = started()
    wrong = Properties(headers=table(CC=keys)).encode()
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    reply = client.ask(
        StageMessages(opened.stage, memoryview(staged_message(b"a", properties=wrong)))
    )
    if isinstance(keys, list):
        assert reply == Staged(1)
    else:
        assert isinstance(reply, ErrorReply)
        assert "unacceptable_type_in_header" in reply.text
        assert node.vhost.staging.stages == {}


def test_nobody_publishes_to_an_internal_exchange() -> None:
    """Staging to an internal exchange is refused, also when it became internal after a message."""
    node, client = started()
    router = node.vhost.router
    outer = exchange(node, b"x")
    bind(node, b"x", b"q")
    publish(client, staged_message(b"a", b"", b"x"))
    router.delete_exchange(outer)
    router.declare_exchange(b"x", b"direct", True, False, True, b"")
    opened = client.must(OpenStage("s", 1))
    assert isinstance(opened, StageOpened)
    block = memoryview(staged_message(b"b", b"", b"x"))
    assert client.refused(StageMessages(opened.stage, block)) == "precondition"


def test_what_is_deleted_behind_the_stage_gets_nothing_and_holds_nothing_up() -> None:
    """A commit publishes to the queues and exchanges that still exist, and does not block."""
    node, client = started()
    node.declare(b"gone")
    going = exchange(node, b"x")
    bind(node, b"x", b"q")
    log = stage(
        client,
        "s",
        0,
        [
            staged_message(b"a", b"", b"x"),
            staged_message(b"b", b"gone"),
            staged_message(b"c" * 9000, b"gone"),
        ],
    )
    last = stage(client, "s", 0, [staged_message(b"d")])
    node.vhost.router.delete_exchange(going)
    client.send(CommitBatch("s", 0, [log, last]))
    node.delete(b"gone")
    settle(node)
    assert client.replies() == [BatchCommitted(is_repeated=False, is_moved=False)]
    node = node.crash()
    settle(node)
    assert bodies(node) == [b"d"]
    assert node.vhost.staging.stages == {}


def test_what_is_declared_anew_behind_the_commit_gets_it() -> None:
    """A queue that is declared anew under the same name gets the message."""
    node, client = started()
    node.declare(b"new")
    log = stage(client, "s", 0, [staged_message(b"a", b"new")])
    node.delete(b"new")
    node.declare(b"new")
    client.must(CommitBatch("s", 0, [log], wait_ms=1000))
    assert bodies(node, b"new") == [b"a"]


@pytest.mark.parametrize("size", [1, 9000])
def test_queues_and_messages_that_live_no_time(size: int) -> None:
    """Messages with a time to live of 0 expire at once, and the batch finishes."""
    node, client = started()
    node.declare(b"now", settings=QueueSettings(message_ttl_ms=0))
    short = Properties(delivery_mode=2, expiration=b"0").encode()
    publish(
        client,
        staged_message(b"a" * size, b"now"),
        staged_message(b"b" * size, properties=short),
        staged_message(b"c"),
    )
    node.clock.advance(1)
    node.vhost.queues[b"now"].drop_expired_head(node.clock.now_ms())
    node.vhost.queues[b"q"].drop_expired_head(node.clock.now_ms())
    assert (bodies(node, b"now"), bodies(node)) == ([], [b"c"])
    settle(node)
    assert node.vhost.staging.stages == {}


def test_expirations_are_counted_from_the_moment_of_publishing() -> None:
    """An expiration counts from the publishing, however long the message was staged."""
    node, client = started()
    second = Properties(delivery_mode=2, expiration=b"1000").encode()
    log = stage(client, "s", 0, [staged_message(b"a", properties=second)])
    node.clock.advance(60_000)
    settle(node)
    client.must(CommitBatch("s", 0, [log], wait_ms=1000))
    entry = node.vhost.queues[b"q"].get(False, node.clock.now_ms())
    assert entry is not None
    assert node.clock.now_ms() < entry.expiry_ms <= node.clock.now_ms() + 1000


def test_those_who_stage_wait_while_memory_is_short() -> None:
    """Clients that stage wait during a memory alarm, as publishers do; sent blocks are not lost."""
    node, client = started()
    other = MemoryClient(node)
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    node.broker.set_limits(node.clock.now_ms())
    node.broker.memory_used(1 << 50, node.clock.now_ms())
    client.send(StageMessages(opened.stage, memoryview(staged_message(b"a"))))
    gone = other.must(OpenStage("t", 0))
    assert isinstance(gone, StageOpened)
    other.send(StageMessages(gone.stage, memoryview(staged_message(b"b"))))
    other.session.connection_lost()
    for _ in range(100):
        settle(node)
        node.clock.advance(10)
    assert client.replies() == other.replies() == []
    node.broker.memory_used(0, node.clock.now_ms())
    node.clock.advance(20)
    assert client.replies() == [Staged(1)]
    client.must(FinishStage(opened.stage, 1))
    client.must(CommitBatch("s", 0, [opened.stage], wait_ms=1000))
    assert bodies(node) == [b"a"]
    assert node.vhost.staging.stages == {}


def test_nothing_is_moved_while_the_disk_is_full() -> None:
    """On a full disk a commit stays, the next one waits, and both resume when there is room."""
    node, client = started()
    other = MemoryClient(node)
    logs = [stage(client, "s", batch, [staged_message(b"%d" % batch)]) for batch in (0, 1)]
    node.broker.set_limits(node.clock.now_ms())
    node.broker.disk_free(0, node.clock.now_ms())
    reply = client.must(CommitBatch("s", 0, logs[:1], wait_ms=1000))
    assert isinstance(reply, BatchCommitted) and not reply.is_moved
    other.send(CommitBatch("s", 1, logs[1:]))
    for _ in range(10):
        settle(node)
        node.clock.advance(10)
    assert other.replies() == []
    assert client.must(DescribeSink("s")) == SinkStatus("s", 0, True, 1, 1, 1)
    assert client.refused(DeleteSink("s")) == "precondition"
    node.broker.disk_free(1 << 50, node.clock.now_ms())
    for _ in range(10):
        settle(node)
        node.clock.advance(10)
    assert other.replies() == [BatchCommitted(False, False)]
    assert bodies(node) == [b"0", b"1"]


def test_a_sink_that_is_deleted_under_its_writers() -> None:
    """A deleted sink loses its stages; its writers get errors, and batch numbers begin anew."""
    node, client = started()
    publish(client, staged_message(b"a"), batch=7)
    finished = stage(client, "s", 8, [staged_message(b"b")])
    opened = client.must(OpenStage("s", 8))
    assert isinstance(opened, StageOpened)
    MemoryClient(node).must(DeleteSink("s"))
    block = memoryview(staged_message(b"c"))
    assert client.refused(StageMessages(opened.stage, block)) == "not_found"
    assert client.refused(FinishStage(opened.stage, 0)) == "not_found"
    assert client.refused(CommitBatch("s", 8, [finished])) == "not_found"
    publish(client, staged_message(b"d", properties=PERSISTENT), batch=0)
    assert bodies(node.crash()) == [b"a", b"d"]


def test_a_commit_whose_client_is_gone_counts_as_its_repetition_does() -> None:
    """A waiting commit of a lost client and its repetition with another stage publish once."""
    node, client = started()
    first, second = (stage(client, "s", batch, [staged_message(b"%d" % batch)]) for batch in (0, 1))
    client.send(CommitBatch("s", 0, [first]))
    killed = MemoryClient(node)
    killed.send(CommitBatch("s", 1, [second]))
    killed.session.connection_lost()
    again = MemoryClient(node)
    repeated = stage(again, "s", 1, [staged_message(b"1")])
    again.must(CommitBatch("s", 1, [repeated], wait_ms=1000))
    settle(node)
    assert bodies(node.crash()) == [b"0", b"1"]
    assert node.vhost.staging.stages == {}
