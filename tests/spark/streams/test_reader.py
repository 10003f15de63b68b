"""Tests the stream reader; calls come in the order in which Spark makes them."""

import itertools
import json
import pickle
from typing import Never

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.driving import Make, bounds, fill, latest, numbered, rows
from tests.spark.links import URI, MemoryLink
from tests.spark.micro_batches import through_json
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.streams.lag import lag_of
from warrenmq.spark.unusable_reader import UnusableStreamReader


def test_a_stream_from_first_batch_to_an_empty_queue(node: MemoryNode, make: Make) -> None:
    """Batches follow each other without a gap; `latestOffset` acks the batch before."""
    fill(node, 10)
    reader = make()
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    assert reader.reportLatestOffset() is None
    first = reader.initialOffset()
    second = latest(reader, first, 6)
    assert rows(reader, first, second) == numbered(0, 6)
    third = latest(reader, second, 6)
    reader.commit(second)
    assert rows(reader, second, third) == numbered(6, 10)
    queue = node.vhost.queues[b"q"]
    assert queue.unacked_count == 4
    assert latest(reader, third) == third
    assert queue.unacked_count == 0
    reported = reader.reportLatestOffset()
    assert reported is not None and reported | third == reported
    assert rows(reader, third, third) == []


def test_progress_has_the_lag_and_says_what_is_read(
    node: MemoryNode, link: MemoryLink, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress has the lag behind the batch; a broker that does not answer is no error."""
    fill(node, 10)
    reader = make()
    first = reader.initialOffset()
    latest(reader, first, 6)
    reported = json.dumps(reader.reportLatestOffset())
    (lag,) = lag_of({"sources": [{"latestOffset": "null"}, {"latestOffset": reported}]})
    assert (lag.messages, lag.queues) == (4, {"q": 4})
    assert lag.seconds is not None and lag.seconds >= 0
    assert lag.source == "warren: queues q of vhost / at memory:5672, reader group g"
    assert lag_of(None) == lag_of({"sources": [{"latestOffset": "5"}]}) == []

    def away(*arguments: object) -> Never:
        raise SourceError("given up")

    monkeypatch.setattr(link, "request", away)
    assert "lag" not in (reader.reportLatestOffset() or {"lag": None})


def test_offset_without_news_is_the_same_text(node: MemoryNode, make: Make) -> None:
    """Without new messages the offset keeps its text; else Spark would run empty batches."""
    fill(node, 3)
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert json.dumps(reader.latestOffset(through_json(end), ReadMaxRows(10))) == json.dumps(end)


def test_an_idle_stream_waits_in_the_broker(node: MemoryNode, link: MemoryLink, make: Make) -> None:
    """An idle stream sends one request for each long poll; an availableNow run does not wait."""
    reader = make(longPollMs="2000")
    initial = reader.initialOffset()
    before_ms = node.clock.now_ms()
    count = len(link.requests)
    assert latest(reader, initial) == initial
    assert len(link.requests) == count + 1
    assert 1990 <= node.clock.now_ms() - before_ms <= 2020
    now = make(longPollMs="2000")
    now.prepareForTriggerAvailableNow()
    before_ms = node.clock.now_ms()
    assert latest(now, initial) == initial
    assert node.clock.now_ms() - before_ms < 1000


def test_initial_offset_is_the_same_after_a_crash_in_batch_0(node: MemoryNode, make: Make) -> None:
    """The initial offset stays the same, even when messages came and the first process asked twice.

    Spark stores only the end of a batch.
    """
    fill(node, 5)
    reader = make()
    initial = reader.initialOffset()
    assert reader.initialOffset() == initial
    end = latest(reader, initial, 3)
    fill(node, 5, 5)
    again = make()
    assert again.initialOffset() == initial
    assert rows(again, initial, end) == numbered(0, 3)


def test_initial_offset_latest_stays_where_it_was_at_creation(node: MemoryNode, make: Make) -> None:
    """`latest` means the latest message when the group was created, not at every start."""
    fill(node, 5)
    initial = make(startingOffsets="latest").initialOffset()
    fill(node, 2, 5)
    again = make(startingOffsets="latest")
    assert again.initialOffset() == initial
    assert rows(again, initial, latest(again, initial)) == numbered(5, 7)


def test_planned_batch_is_read_again_after_driver_and_broker_crash(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """A new process reads a planned batch again, with `partitions` as its first call."""
    fill(node, 10)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial, 4)
    next_end = latest(reader, end, 4)
    expected = rows(reader, end, next_end)
    link.use(node.crash())
    # This process keeps its epoch; a new one takes over the group.
    assert rows(reader, end, next_end) == expected == numbered(4, 8)
    again = make()
    assert rows(again, end, next_end) == expected
    assert rows(again, end, next_end) == expected


def test_partitions_are_the_same_slices_whenever_asked(
    node: MemoryNode, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slices of a range never change, because sinks may remember (batch id, partition id)."""
    monkeypatch.setattr("warrenmq.spark.streams.reader.READ_SLICE_MESSAGES", 4)
    fill(node, 10)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial)
    parts = bounds(reader.partitions(initial, end))
    assert parts == [[("q", 0, 4)], [("q", 4, 8)], [("q", 8, 11)]]
    again = make()
    assert bounds(again.partitions(initial, end)) == parts
    assert rows(again, initial, end) == numbered(0, 10)


def test_available_now_stops_at_what_was_there(node: MemoryNode, make: Make) -> None:
    """Messages that arrive during the run are left to the next one; the last batch is acked too."""
    fill(node, 5)
    reader = make()
    reader.prepareForTriggerAvailableNow()
    fill(node, 5, 5)
    offset = reader.initialOffset()
    batches = []
    while (end := latest(reader, offset, 2)) != offset:
        batches.append(rows(reader, offset, end))
        offset = end
    assert list(itertools.chain(*batches)) == numbered(0, 5)
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert node.vhost.queues[b"q"].unacked_count == 0
    again = make()
    again.prepareForTriggerAvailableNow()
    assert rows(again, offset, latest(again, offset)) == numbered(5, 10)


def test_read_all_available_ignores_the_limits(node: MemoryNode, make: Make) -> None:
    """Trigger.Once reads everything, whatever the options say."""
    fill(node, 20)
    reader = make(maxMessagesPerTrigger="3", maxBytesPerTrigger="1")
    initial = reader.initialOffset()
    end = through_json(reader.latestOffset(initial, ReadAllAvailable()))
    assert len(rows(reader, initial, end)) == 20


def test_bytes_limit_a_batch(node: MemoryNode, make: Make) -> None:
    """maxBytesPerTrigger limits a batch in addition to the limit in rows."""
    for _ in range(10):
        node.publish(b"q", bytes(1000))
    reader = make(maxBytesPerTrigger="3500")
    initial = reader.initialOffset()
    assert len(rows(reader, initial, latest(reader, initial))) == 3


def test_second_query_with_the_same_group_ends_the_first(node: MemoryNode, make: Make) -> None:
    """The error says who took over the group, and how to run two queries."""
    fill(node, 4)
    first = make()
    initial = first.initialOffset()
    end = latest(first, initial, 2)
    partitions = first.partitions(initial, end)
    make().initialOffset()
    with pytest.raises(SourceError, match="taken over by"):
        latest(first, end)
    with pytest.raises(SourceError, match="taken over by"):
        list(first.read(partitions[0]))
    with pytest.raises(SourceError, match="taken over by"):
        first.commit(end)
    assert node.vhost.queues[b"q"].unacked_count == 2


def test_unknown_and_transient_queues_are_said_so(node: MemoryNode, make: Make) -> None:
    """The first call reports an unknown or a transient queue, in one line."""
    node.declare(b"transient", durable=False)
    with pytest.raises(SourceError, match="no queue 'nope' in vhost '/'"):
        make(queues="nope").initialOffset()
    with pytest.raises(SourceError, match="not durable"):
        make(queues="transient").initialOffset()


def test_queue_declared_anew_is_data_loss(node: MemoryNode, make: Make) -> None:
    """A queue that is declared anew is data loss, in the running query and after its restart."""
    fill(node, 4)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial, 2)
    node.delete(b"q")
    node.declare(b"q")
    fill(node, 3, 100)
    for broken in (reader, make()):
        with pytest.raises(SourceError, match=r"data loss.*failOnDataLoss=false"):
            latest(broken, end)
        with pytest.raises(SourceError, match="data loss"):
            broken.partitions(initial, end)


def test_queue_declared_anew_goes_on_when_loss_is_accepted(node: MemoryNode, make: Make) -> None:
    """With accepted loss the stream reads the new queue from its start.

    A batch of the old queue is empty; the batch that spans both is read again alike.
    """
    fill(node, 4)
    reader = make(failOnDataLoss="false")
    initial = reader.initialOffset()
    end = latest(reader, initial, 2)
    node.delete(b"q")
    node.declare(b"q")
    fill(node, 3, 100)
    next_end = latest(reader, end)
    assert rows(reader, end, next_end) == numbered(100, 103)
    assert rows(reader, initial, end) == []
    again = make(failOnDataLoss="false")
    assert rows(again, end, next_end) == numbered(100, 103)
    assert latest(again, next_end) == next_end


def test_available_now_ends_on_a_queue_declared_anew(node: MemoryNode, make: Make) -> None:
    """A run reads the messages of a queue that was declared anew before it, but not during it."""
    fill(node, 4)
    reader = make(failOnDataLoss="false")
    end = latest(reader, reader.initialOffset(), 2)
    node.delete(b"q")
    node.declare(b"q")
    fill(node, 2, 100)
    reader = make(failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    new_end = latest(reader, end)
    assert rows(reader, end, new_end) == numbered(100, 102)
    node.delete(b"q")
    node.declare(b"q")
    fill(node, 2, 200)
    last_end = latest(reader, new_end)
    assert rows(reader, new_end, last_end) == []
    assert latest(reader, last_end) == last_end


def test_checkpoint_that_is_an_old_copy_is_data_loss(node: MemoryNode, make: Make) -> None:
    """Messages below the acked position are lost; with accepted loss the stream reads the rest."""
    fill(node, 6)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial, 3)
    latest(reader, end)
    with pytest.raises(SourceError, match="old copy"):
        latest(make(), initial)
    with pytest.raises(SourceError, match="old copy"):
        make().partitions(initial, end)
    lenient = make(failOnDataLoss="false")
    assert rows(lenient, initial, latest(lenient, initial)) == numbered(3, 6)


def test_data_directory_that_is_an_old_copy_is_data_loss(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """A position that the group never reserved is refused."""
    fill(node, 6)
    reader = make()
    end = latest(reader, reader.initialOffset(), 3)
    fresh = MemoryNode(MemoryDisk())
    fresh.declare(b"q")
    link.use(fresh)
    with pytest.raises(SourceError, match="old copy"):
        latest(make(), end)


@pytest.mark.parametrize("count", [2, 20])
def test_data_directory_that_is_an_old_copy_is_read_when_loss_is_accepted(
    node: MemoryNode, link: MemoryLink, make: Make, count: int
) -> None:
    """With accepted loss all its messages are read, after an empty batch that leads back to them.

    That batch is also empty when it is read again.
    """
    fill(node, 6)
    end = latest(reader := make(), reader.initialOffset())
    fresh = MemoryNode(MemoryDisk())
    fresh.declare(b"q")
    link.use(fresh)
    fill(fresh, count, 100)
    lenient = make(failOnDataLoss="false")
    back = latest(lenient, end)
    assert rows(lenient, end, back) == []
    lenient = make(failOnDataLoss="false")
    assert rows(lenient, end, back) == []
    lenient.commit(end)
    last = latest(lenient, back)
    assert rows(lenient, back, last) == numbered(100, 100 + count)
    assert latest(lenient, last) == last
    assert fresh.vhost.queues[b"q"].unacked_count == 0


def test_range_that_runs_backwards_is_refused(node: MemoryNode, make: Make) -> None:
    """A backward range is refused; Spark may plan one when a source went backwards."""
    fill(node, 6)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial)
    with pytest.raises(SourceError, match="backwards"):
        reader.partitions(end, initial)


def test_foreign_checkpoint_is_refused(make: Make) -> None:
    """A checkpoint of another group than the one in the options is refused."""
    other = make(group="other").initialOffset()
    for call in (
        lambda: make().latestOffset(other, ReadMaxRows(1)),
        lambda: make().partitions(other, other),
        lambda: make().commit(other),
    ):
        with pytest.raises(SourceError, match="reader group 'other'"):
            call()


def test_constructor_does_nothing(link: MemoryLink, make: Make) -> None:
    """The constructor does no I/O: Spark makes a second reader elsewhere, only to pickle it."""
    opened = len(link.requests)
    reader = make()
    pickle.dumps(reader)
    assert len(link.requests) == opened


def test_group_is_required_and_filters_are_not_offered(make: Make) -> None:
    """A group is required, and there is no pushFilters: it gives wrong rows on PySpark 4.3."""
    source = WarrenDataSource(options={"uri": URI, "queues": "q"})
    # Spark loses an exception of `streamReader`, and calls one of these methods first.
    unusable = source.streamReader(schema=source.schema())
    assert isinstance(unusable, UnusableStreamReader)
    for first in (
        unusable.initialOffset,
        unusable.getDefaultReadLimit,
        unusable.prepareForTriggerAvailableNow,
    ):
        with pytest.raises(OptionError, match="'group' is missing"):
            first()
    unusable.stop()
    of_batches = WarrenDataSource({"uri": URI, "queues": "q", "group": "g", "seqFrom": "3"})
    with pytest.raises(OptionError, match="'seqFrom' is for batch reads"):
        of_batches.streamReader(schema=source.schema()).initialOffset()
    batch = source.reader(schema=source.schema())
    assert type(batch).pushFilters.__qualname__.startswith("DataSourceReader.")


def test_damage_on_the_way_is_found_unless_nobody_looks(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """With `verify` the stored checksums show damage on the way."""
    fill(node, 3)
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial)
    link.damages_blocks = True
    with pytest.raises(SourceError, match=r"queue 'q', from position 0 on: .*damaged"):
        rows(reader, initial, end)
    assert len(rows(make(verify="none"), initial, end)) == 3


def test_record_batches_are_bounded_in_bytes(
    node: MemoryNode, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record batches are bounded in bytes, because a huge one can hang a JVM."""
    monkeypatch.setattr("warrenmq.spark.streams.reader.FETCH_BYTES", 10_000)
    for _ in range(40):
        node.publish(b"q", bytes(1000))
    reader = make()
    initial = reader.initialOffset()
    end = latest(reader, initial)
    (partition,) = reader.partitions(initial, end)
    batches = list(reader.read(partition))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 12_000
