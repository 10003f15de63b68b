"""Sinks that belong to a cluster: commits through any node, the mover, and who takes over."""

import pytest

from tests.cluster.sinks.sink_cluster import SinkCluster, SinkNode
from tests.support.brokers.memory_node import MemoryClient
from tests.support.brokers.staged import staged_message
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.sinks import (
    AbortStages,
    BatchCommitted,
    CommitBatch,
    DeleteSink,
    DescribeSink,
    FinishStage,
    ListSinks,
    OpenStage,
    SinkDeleted,
    SinkList,
    SinkStatus,
    StageCopies,
    StageMessages,
    StageOpened,
)
from warrenmq.broker.definitions.metadata import DeleteVhost, PutVhost
from warrenmq.cluster.decision_store import DECIDE_MS


@pytest.fixture
def cluster() -> SinkCluster:
    return SinkCluster().start()


def committed(cluster: SinkCluster, number: int, *texts: str) -> None:
    """Commit a batch through n1 that n2 has too."""
    commit = cluster.batch(number, *texts)
    assert cluster.ask(cluster.nodes[0].client(), commit) == BatchCommitted(False, False)


def stages(cluster: SinkCluster) -> list[int]:
    """The number of stages at each node."""
    return [len(node.staging.stages) for node in cluster.nodes]


def test_a_batch_is_published_by_one_of_the_nodes_that_have_it(cluster: SinkCluster) -> None:
    committed(cluster, 0, "a", "b")
    assert [node.bodies() for node in cluster.nodes] == [[b"a", b"b"], [], []]
    assert stages(cluster) == [0, 0, 0]
    for node in cluster.nodes:
        row = node.row()
        assert row is not None
        assert (row.batch, row.copies, row.mover) == (0, b"", b"")
        assert node.client().must(DescribeSink("s")) == SinkStatus("s", 0, False, 0, 0, 0)
        assert node.client().must(ListSinks()) == SinkList([SinkStatus("s", 0, False, 0, 0, 0)])


def test_positions_count_on_from_batch_to_batch(cluster: SinkCluster) -> None:
    """They are those of the commit's order, and begin anew with the sink's next life."""
    one, two, _three = cluster.nodes
    committed(cluster, 0, "a", "b")
    first, second = one.stage(1, "c"), one.stage(1, "d", "e")
    other = [two.stage(1, "c"), two.stage(1, "d", "e")]
    commit = CommitBatch("s", 1, [first, second], copies=[StageCopies("n2", other)])
    one.client().send(commit)
    cluster.turn(one)
    staged = [one.staging.stages[first], one.staging.stages[second]]
    assert [stage.before_first for stage in staged] == [2, 3]
    row = one.row()
    assert row is not None
    assert [stage.sink_key for stage in staged] == [b"s/%d" % row.birth] * 2
    cluster.settle()
    assert cluster.ask(two.client(), DeleteSink("s")) == SinkDeleted()
    committed(cluster, 0, "f")
    again = one.row()
    assert again is not None
    assert (again.before_first, again.message_count) == (0, 1) and again.birth > row.birth


def test_a_batch_without_messages(cluster: SinkCluster) -> None:
    two = cluster.nodes[1]
    assert cluster.ask(two.client(), CommitBatch("s", 3, [])) == BatchCommitted(False, True)
    reply = cluster.nodes[2].client().must(DescribeSink("s"))
    assert reply == SinkStatus("s", 3, False, 0, 0, 0)


def test_of_two_commits_of_one_batch_one_is_the_repetition(cluster: SinkCluster) -> None:
    """The copies of the one that is late go, at all nodes."""
    one, two, _three = cluster.nodes
    first, second = cluster.batch(0, "a"), cluster.batch(0, "a", at=(1, 0))
    clients = [one.client(), two.client()]
    clients[0].send(first)
    clients[1].send(second)
    cluster.settle()
    replies = [client.replies() for client in clients]
    assert replies == [[BatchCommitted(False, False)], [BatchCommitted(True, True)]] or replies == [
        [BatchCommitted(False, False)],
        [BatchCommitted(True, False)],
    ]
    cluster.settle()
    assert [node.bodies() for node in cluster.nodes] == [[b"a"], [], []]
    assert stages(cluster) == [0, 0, 0]


def test_a_batch_waits_for_the_one_before_it_at_any_node(cluster: SinkCluster) -> None:
    one, two, _three = cluster.nodes
    commits = [cluster.batch(0, "a"), cluster.batch(1, "b", at=(1, 0))]
    clients = [one.client(), two.client()]
    clients[0].send(commits[0])
    one.store.answer()
    one.is_running = False
    cluster.turn(two)
    clients[1].send(commits[1])
    cluster.settle()
    assert two.staging.is_busy(b"s") and clients[1].replies() == []
    one.is_running = True
    cluster.settle()
    assert clients[1].replies() == [BatchCommitted(False, False)]
    cluster.settle()
    assert [node.bodies() for node in cluster.nodes] == [[b"a"], [b"b"], []]


@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_whose_answer_is_lost_is_repeated(cluster: SinkCluster, is_made: bool) -> None:
    one = cluster.nodes[0]
    client = one.client()
    commit = cluster.batch(0, "a", "b")
    one.store.loses_answers = is_made
    one.store.is_reachable = is_made
    client.send(commit)
    one.store.answer()
    one.store.loses_answers = False
    one.store.is_reachable = True
    cluster.settle()
    assert client.replies() == [BatchCommitted(is_made, False)]
    cluster.settle()
    assert [node.bodies() for node in cluster.nodes] == [[b"a", b"b"], [], []]
    assert stages(cluster) == [0, 0, 0]


def test_a_commit_that_nobody_answers_is_refused_and_keeps_its_stages(
    cluster: SinkCluster,
) -> None:
    """It may be carried out all the same: who gives up must not take the messages away."""
    one = cluster.nodes[0]
    client = one.client()
    commit = cluster.batch(0, "a")
    one.store.is_reachable = False
    client.send(commit)
    conditions, changes, _done = one.store._requests[0]
    cluster.settle(DECIDE_MS + 1000)
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == "storage_failed"
    client.must(AbortStages(commit.stages))
    assert stages(cluster)[0] == 1
    one.store.is_reachable = True
    cluster.model.commit(conditions, changes)
    cluster.settle()
    assert [node.bodies() for node in cluster.nodes] == [[b"a"], [], []]
    assert cluster.ask(client, commit) == BatchCommitted(True, True)


def test_stages_of_a_commit_that_never_comes_are_free_again(cluster: SinkCluster) -> None:
    """Another batch was committed first, so the transaction fails whenever it comes."""
    one = cluster.nodes[0]
    commit = cluster.batch(5, "never")
    one.store.is_reachable = False
    one.client().send(commit)
    cluster.settle(DECIDE_MS + 1000)
    other = cluster.batch(0, "a", at=(1, 2))
    one.store.is_reachable = True
    assert cluster.ask(cluster.nodes[1].client(), other) == BatchCommitted(False, False)
    one.client().must(AbortStages(commit.stages))
    assert stages(cluster) == [0, 1, 0]


def test_who_stages_a_published_batch_again_learns_that_from_the_commit(
    cluster: SinkCluster,
) -> None:
    """The end of the batch in the meantime takes no stage from its client."""
    one, two, _three = cluster.nodes
    one.client().send(cluster.batch(0, "a"))
    one.store.answer()
    cluster.turn(two)
    client = two.client()
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    cluster.settle()
    assert one.bodies() == [b"a"] and not two.staging.is_busy(b"s")
    client.must(StageMessages(opened.stage, memoryview(staged_message(b"a"))))
    client.must(FinishStage(opened.stage, 1))
    again = cluster.ask(client, CommitBatch("s", 0, [opened.stage]))
    assert again == BatchCommitted(True, True) and stages(cluster) == [0, 0, 0]


def test_a_batch_of_somebody_else_is_refused(cluster: SinkCluster) -> None:
    """`after` holds for the row of the transaction, also when two nodes commit at once."""
    one, two, _three = cluster.nodes
    committed(cluster, 0, "a")
    clients = [one.client(), two.client()]
    first, second = cluster.batch(1, "b"), cluster.batch(2, "c", at=(1, 0))
    clients[0].send(CommitBatch("s", 1, first.stages, after=0))
    clients[1].send(CommitBatch("s", 2, second.stages, after=0))
    cluster.settle()
    assert clients[0].replies() == [BatchCommitted(False, False)]
    cluster.settle()
    (reply,) = clients[1].replies()
    assert isinstance(reply, ErrorReply) and reply.code == "precondition"


def test_the_stages_must_be_at_the_node_that_is_asked(cluster: SinkCluster) -> None:
    commit = cluster.batch(0, "a")
    reply = cluster.nodes[2].client().ask(CommitBatch("s", 0, [], copies=commit.copies))
    assert isinstance(reply, ErrorReply) and reply.code == "precondition"


# -- movers ----------------------------------------------------------------------------------------


def marks(node: SinkNode) -> list[bool]:
    """The redelivered flags of the messages in the node's queue."""
    ready = node.memory.vhost.queues[b"q"].backing.ready
    return [ready.at(place).redelivered for place in range(ready.entry_count)]


def stopped_mover(cluster: SinkCluster) -> MemoryClient:
    """Commit a batch of which n1 has published nothing when it stops; a client that waits at n2."""
    one, two, _three = cluster.nodes
    commit = cluster.batch(0, "a", "b", "c")
    one.client().send(commit)
    one.store.answer()
    client = two.client()
    client.send(CommitBatch("s", 0, [], wait_ms=60_000))
    cluster.turn(two)
    return client


def test_another_node_with_the_stages_takes_over(cluster: SinkCluster) -> None:
    one, two, three = cluster.nodes
    client = stopped_mover(cluster)
    one.crash()
    cluster.settle()
    assert client.replies() == [BatchCommitted(True, True)]
    # The first mover may have published them to a mirrored queue, whose master has died since.
    assert marks(two) == [True, True, True]
    assert (two.bodies(), three.bodies()) == ([b"a", b"b", b"c"], [])
    one.start()
    cluster.settle()
    assert one.bodies() == [] and stages(cluster) == [0, 0, 0]
    committed(cluster, 1, "d")
    assert marks(one) == [False]
    assert one.bodies() == [b"d"]


def test_a_mover_that_comes_back_goes_on(cluster: SinkCluster) -> None:
    """It is the mover until another one has taken over, and what it has published is settled."""
    one, two, _three = cluster.nodes
    two.pause()
    one.staging.mover.slice_messages = 2
    one.client().send(cluster.batch(0, "a", "b", "c"))
    one.store.answer()
    one.store.tell()
    one.memory.vhost.advance(cluster.clock.now_ms())
    one.memory.commit()
    one.crash()
    one.start()
    cluster.settle()
    assert two.bodies() == [] and stages(cluster)[0] == 0


def test_a_mover_that_stood_still_takes_no_further_slice(cluster: SinkCluster) -> None:
    one, two, _three = cluster.nodes
    one.staging.mover.slice_messages = 1
    one.client().send(cluster.batch(0, "a", "b", "c"))
    one.store.answer()
    one.store.tell()
    one.memory.vhost.advance(cluster.clock.now_ms())
    cluster.model.drop_node(b"n1")
    one.is_running = False
    for _ in range(10):
        cluster.turn(two)
    assert two.bodies() == [b"a", b"b", b"c"]
    one.is_running = True
    while one.store.tell():
        pass
    cluster.settle()
    # The slice that was under way; receipts of the queue would have known it.
    assert one.bodies() == [b"a"] and stages(cluster) == [0, 0, 0]


def test_nobody_publishes_while_both_are_down(cluster: SinkCluster) -> None:
    one, two, three = cluster.nodes
    stopped_mover(cluster)
    one.crash()
    two.crash()
    cluster.settle()
    row = three.row()
    assert row is not None and (row.mover, row.copies != b"") == (b"n1", True)
    commit = cluster.batch(1, "d", at=(2,))
    client = three.client()
    client.send(commit)
    cluster.settle()
    assert client.replies() == []
    two.start()
    cluster.settle(1200)
    assert (two.bodies(), three.bodies()) == ([b"a", b"b", b"c"], [b"d"])
    assert client.replies() == [BatchCommitted(False, False)]
    one.start()
    cluster.settle()
    assert stages(cluster) == [0, 0, 0] and one.bodies() == []


def test_a_batch_goes_on_after_a_restart_of_all_nodes(cluster: SinkCluster) -> None:
    stopped_mover(cluster)
    for node in cluster.nodes:
        node.crash()
    for node in reversed(cluster.nodes):
        node.start()
    cluster.settle()
    found = [body for node in cluster.nodes for body in node.bodies()]
    assert found == [b"a", b"b", b"c"] and stages(cluster) == [0, 0, 0]


def test_a_node_in_maintenance_hands_over(cluster: SinkCluster) -> None:
    one, two, _three = cluster.nodes
    one.announce(is_draining=True)
    # It has not begun.
    one.staging.is_stopped = True
    stopped_mover(cluster)
    cluster.settle()
    assert (one.bodies(), two.bodies()) == ([], [b"a", b"b", b"c"])
    assert stages(cluster) == [0, 0, 0]


def test_a_node_without_the_stages_does_not_take_over(cluster: SinkCluster) -> None:
    """The mover dies, the first of the others has lost its stage: the second one publishes."""
    one, two, three = cluster.nodes
    commit = cluster.batch(0, "a", "b", at=(0, 1, 2))
    two.client().must(AbortStages(commit.copies[0].stages))
    one.client().send(commit)
    one.store.answer()
    one.crash()
    cluster.settle(1200)
    assert (two.bodies(), three.bodies()) == ([], [b"a", b"b"])


def test_a_batch_that_nobody_has_is_lost_and_the_sink_goes_on(
    cluster: SinkCluster, caplog: pytest.LogCaptureFixture
) -> None:
    two = cluster.nodes[1]
    commit = cluster.batch(0, "a", at=(1,))
    two.client().send(commit)
    two.store.answer()
    two.crash()
    two.disk.stages.clear()
    two.memory = two.memory.crash()
    two.start()
    cluster.settle()
    assert "the batch is lost" in caplog.text
    committed(cluster, 1, "b")
    assert [node.bodies() for node in cluster.nodes] == [[b"b"], [], []]


# -- lives of sinks --------------------------------------------------------------------------------


def test_a_sink_is_deleted_on_all_nodes(cluster: SinkCluster) -> None:
    one, two, _three = cluster.nodes
    committed(cluster, 0, "a")
    cluster.batch(1, "b")
    assert stages(cluster) == [1, 1, 0]
    assert cluster.ask(two.client(), DeleteSink("s")) == SinkDeleted()
    cluster.settle()
    assert stages(cluster) == [0, 0, 0]
    assert [dict(node.staging.sinks) for node in cluster.nodes] == [{}, {}, {}]
    assert one.client().refused(DescribeSink("s")) == "not_found"


def test_a_busy_sink_is_not_deleted(cluster: SinkCluster) -> None:
    two = cluster.nodes[1]
    stopped_mover(cluster)
    assert two.client().refused(DeleteSink("s")) == "precondition"


def test_a_node_that_was_away_follows_a_deletion(cluster: SinkCluster) -> None:
    """The sink lives another life when it is back."""
    three = cluster.nodes[2]
    committed(cluster, 4, "a")
    three.pause()
    assert cluster.ask(cluster.nodes[0].client(), DeleteSink("s")) == SinkDeleted()
    committed(cluster, 0, "b")
    three.is_running = True
    three.store.told_revision = cluster.model.revision
    three.follower.catch_up(cluster.model.load(), cluster.model.revision)
    reply = three.client().must(DescribeSink("s"))
    assert isinstance(reply, SinkStatus) and reply.batch == 0


def test_sinks_go_with_their_vhost(cluster: SinkCluster) -> None:
    committed(cluster, 4, "a")
    cluster.model.commit([], [DeleteVhost(b"/")])
    cluster.model.commit([], [PutVhost(b"/", 0)])
    cluster.settle()
    assert [node.copy.sinks for node in cluster.nodes] == [{}, {}, {}]


# -- nodes that ran alone --------------------------------------------------------------------------


def test_a_sink_of_a_lone_node_becomes_one_of_the_cluster() -> None:
    """Its batch that was under way is published, and its numbers go on."""
    cluster = SinkCluster()
    one, two, _three = cluster.nodes
    client = one.client()
    done = one.stage(3, "a")
    client.must(CommitBatch("s", 3, [done], wait_ms=1000))
    left = one.stage(4, "b", "c")
    client.send(CommitBatch("s", 4, [left]))
    batch = one.memory.vhost.journal.seal()
    one.disk.store(batch.change_sets)
    one.memory.driver.flush(batch, cluster.clock.now_ms())
    assert one.bodies() == [b"a"]
    cluster.start()
    assert one.bodies() == [b"b", b"c"]
    assert one.disk.sinks == {} and stages(cluster) == [0, 0, 0]
    late = CommitBatch("s", 4, [two.stage(4, "b", "c")])
    assert cluster.ask(two.client(), late) == BatchCommitted(True, True)
    committed(cluster, 5, "d")


@pytest.mark.parametrize("own_batch", [2, 9])
def test_the_higher_batch_of_two_rows_counts(own_batch: int) -> None:
    cluster = SinkCluster()
    one = cluster.nodes[0]
    one.client().must(CommitBatch("s", own_batch, [one.stage(own_batch, "a")], wait_ms=1000))
    cluster.nodes[1].start()
    other = CommitBatch("s", 5, [cluster.nodes[1].stage(5, "b")])
    assert cluster.ask(cluster.nodes[1].client(), other) == BatchCommitted(False, False)
    cluster.nodes[0].start()
    cluster.nodes[2].start()
    cluster.settle()
    batches = {row.batch for node in cluster.nodes if (row := node.row()) is not None}
    assert batches == {max(own_batch, 5)} and one.disk.sinks == {}
    assert (one.bodies(), cluster.nodes[1].bodies()) == ([b"a"], [b"b"])
