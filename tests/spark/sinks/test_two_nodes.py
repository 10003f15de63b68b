"""Staging at two nodes of a cluster, and commits through any, while nodes come and go."""

import pickle
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from tests.spark.sinks.fake_node import FakeNode
from warrenmq.admin.protocol.requests import ErrorReply, Reply, Request
from warrenmq.admin.protocol.sinks import (
    AbortStages,
    BatchCommitted,
    CommitBatch,
    OpenStage,
    StageCopies,
    StageMessages,
)
from warrenmq.spark import waits
from warrenmq.spark.retry import BrokerAwayError, SourceError
from warrenmq.spark.sinks import nodes
from warrenmq.spark.sinks.commit import Committed, abort, commit
from warrenmq.spark.sinks.nodes import with_nodes
from warrenmq.spark.sinks.options import SinkOptions, parse_sink_options
from warrenmq.spark.sinks.staging import StagedRows, stage_rows
from warrenmq.spark.waits import wait_in_words
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED


@pytest.fixture(autouse=True)
def as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_known", {})
    # Threads of earlier tests may still wait for nodes that are gone.
    monkeypatch.setattr(waits, "_waits", {})


@pytest.fixture
def cluster() -> Iterator[list[FakeNode]]:
    members: list[FakeNode] = []
    for name in "abc":
        FakeNode(name, members)
    yield members
    for node in members:
        node.die()


def options_of(node: FakeNode, timeout_ms: int = 60_000) -> SinkOptions:
    options = parse_sink_options(
        {"uri": node.uri, "exchange": "", "confirmTimeoutMs": str(timeout_ms)}
    )
    return with_nodes(options)


def stage(options: SinkOptions, partition: int = 0, count: int = 3) -> StagedRows:
    rows = (pa.RecordBatch.from_pydict({"body": [b"%d" % number]}) for number in range(count))
    return stage_rows(options, "s", 0, partition, rows)


def blocks(node: FakeNode) -> list[bytes]:
    return [bytes(request.block) for request in node.requests if isinstance(request, StageMessages)]


def test_all_tasks_stage_the_same_blocks_at_the_same_two_nodes(cluster: list[FakeNode]) -> None:
    a, b, c = cluster
    options = options_of(b)
    parts = [stage(pickle.loads(pickle.dumps(options)), partition) for partition in (1, 0)]
    assert blocks(b) == blocks(c) and len(blocks(b)) == 6
    assert not a.requests
    assert commit(options, "s", 0, parts, True) is Committed.NOW
    (request,) = b.kind(CommitBatch)
    assert isinstance(request, CommitBatch)
    # In the order of the partitions.
    assert request.stages == [parts[1].stages["b"], parts[0].stages["b"]]
    assert request.copies == [
        StageCopies("c", [parts[1].stages["c"], parts[0].stages["c"]]),
    ]
    assert not c.kind(CommitBatch)


def test_a_node_in_maintenance_and_one_that_is_down_are_passed_over(
    cluster: list[FakeNode],
) -> None:
    a, b, _ = cluster
    FakeNode("d", cluster)
    b.is_draining = True
    assert set(stage(options_of(a)).stages) == {"a", "c"}
    a.die()
    # The process knows the others, although the node of the URI is away.
    assert set(stage(options_of(a)).stages) == {"c", "d"}


def test_a_task_goes_on_without_a_node_that_dies(cluster: list[FakeNode]) -> None:
    a, b, _ = cluster

    def dies(request: Request) -> Reply | None:
        if isinstance(request, StageMessages) and len(blocks(a)) == 2:
            a.die()
        return None

    a.act = dies
    options = options_of(a)
    part = stage(options)
    assert set(part.stages) == {"b"} and len(blocks(b)) == 3
    assert commit(options, "s", 0, [part], True) is Committed.NOW
    (request,) = b.kind(CommitBatch)
    assert isinstance(request, CommitBatch) and request.copies == []


def test_rows_may_be_staged_again_when_both_nodes_are_away(cluster: list[FakeNode]) -> None:
    a, b, _ = cluster

    def dies(request: Request) -> Reply | None:
        if isinstance(request, StageMessages):
            a.die()
            b.die()
        return None

    a.act = b.act = dies
    options = options_of(a)
    with pytest.raises(BrokerAwayError, match="nothing of the batch is published"):
        stage(options)
    assert set(stage(options).stages) == {"c"}


def test_a_refusal_of_the_rows_is_told_at_once(cluster: list[FakeNode]) -> None:
    def refuse(request: Request) -> Reply | None:
        if isinstance(request, StageMessages):
            return ErrorReply(ACCESS_REFUSED, "no permission")
        return None

    a, b, _ = cluster
    a.act = b.act = refuse
    with pytest.raises(SourceError, match="no permission") as caught:
        stage(options_of(a))
    assert not isinstance(caught.value, BrokerAwayError)


def test_a_commit_whose_answer_is_lost_is_not_told_as_foreign(cluster: list[FakeNode]) -> None:
    a, b, _ = cluster
    options = options_of(a)
    part = stage(options)

    def loses(request: Request) -> Reply | None:
        if isinstance(request, CommitBatch):
            a.die()
        return None

    def repeated(request: Request) -> Reply | None:
        return BatchCommitted(True, True) if isinstance(request, CommitBatch) else None

    a.act, b.act = loses, repeated
    assert commit(options, "s", 0, [part], True) is Committed.EITHER
    (request,) = b.kind(CommitBatch)
    assert isinstance(request, CommitBatch)
    assert request.stages == [part.stages["b"]]
    assert request.copies == [StageCopies("a", [part.stages["a"]])]
    assert commit(options, "s", 0, [part], True) is Committed.BEFORE


def test_a_commit_tells_that_it_waits_for_queues_and_why(cluster: list[FakeNode]) -> None:
    """Such a wait is not one for the node, which is there."""
    a, *_ = cluster
    options = options_of(a)
    part = stage(options)
    told: list[str] = []

    def has_no_room_at_first(request: Request) -> Reply | None:
        if not isinstance(request, CommitBatch):
            return None
        told.append(wait_in_words(least_s=0))
        return BatchCommitted(False, len(told) == 2, "the memory alarm")

    a.act = has_no_room_at_first
    commit(options, "s", 7, [part], True)
    what = "waiting for batch 7 of sink 's' to be in its queues, 0 s"
    assert told == [what, f"{what}: the memory alarm"]
    assert not wait_in_words(least_s=0)


def test_a_batch_that_no_node_has_whole_is_not_published(cluster: list[FakeNode]) -> None:
    parts = [StagedRows("s", 0, {"a": 1}, 0), StagedRows("s", 1, {"b": 1}, 0)]
    with pytest.raises(SourceError, match=r"nothing of it is published.*\(a, b have some"):
        commit(options_of(cluster[0]), "s", 0, parts, True)
    assert not any(node.requests for node in cluster)


def test_a_batch_without_rows_is_committed_by_any_node(cluster: list[FakeNode]) -> None:
    a, b, _ = cluster
    options = options_of(a)
    a.die()
    part = stage(options, count=0)
    assert part.stages == {}
    assert commit(options, "s", 0, [part], True) is Committed.NOW
    assert len(b.kind(CommitBatch)) == 1 and not b.kind(OpenStage)


def test_stages_are_dropped_at_each_node(cluster: list[FakeNode]) -> None:
    a, b, _ = cluster
    options = options_of(a, 1)
    parts = [stage(options, partition) for partition in (0, 1)]
    a.die()
    abort(options, [*parts, None])
    assert b.kind(AbortStages) == [AbortStages([part.stages["b"] for part in parts])]
