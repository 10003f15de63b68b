"""Sinks publish exactly once: stages, commits, and their state after a crash.

The subjects are broker/vhost/sinks/staging.py and admin/sink_calls.py.
"""

import pytest

from tests.support.brokers.memory_node import USER, MemoryClient, MemoryNode
from tests.support.brokers.staged import (
    PERSISTENT,
    TRANSIENT,
    bodies,
    settle,
    stage,
    staged_message,
    started,
)
from warrenmq.admin.protocol.requests import (
    REQUEST_BYTES_MAX,
    ErrorReply,
)
from warrenmq.admin.protocol.sinks import (
    AbortStages,
    BatchCommitted,
    CommitBatch,
    DeleteSink,
    DescribeSink,
    FinishStage,
    ListSinks,
    OpenStage,
    SinkList,
    SinkStatus,
    StageMessages,
    StageOpened,
    StagesAborted,
)
from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.sinks.stage import STAGE_TTL_MS
from warrenmq.queues.leave_reason import ACKED
from warrenmq.wire.properties import Properties


def one_batch(node: MemoryNode, ok: bool) -> None:
    """Run a single group commit, which succeeds or fails."""
    batch = node.vhost.journal.seal()
    if ok:
        node.disk.store(batch.change_sets)
        node.driver.flush(batch, node.clock.now_ms())
    else:
        node.driver.fail(batch, node.clock.now_ms())


def test_a_batch_appears_when_it_is_committed() -> None:
    node, client = started()
    first = stage(client, "s", 0, [staged_message(b"a"), staged_message(b"b")])
    second = stage(client, "s", 0, [staged_message(b"c")])
    assert node.vhost.queues[b"q"].ready_count == 0
    assert list(node.vhost.queues) == [b"q"], "nobody sees a stage"
    reply = client.must(CommitBatch("s", 0, [second, first], wait_ms=1000))
    assert reply == BatchCommitted(is_repeated=False, is_moved=True)
    assert bodies(node) == [b"c", b"a", b"b"]
    settle(node)
    assert node.vhost.staging.stages == {}
    assert node.disk.stages == {}
    assert node.disk.sinks[b"s"].stages == []


def test_a_repeated_commit_publishes_nothing() -> None:
    node, client = started()
    client.must(CommitBatch("s", 3, [stage(client, "s", 3, [staged_message(b"a")])], wait_ms=1000))
    again = stage(client, "s", 3, [staged_message(b"a")])
    reply = client.must(CommitBatch("s", 3, [again], wait_ms=1000))
    assert reply == BatchCommitted(is_repeated=True, is_moved=True)
    older = stage(client, "s", 2, [staged_message(b"z")])
    assert client.must(CommitBatch("s", 2, [older])) == BatchCommitted(
        is_repeated=True, is_moved=True
    )
    settle(node)
    assert bodies(node) == [b"a"]
    assert node.vhost.staging.stages == {}
    other = stage(client, "other", 3, [staged_message(b"b")])
    client.must(CommitBatch("other", 3, [other], wait_ms=1000))
    assert bodies(node.crash()) == [b"a", b"b"]


def test_finished_stages_outlive_a_crash_and_others_do_not() -> None:
    node, client = started()
    finished = stage(client, "s", 0, [staged_message(b"a"), staged_message(b"L" * 9000)])
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    client.must(StageMessages(opened.stage, memoryview(staged_message(b"lost"))))
    settle(node)
    node = node.crash()
    client = MemoryClient(node)
    assert list(node.vhost.staging.stages) == [finished]
    assert client.refused(FinishStage(opened.stage, 1)) == "not_found"
    client.must(CommitBatch("s", 0, [finished], wait_ms=1000))
    assert bodies(node) == [b"a", b"L" * 9000]
    settle(node)
    assert node.disk.stages == {}
    assert bodies(node.crash()) == [b"a", b"L" * 9000]


def test_what_no_commit_names_goes() -> None:
    node, client = started()
    kept = stage(client, "s", 0, [staged_message(b"a")])
    stage(client, "s", 0, [staged_message(b"earlier attempt")])
    later = stage(client, "s", 1, [staged_message(b"b")])
    aborted = stage(client, "t", 0, [staged_message(b"no")])
    assert client.must(AbortStages([aborted, 4711])) == StagesAborted(1)
    client.must(CommitBatch("s", 0, [kept], wait_ms=1000))
    settle(node)
    assert list(node.vhost.staging.stages) == [later]
    node.clock.advance(STAGE_TTL_MS + 20_000)
    settle(node)
    assert node.vhost.staging.stages == {}
    assert client.refused(CommitBatch("s", 1, [later])) == "not_found"
    assert bodies(node) == [b"a"]


def test_a_client_that_goes_takes_what_it_has_not_finished() -> None:
    node, client = started()
    finished = stage(client, "s", 0, [staged_message(b"a")])
    client.must(OpenStage("s", 0))
    client.session.connection_lost()
    assert list(node.vhost.staging.stages) == [finished]


def test_mandatory_refuses_before_anything_is_published() -> None:
    node, client = started()
    messages = [
        staged_message(b"a"),
        staged_message(b"b", b"nowhere"),
        staged_message(b"c", b"gone"),
    ]
    log = stage(client, "s", 0, messages)
    reply = client.ask(CommitBatch("s", 0, [log]))
    assert isinstance(reply, ErrorReply)
    assert reply.code == "unroutable"
    assert reply.text.startswith(
        "2 messages would get to no queue, the first one with routing key 'nowhere'"
    )
    assert bodies(node) == []
    client.must(CommitBatch("s", 0, [log], mandatory=False, wait_ms=1000))
    assert bodies(node) == [b"a"]


def test_messages_are_routed_by_their_own_exchange_key_and_headers() -> None:
    node, client = started()
    node.declare(b"r")
    router = node.vhost.router
    queues = node.vhost.queues
    router.bind(router.exchanges[b"amq.topic"], queues[b"r"], b"a.#", b"")
    router.bind(router.exchanges[b"amq.fanout"], queues[b"q"], b"", b"")
    router.bind(router.exchanges[b"amq.fanout"], queues[b"r"], b"", b"")
    arguments = b"\x01kS\x00\x00\x00\x01v"
    router.bind(router.exchanges[b"amq.headers"], queues[b"q"], b"", arguments)
    with_header = Properties(headers=arguments, delivery_mode=2).encode()
    log = stage(
        client,
        "s",
        0,
        [
            staged_message(b"1", b"a.b", b"amq.topic"),
            staged_message(b"2", b"", b"amq.fanout"),
            staged_message(b"3", b"", b"amq.headers", with_header),
        ],
    )
    client.must(CommitBatch("s", 0, [log], wait_ms=1000))
    settle(node)
    assert bodies(node) == [b"2", b"3"]
    assert bodies(node, b"r") == [b"1", b"2"]
    again = node.crash()
    assert bodies(again) == [b"2", b"3"]
    assert bodies(again, b"r") == [b"1", b"2"]


def test_transient_messages_are_moved_too() -> None:
    node, client = started()
    node.declare(b"t", durable=False)
    log = stage(
        client, "s", 0, [staged_message(b"a", properties=TRANSIENT), staged_message(b"b", b"t")]
    )
    client.must(CommitBatch("s", 0, [log], wait_ms=1000))
    assert bodies(node) == [b"a"]
    assert bodies(node, b"t") == [b"b"]
    settle(node)
    assert node.disk.stages == {}


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (staged_message(b"a")[:-1], "bad_request"),
        (b"\x00\x00\x00", "bad_request"),
        (b"\x00\x00\x00\x05hello", "bad_request"),
        (staged_message(b"a", properties=b"\x10\x00\x07"), "bad_request"),
        (staged_message(b"a", exchange=b"no.such"), "not_found"),
        (staged_message(b"a", properties=Properties(user_id=b"somebody").encode()), "precondition"),
        (
            staged_message(b"a", properties=Properties(reply_to=b"amq.rabbitmq.reply-to").encode()),
            "precondition",
        ),
    ],
)
def test_a_block_that_is_not_right_ends_its_log(block: bytes, code: str) -> None:
    node, client = started()
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    assert (
        client.refused(StageMessages(opened.stage, memoryview(staged_message(b"x") + block)))
        == code
    )
    assert node.vhost.staging.stages == {}
    assert client.refused(FinishStage(opened.stage, 1)) == "not_found"


def test_commits_that_do_not_fit_are_refused() -> None:
    _, client = started()
    log = stage(client, "s", 0, [staged_message(b"a")])
    assert client.refused(CommitBatch("s", 1, [log])) == "precondition"
    assert client.refused(CommitBatch("t", 0, [log])) == "precondition"
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    assert client.refused(CommitBatch("s", 0, [opened.stage])) == "precondition"
    assert client.refused(FinishStage(opened.stage, 5)) == "precondition"


def test_a_commit_names_each_log_once() -> None:
    node, client = started()
    staged = stage(client, "s", 0, [staged_message(b"a")])
    assert client.refused(CommitBatch("s", 0, [staged, staged])) == "precondition"
    client.must(CommitBatch("s", 0, [staged], wait_ms=1000))
    assert bodies(node) == [b"a"]


def test_sinks_are_described_and_deleted() -> None:
    node, client = started()
    assert client.must(ListSinks()) == SinkList([])
    assert client.refused(DescribeSink("s")) == "not_found"
    assert client.refused(DeleteSink("s")) == "not_found"
    stage(client, "t", 0, [staged_message(b"a"), staged_message(b"b")])
    client.must(CommitBatch("s", 7, [], wait_ms=1000))
    assert client.must(ListSinks()) == SinkList(
        [SinkStatus("s", 7, False, 0, 0, 0), SinkStatus("t", None, False, 0, 1, 2)]
    )
    client.must(DeleteSink("t"))
    client.must(DeleteSink("s"))
    node = node.crash()
    assert MemoryClient(node).must(ListSinks()) == SinkList([])


def test_a_failed_write_of_staged_messages_is_told() -> None:
    node, client = started()
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    client.must(StageMessages(opened.stage, memoryview(staged_message(b"a"))))
    node.commit(ok=False)
    assert client.refused(FinishStage(opened.stage, 1)) == "storage_failed"
    assert node.vhost.staging.stages == {}


def test_a_commit_that_fails_first_is_answered_when_it_is_durable() -> None:
    node, client = started()
    log = stage(client, "s", 0, [staged_message(b"a")])
    client.send(CommitBatch("s", 0, [log], wait_ms=1000))
    node.commit(ok=False)
    assert client.replies() == []
    settle(node)
    node.clock.advance(1000)
    assert client.replies() == [BatchCommitted(is_repeated=False, is_moved=True)]
    assert bodies(node.crash()) == [b"a"]


@pytest.mark.parametrize("size", [10, 6000])
@pytest.mark.parametrize("failures", [1, 2])
def test_moves_of_a_batch_that_fails_are_written_again(size: int, failures: int) -> None:
    node, client = started()
    node.declare(b"r")
    router = node.vhost.router
    for name in (b"q", b"r"):
        router.bind(router.exchanges[b"amq.fanout"], node.vhost.queues[name], b"", b"")
    wanted = [bytes([65 + number]) * size for number in range(5)]
    log = stage(client, "s", 0, [staged_message(body, b"", b"amq.fanout") for body in wanted])
    client.send(CommitBatch("s", 0, [log]))
    one_batch(node, True)
    node.vhost.advance(node.clock.now_ms())
    queue = node.vhost.queues[b"q"]
    assert queue.ready_count == 5
    taken = queue.get(False, node.clock.now_ms())
    assert taken is not None
    for _ in range(failures):
        one_batch(node, False)
        node.vhost.advance(node.clock.now_ms())
        assert node.vhost.staging.stages, "nothing is settled before it is durable"
    # Ack one message between the failure and the retry.
    queue.leave(taken, ACKED, node.clock.now_ms())
    settle(node)
    assert node.disk.stages == {}
    after = node.crash()
    assert bodies(after) == wanted[1:]
    assert bodies(after, b"r") == wanted


@pytest.mark.parametrize("size", [10, 6000])
@pytest.mark.parametrize("is_purged", [False, True])
def test_what_was_settled_in_the_index_before_its_move_is_written_again_stays_settled(
    size: int, is_purged: bool
) -> None:
    node, client = started()
    wanted = [bytes([65 + number]) * size for number in range(5)]
    log = stage(client, "s", 0, [staged_message(body) for body in wanted])
    client.send(CommitBatch("s", 0, [log]))
    one_batch(node, True)
    node.vhost.advance(node.clock.now_ms())
    one_batch(node, False)
    queue = node.vhost.queues[b"q"]
    queue.backing.memory.set_mode(True)
    node.work()
    assert queue.backing.ready.delta.count == 5, (
        "none of the entries that the journal knows is the queue's any more"
    )
    if is_purged:
        queue.purge(node.clock.now_ms())
        node.work()
    while queue.ready_count:
        entry = queue.get(False, node.clock.now_ms())
        if entry is not None:
            queue.leave(entry, ACKED, node.clock.now_ms())
        else:
            queue.when_head(lambda _now_ms: None)
            node.work()
    settle(node)
    assert node.disk.stages == {}
    assert bodies(node.crash()) == []


def administrator(node: MemoryNode) -> MemoryClient:
    """Open the session of an administrator."""
    node.broker.access.users[b"guest"] = PutUser(
        USER.name, USER.password_hash, USER.hashing, ["administrator"]
    )
    return MemoryClient(node)


def test_a_staging_log_for_a_queue_is_not_routed() -> None:
    """Messages staged for a queue keep their addresses and user-ids, also after crashes.

    An address may lead nowhere, and a user-id may name another user.
    """
    node, _ = started()
    node.declare(b"r")
    client = administrator(node)
    theirs = Properties(delivery_mode=2, user_id=b"alice").encode()
    messages = [
        staged_message(b"a", b"k", b"gone", theirs),
        staged_message(b"b", b"q", b"", PERSISTENT),
        staged_message(b"L" * 9000, b"", b"amq.topic", PERSISTENT),
    ]
    log = stage(client, "s", 0, messages, b"r")
    node = node.crash()
    MemoryClient(node).must(CommitBatch("s", 0, [log]))
    node = node.crash()
    settle(node)
    assert bodies(node) == []
    found = []
    while node.vhost.queues[b"r"].ready_count:
        entry = node.vhost.queues[b"r"].get(False, node.clock.now_ms())
        if entry is None:
            node.vhost.queues[b"r"].when_head(lambda _now_ms: None)
            node.work()
        else:
            found.append((entry.message.address, entry.message.properties, entry.message.body))
    assert found == [
        (b"\x04gone\x01k", theirs, b"a"),
        (b"\x00\x01q", PERSISTENT, b"b"),
        (b"\x09amq.topic\x00", PERSISTENT, b"L" * 9000),
    ]


def test_a_queue_that_is_not_there_gets_nothing() -> None:
    """A stage for a missing queue counts as unroutable; without mandatory it is dropped."""
    node, _ = started()
    client = administrator(node)
    log = stage(client, "s", 0, [staged_message(b"a")], b"not-there")
    assert client.refused(CommitBatch("s", 0, [log])) == "unroutable"
    client.must(CommitBatch("s", 0, [log], mandatory=False, wait_ms=1000))
    assert bodies(node) == []


def test_only_administrators_put_messages_into_queues() -> None:
    """Only administrators may stage for a queue, because such messages have invented addresses."""
    node, client = started()
    assert client.refused(OpenStage("s", 0, b"q")) == "access_refused"
    assert isinstance(client.must(OpenStage("s", 0)), StageOpened)
    assert isinstance(administrator(node).must(OpenStage("s", 0, b"q")), StageOpened)


def test_a_batch_may_name_the_one_that_it_follows() -> None:
    """A commit may name its predecessor, so that two writers or a late commit publish only once.

    A commit after another batch is refused.
    """
    node, client = started()

    def log(batch: int) -> int:
        return stage(client, "s", batch, [staged_message(b"%d" % batch)])

    assert client.refused(CommitBatch("s", 5, [log(5)], after=3)) == "precondition"
    client.must(CommitBatch("s", 5, [log(5)], after=-1, wait_ms=1000))
    assert client.refused(CommitBatch("s", 9, [log(9)], after=-1)) == "precondition"
    repeated = client.must(CommitBatch("s", 5, [log(5)], after=-1, wait_ms=1000))
    assert repeated == BatchCommitted(is_repeated=True, is_moved=True)
    client.must(CommitBatch("s", 9, [log(9)], after=5, wait_ms=1000))
    assert bodies(node) == [b"5", b"9"]


def test_it_is_compared_when_the_batch_before_is_through() -> None:
    """The named predecessor is compared after all earlier batches, not when the commit arrives."""
    node, client = started()
    other = MemoryClient(node)
    logs = [stage(client, "s", batch, [staged_message(b"%d" % batch)]) for batch in (1, 2, 3)]
    client.send(CommitBatch("s", 1, [logs[0]], after=-1))
    node.work()
    other.send(CommitBatch("s", 3, [logs[2]], after=-1))
    client.send(CommitBatch("s", 2, [logs[1]], after=1))
    for _ in range(20):
        settle(node)
        node.clock.advance(10)
    assert [type(reply) for reply in client.replies()] == [BatchCommitted, BatchCommitted]
    assert [reply.code for reply in other.replies() if isinstance(reply, ErrorReply)] == [
        "precondition"
    ]
    assert bodies(node) == [b"1", b"2"]


def test_a_log_belongs_to_the_session_that_opened_it() -> None:
    """Only the session that opened a stage may add to it or finish it; none after a commit."""
    node, client = started()
    other = MemoryClient(node)
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    assert (
        other.refused(StageMessages(opened.stage, memoryview(staged_message(b"no"))))
        == "precondition"
    )
    assert other.refused(FinishStage(opened.stage, 0)) == "precondition"
    client.must(StageMessages(opened.stage, memoryview(staged_message(b"a"))))
    client.must(FinishStage(opened.stage, 1))
    assert client.refused(FinishStage(opened.stage, 99)) == "precondition"
    client.send(CommitBatch("s", 0, [opened.stage]))
    assert other.refused(FinishStage(opened.stage, 99)) == "precondition"
    settle(node)
    assert bodies(node) == [b"a"]
    assert bodies(node.crash()) == [b"a"]


def test_nothing_is_seen_before_its_commit_is_durable() -> None:
    """Messages appear only after their commit is durable, also right behind an empty batch."""
    node, client = started()
    log = stage(client, "s", 1, [staged_message(b"a")])
    settle(node)
    client.send(CommitBatch("s", 0, []))
    client.send(CommitBatch("s", 1, [log]))
    one_batch(node, True)
    assert client.replies() == [BatchCommitted(is_repeated=False, is_moved=True)]
    node.vhost.advance(node.clock.now_ms())
    assert node.vhost.queues[b"q"].ready_count == 0
    settle(node)
    assert client.replies() == [BatchCommitted(is_repeated=False, is_moved=False)]
    assert bodies(node) == [b"a"]
    assert node.vhost.staging.stages == {}


def test_properties_must_fit_into_a_frame() -> None:
    """Properties must fit into one frame: a header frame is never split, so none could get them."""
    _, client = started()
    most = Settings().frame_max - 8 - 12
    for size, code in ((most, None), (most + 1, "precondition")):
        long = size - 2 - 4 - 7
        table = b"\x01aS" + long.to_bytes(4, "big") + bytes(long)
        block = Properties(headers=table).encode()
        assert len(block) == size
        opened = client.must(OpenStage("s", 0))
        assert isinstance(opened, StageOpened)
        request = StageMessages(opened.stage, memoryview(staged_message(b"a", properties=block)))
        if code is None:
            client.must(request)
        else:
            assert client.refused(request) == code


def test_an_exchange_that_was_deleted_is_missed_at_once() -> None:
    """A deleted exchange is refused at once, although earlier messages were routed through it."""
    node, client = started()
    router = node.vhost.router
    exchange = router.exchanges[b"amq.fanout"]
    router.bind(exchange, node.vhost.queues[b"q"], b"", b"")
    stage(client, "s", 0, [staged_message(b"a", b"", b"amq.fanout")])
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    router.delete_exchange(exchange)
    block = memoryview(staged_message(b"b", b"", b"amq.fanout"))
    assert client.refused(StageMessages(opened.stage, block)) == "not_found"


def test_logs_of_a_batch_that_is_still_staged_stay() -> None:
    """Stages of a batch stay while one of them is being written: the hour counts from the last."""
    node, client = started()
    first = stage(client, "s", 0, [staged_message(b"a")])
    stage(client, "s", 1, [staged_message(b"another batch")])
    stage(client, "t", 0, [staged_message(b"another sink")])
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    for _ in range(3):
        node.clock.advance(STAGE_TTL_MS - 30_000)
        client.must(StageMessages(opened.stage, memoryview(staged_message(b"b"))))
        settle(node)
    assert list(node.vhost.staging.stages) == [first, opened.stage]
    client.must(FinishStage(opened.stage, 3))
    node.clock.advance(STAGE_TTL_MS - 30_000)
    settle(node)
    client.must(CommitBatch("s", 0, [first, opened.stage], wait_ms=1000))
    assert bodies(node) == [b"a", b"b", b"b", b"b"]


def test_a_client_is_told_how_large_a_message_may_be() -> None:
    """OpenStage reports the largest block; a larger frame ends the session without a reason."""
    node, client = started()
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    node.broker.settings.max_message_size = 1 << 21
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    most = (1 << 21) + 3 * REQUEST_BYTES_MAX
    assert opened.block_bytes_max == most
    message = staged_message(b"")
    assert client.refused(StageMessages(opened.stage, memoryview(bytes(most)))) == "bad_request"
    assert not client.is_closed
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    large = staged_message(bytes(most - len(message)))
    assert client.refused(StageMessages(opened.stage, memoryview(large))) == "precondition"
    client.ask(StageMessages(opened.stage, memoryview(bytes(most + REQUEST_BYTES_MAX))))
    assert client.is_closed
