"""Tests streams of several queues, and where and when their batches begin."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.driving import Make, bounds, fill, latest, numbered, rows
from tests.spark.links import MemoryLink
from tests.support.brokers.memory_node import MemoryNode
from warrenmq.admin.protocol.requests import Member
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.offsets import OffsetJson, QueueKey, queue_key


def position(offset: OffsetJson, queue: str) -> int | None:
    """The position of a queue in an offset."""
    positions = offset["pos"]
    assert isinstance(positions, dict)
    found = [seq for key, seq in positions.items() if key.startswith(f"%2F/{queue}#")]
    assert len(found) <= 1
    return found[0] if found else None


def test_several_queues_share_a_batch(node: MemoryNode, make: Make) -> None:
    """Each queue gets a share of the limit; one offset has all queues and acks all of them."""
    node.declare(b"r")
    node.declare(b"empty")
    fill(node, 10)
    fill(node, 3, 100, b"r")
    reader = make(queues="r,q,empty")
    first = reader.initialOffset()
    second = latest(reader, first, 6)
    assert sorted(rows(reader, first, second)) == sorted(numbered(0, 3) + numbered(100, 103))
    assert (position(second, "empty"), position(first, "empty")) == (0, 0)
    third = latest(reader, second, 100)
    assert rows(reader, second, third) == numbered(3, 10)
    assert latest(reader, third) == third
    assert all(queue.unacked_count == 0 for queue in node.vhost.queues.values())


def test_a_queue_that_matches_later_joins_with_its_first_message(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """A queue that matches later joins with its first message.

    A new process, which knows the queue from the broker only, reads its first batch again alike.
    """
    fill(node, 2)
    reader = make(queuesPattern="q|new.*")
    initial = reader.initialOffset()
    first = latest(reader, initial)
    node.declare(b"new-one")
    node.declare(b"other")
    fill(node, 3, 100, b"new-one")
    second = latest(reader, first)
    assert position(first, "new-one") is None and position(second, "other") is None
    assert rows(reader, first, second) == numbered(100, 103)
    link.use(node.crash())
    again = make(queuesPattern="q|new.*")
    assert rows(again, first, second) == numbered(100, 103)
    assert latest(again, second) == second


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_drained_queue_of_a_pattern_may_go(
    node: MemoryNode, make: Make, is_restarted: bool
) -> None:
    """A drained queue that is deleted is no data loss, whether the process saw it or not."""
    node.declare(b"q2")
    fill(node, 2)
    fill(node, 2, 10, b"q2")
    reader = make(queuesPattern="q.*")
    end = latest(reader, reader.initialOffset())
    assert latest(reader, end) == end
    node.delete(b"q2")
    if is_restarted:
        reader = make(queuesPattern="q.*")
    without = latest(reader, end)
    assert position(without, "q2") is None
    assert rows(reader, end, without) == []
    assert latest(reader, without) == without
    assert latest(make(queuesPattern="q.*"), without) == without


def test_a_queue_of_a_pattern_deleted_with_messages_is_data_loss(
    node: MemoryNode, make: Make
) -> None:
    """The error names the deleted queue; with accepted loss the stream reads the others."""
    node.declare(b"q2")
    fill(node, 2)
    fill(node, 4, 10, b"q2")
    reader = make(queuesPattern="q.*")
    end = latest(reader, reader.initialOffset(), 4)
    node.delete(b"q2")
    fill(node, 2, 2)
    for broken in (reader, make(queuesPattern="q.*")):
        with pytest.raises(SourceError, match=r"data loss.*'q2'.*failOnDataLoss=false"):
            latest(broken, end)
    lenient = make(queuesPattern="q.*", failOnDataLoss="false")
    assert rows(lenient, end, latest(lenient, end)) == numbered(2, 4)


def test_a_named_queue_that_is_deleted_is_waited_for_when_loss_is_accepted(
    node: MemoryNode, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With accepted loss the stream waits up to `retryTimeoutMs`, then reads the queue's start."""
    fill(node, 4)
    reader = make(failOnDataLoss="false", retryTimeoutMs="60000")
    end = latest(reader, reader.initialOffset(), 2)
    node.delete(b"q")
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            node.declare(b"q")
            fill(node, 2, 100)

    monkeypatch.setattr("time.sleep", nap)
    new_end = latest(reader, end)
    assert len(naps) == 3
    assert rows(reader, end, new_end) == numbered(100, 102)
    node.delete(b"q")
    with pytest.raises(SourceError, match="no queue 'q'"):
        latest(make(failOnDataLoss="false"), new_end)


def test_queues_may_be_added_and_taken_away(node: MemoryNode, make: Make) -> None:
    """Between two runs queues may be added and removed.

    A removed queue gets its reserved messages back; an added one begins where the options say.
    """
    node.declare(b"r")
    fill(node, 4)
    fill(node, 4, 10, b"r")
    reader = make()
    end = latest(reader, reader.initialOffset(), 2)
    reader = make(queues="r", startingOffsets='{"r": 3}')
    without = latest(reader, end)
    assert rows(reader, end, without) == numbered(12, 14)
    assert node.vhost.queues[b"q"].ready_count == 4


def test_a_stream_may_begin_at_a_position_or_a_time(node: MemoryNode, make: Make) -> None:
    """A start position or time applies when the queue joins the group."""
    node.declare(b"r")
    fill(node, 4)
    fill(node, 2, 10, b"r")
    node.clock.advance(60_000)
    fill(node, 4, 4)
    reader = make(queues="q,r", startingOffsets='{"q": 6}')
    initial = reader.initialOffset()
    assert sorted(rows(reader, initial, latest(reader, initial))) == sorted(
        numbered(5, 8) + numbered(10, 12)
    )
    node.declare(b"late")
    fill(node, 3, 0, b"late")
    node.clock.advance(60_000)
    fill(node, 3, 3, b"late")
    # The clock of the node in memory starts at 22:13:20.
    late = make(queues="late", group="late", startingTimestamp="2023-11-14T22:15:00Z")
    initial = late.initialOffset()
    assert rows(late, initial, latest(late, initial)) == numbered(3, 6)


def test_batches_may_wait_for_a_minimum(node: MemoryNode, make: Make) -> None:
    """A batch waits for enough messages, or for `maxTriggerDelay`; an availableNow run does not."""
    fill(node, 3)
    reader = make(minMessagesPerTrigger="5", maxTriggerDelay="10s", longPollMs="1000")
    initial = reader.initialOffset()
    assert latest(reader, initial) == initial
    fill(node, 2, 3)
    end = latest(reader, initial)
    assert rows(reader, initial, end) == numbered(0, 5)
    fill(node, 1, 5)
    assert latest(reader, end) == end
    node.clock.advance(10_000)
    next_end = latest(reader, end)
    assert rows(reader, end, next_end) == numbered(5, 6)
    fill(node, 1, 6)
    now = make(minMessagesPerTrigger="5")
    now.prepareForTriggerAvailableNow()
    assert rows(now, next_end, latest(now, next_end)) == numbered(6, 7)


def test_acks_may_be_left_to_commit(node: MemoryNode, make: Make) -> None:
    """With ackOn=commit uncommitted messages stay reserved, and no message comes twice.

    The option is for a Spark that logs its progress later.
    """
    fill(node, 9)
    reader = make(ackOn="commit")
    initial = reader.initialOffset()
    first = latest(reader, initial, 3)
    second = latest(reader, first, 3)
    queue = node.vhost.queues[b"q"]
    assert queue.unacked_count == 6
    assert rows(reader, first, second) == numbered(3, 6)
    reader.commit(first)
    assert queue.unacked_count == 3
    again = make(ackOn="commit")
    third = latest(again, second, 3)
    assert rows(again, second, third) == numbered(6, 9)
    again.commit(third)
    assert queue.unacked_count == 0


def test_min_partitions_cuts_finer_and_always_alike(
    node: MemoryNode, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`minPartitions` halves the usual slice size as often as necessary, always in the same way."""
    monkeypatch.setattr("warrenmq.spark.streams.reader.READ_SLICE_MESSAGES", 16)
    monkeypatch.setattr("warrenmq.spark.streams.reader.SLICE_MESSAGES_MIN", 2)
    fill(node, 10)
    reader = make(minPartitions="3")
    initial = reader.initialOffset()
    end = latest(reader, initial)
    parts = bounds(reader.partitions(initial, end))
    assert parts == [[("q", 0, 4)], [("q", 4, 8)], [("q", 8, 11)]]
    again = make(minPartitions="3")
    assert bounds(again.partitions(initial, end)) == parts
    assert rows(again, initial, end) == numbered(0, 10)


def test_many_small_queues_share_tasks(node: MemoryNode, make: Make) -> None:
    """Small queues share tasks, because a task costs more than reading a few messages."""
    for number in range(40):
        name = b"q-%02d" % number
        node.declare(name)
        fill(node, 2, number * 2, name)
    reader = make(queuesPattern="q-.*")
    initial = reader.initialOffset()
    end = latest(reader, initial)
    assert len(reader.partitions(initial, end)) <= 20
    assert rows(reader, initial, end) == numbered(0, 80)


def test_a_queue_of_the_checkpoint_that_may_have_moved_is_not_called_deleted(make: Make) -> None:
    """An earlier version knew the queue by its number on a node that is not its home now."""
    reader = make()
    assert reader._group.members
    old = QueueKey("q", 7, "a")
    with pytest.raises(SourceError, match=r"data loss: queue 'q' \(incarnation 7\) is another one"):
        reader._group.report_gone({old: 5})


def test_offsets_of_earlier_versions_name_the_queue_by_its_number(make: Make) -> None:
    """Those of a lone node, and of the home in a cluster; new ones have the queue's birth."""
    session = make()._group
    (alone,) = session.members
    born = queue_key(b"q", 40, "n1", birth=40)
    session._meet([("n1", Member(b"q", 40, 3, 9, 12, queue_id=7, birth=40))])
    for old in (QueueKey("q", 7), QueueKey("q", 7, "n1"), born):
        assert session.with_births({old: 5}) == {born: 5}
    assert session.with_births({alone: 5, QueueKey("q", 7, "n2"): 6}) == {
        alone: 5,
        QueueKey("q", 7, "n2"): 6,
    }
    assert str(born) == "'q' (incarnation 40)"


def test_priority_queues_that_a_pattern_passes_over_are_named_once(
    node: MemoryNode, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's log has each of them once, and the description of the source all."""
    levels = QueueSettings(traits=QueueTraits(9))
    node.declare(b"high", settings=levels)
    fill(node, 1)
    reader = make(queuesPattern="q|high.*")
    start = reader.initialOffset()
    node.declare(b"high-too", settings=levels)
    end = latest(reader, start)
    assert rows(reader, start, end) == numbered(0, 1)
    latest(reader, end)
    said = [each.getMessage() for each in caplog.records if each.name == "warren.spark"]
    assert [text.rpartition(": ")[2] for text in said] == ["'high'", "'high-too'"]
    assert "without priority queues high, high-too of vhost / " in reader._group.description
