"""The job `replay` publishes the chosen messages once, from its checkpoint, to a real broker.

The tests write the checkpoint themselves, without Spark.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.sinks import DeleteSink, ListSinks, SinkDeleted, SinkList
from warrenmq.pipeline import JobError, ReplayResult, Step, replay
from warrenmq.pipeline.replays.directory import ReplayDirectory, ReplayIdentity, default_checkpoint
from warrenmq.pipeline.replays.job import _Replay, _sink_options
from warrenmq.pipeline.staged_publisher import StagedPublisher, pieces

SINK = "replay-test"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        for queue in ("eu", "us"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "orders", f"{queue}.#")
    yield broker
    assert broker.stop() == 0


@pytest.fixture(autouse=True)
def empty_queues(broker: BrokerProcess) -> Iterator[None]:
    """Empty the queues after each test."""
    yield
    taken(broker, "eu")
    taken(broker, "us")


def taken(broker: BrokerProcess, queue: str) -> list[tuple[str, str, int]]:
    """Consume all messages of a queue; return (exchange, routing key, number) of each, in order."""
    found: list[tuple[str, str, int]] = []
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((method.exchange, method.routing_key, int(body)))


def sinks(broker: BrokerProcess) -> list[str]:
    with AdminClient(NodeAddress(broker.uri)) as client:
        return [sink.sink for sink in client.request(ListSinks(), SinkList).sinks]


class Chosen:
    """A source, and its replay's checkpoint after the choice: files of 40 messages each."""

    def __init__(self, place: Path, count: int, **how: Any) -> None:
        self.source = place / "source"
        self.source.mkdir()
        self.directory = ReplayDirectory(place / "checkpoint")
        identity = ReplayIdentity(
            [str(self.source)], how.get("where"), how.get("exchange"), how.get("routing_key"), "/"
        )
        self.directory.draft.mkdir(parents=True)
        for number, first in enumerate(range(0, count, 40)):
            numbers = range(first, min(first + 40, count))
            rows = {
                "body": [b"%d" % number for number in numbers],
                "exchange": ["orders"] * len(numbers),
                "routing_key": [
                    how.get("key", "eu.1" if number % 2 else "us.1") for number in numbers
                ],
            }
            # Write more than one row group.
            pq.write_table(
                pa.table(rows),
                self.directory.draft / f"part-{number:05d}.parquet",
                row_group_size=15,
            )
        self.state = self.directory.adopt_draft(identity, SINK)

    def run(self, broker: BrokerProcess, **how: Any) -> ReplayResult:
        return replay([self.source], uri=broker.uri, checkpoint=self.directory.path, **how)

    def publish_part(self, broker: BrokerProcess, count: int, is_noted: bool) -> StagedPublisher:
        """Publish `count` messages like a run before its kill: moves may be incomplete."""
        work = _Replay(broker.uri, self.state.identity, "fail", None)
        publisher = StagedPublisher(_sink_options(work, self.state), SINK)
        rows = next(iter(pieces(self.directory.messages(self.state, 0), count, 1 << 30)))
        publisher.publish(rows, count)
        if is_noted:
            self.directory.keep(
                type(self.state)(1, self.state.identity, SINK, self.state.files, True)
            )
        return publisher


def numbers(found: list[tuple[str, str, int]]) -> list[int]:
    return [number for _, _, number in found]


def test_all_is_published_once_in_order(broker: BrokerProcess, tmp_path: Path) -> None:
    """All messages are published once, in order, to their addresses.

    A second run has nothing to do, and the broker has no sink left.
    """
    chosen = Chosen(tmp_path, 100)
    result = chosen.run(broker)
    assert (result.messages, result.published, result.published_before) == (100, 100, 0)
    assert result.exit_code == 0 and result.lines()[0].startswith("100 messages published")
    again = chosen.run(broker)
    assert (again.messages, again.published, again.published_before) == (100, 0, 100)
    assert again.ended == result.ended and "to repeat it, remove" in again.lines()[-1]
    assert taken(broker, "eu") == [("orders", "eu.1", number) for number in range(1, 100, 2)]
    assert numbers(taken(broker, "us")) == list(range(0, 100, 2))
    assert sinks(broker) == []
    assert sorted(path.name for path in chosen.directory.path.iterdir()) == ["lock", "replay.json"]


def test_nothing_that_is_chosen_is_an_end_as_well(broker: BrokerProcess, tmp_path: Path) -> None:
    """A replay that chose no messages ends; its text says how to choose again."""
    chosen = Chosen(tmp_path, 0)
    for _ in range(2):
        result = chosen.run(broker)
        assert (result.messages, result.exit_code) == (0, 0)
        assert "to repeat it, remove" in result.lines()[-1]


@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("done", [1, 15, 40, 57, 100])
def test_a_run_goes_on_where_the_broker_says(
    broker: BrokerProcess, tmp_path: Path, done: int, is_noted: bool
) -> None:
    """A run resumes after the broker's last batch, with or without a note in the checkpoint.

    The new run may cut batches differently.
    """
    chosen = Chosen(tmp_path, 100, key="eu")
    chosen.publish_part(broker, done, is_noted)
    # The checkpoint holds the chosen messages, so the source is not needed.
    chosen.source.rmdir()
    result = chosen.run(broker, rate=30 if done > 90 else None)
    assert (result.published, result.published_before) == (100 - done, done)
    assert numbers(taken(broker, "eu")) == list(range(100))


def test_a_killed_broker_is_waited_for(broker: BrokerProcess, tmp_path: Path) -> None:
    """A run waits for a killed broker, which then still knows its last batch."""
    chosen = Chosen(tmp_path, 200, key="eu")

    class Killer:
        def __init__(self) -> None:
            self.kills = 0

        def show(self, step: Step) -> None:
            if step.name == "publishing" and step.done >= 60 * (self.kills + 1) and self.kills < 2:
                self.kills += 1
                broker.kill()
                broker.start()

    killer = Killer()
    result = chosen.run(broker, rate=40, progress=killer)
    assert (result.published, killer.kills) == (200, 2)
    assert numbers(taken(broker, "eu")) == list(range(200))


def test_the_rate_is_kept(broker: BrokerProcess, tmp_path: Path) -> None:
    """At 60 messages a second the last of 120 messages is published after at least a second."""
    began_s = time.monotonic()
    Chosen(tmp_path, 120).run(broker, rate=60)
    assert time.monotonic() - began_s >= 1.0


def test_routing_is_rewritten(broker: BrokerProcess, tmp_path: Path) -> None:
    chosen = Chosen(tmp_path, 10, exchange="", routing_key="us")
    chosen.run(broker, exchange="", routing_key="us")
    assert taken(broker, "us") == [("", "us", number) for number in range(10)]


def test_what_goes_nowhere_ends_it_or_is_left_out(broker: BrokerProcess, tmp_path: Path) -> None:
    """An unroutable batch is refused whole; with `mandatory="ignore"` it is left out, status 1."""
    chosen = Chosen(tmp_path, 10, key="nowhere")
    with pytest.raises(
        JobError,
        match="10 messages would get to no queue, the first one with routing key 'nowhere'",
    ):
        chosen.run(broker)
    result = chosen.run(broker, mandatory="ignore")
    assert (result.published, result.unroutable, result.exit_code) == (10, 10, 1)
    assert sinks(broker) == []


def test_two_runs_at_once_publish_nothing_twice(broker: BrokerProcess, tmp_path: Path) -> None:
    """Two runs at once publish no message twice, even on two machines without a common lock."""
    chosen = Chosen(tmp_path, 100, key="eu")
    options = _sink_options(_Replay(broker.uri, chosen.state.identity, "fail", None), chosen.state)
    one, other = StagedPublisher(options, SINK), StagedPublisher(options, SINK)
    first = next(pieces(chosen.directory.messages(chosen.state, 0), 60, 1 << 30))
    shorter = next(pieces(iter(first), 35, 1 << 30))
    assert (one.published(), other.published()) == (None, None)
    one.publish(shorter, 35)
    with pytest.raises(
        JobError, match="the last batch of sink 'replay-test' is 35, not -1: somebody else"
    ):
        other.publish(first, 60)
    assert chosen.run(broker).published == 65
    assert numbers(taken(broker, "eu")) == list(range(100))


def test_a_sink_that_is_forgotten_is_not_begun_anew(broker: BrokerProcess, tmp_path: Path) -> None:
    """A replay whose sink was deleted is refused: its progress is unknown."""
    chosen = Chosen(tmp_path, 10)
    chosen.publish_part(broker, 5, True).await_queues(5)
    with AdminClient(NodeAddress(broker.uri)) as client:
        client.request(DeleteSink(SINK), SinkDeleted)
    with pytest.raises(JobError, match="the broker has lost the progress of this replay"):
        chosen.run(broker)


def test_a_checkpoint_belongs_to_one_replay(broker: BrokerProcess, tmp_path: Path) -> None:
    """A checkpoint belongs to one replay and one process; the error names the differences."""
    chosen = Chosen(tmp_path, 10)
    with pytest.raises(
        JobError,
        match="belongs to another replay: where None, not 'size > 1'; exchange None, not 'x'",
    ):
        chosen.run(broker, where="size > 1", exchange="x")
    with chosen.directory.locked(), pytest.raises(JobError, match="another process works on"):
        chosen.run(broker)
    with pytest.raises(JobError, match="no checkpoint of a replay"):
        replay([chosen.source], uri=broker.uri, checkpoint=tmp_path)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"sources": []}, "name what to replay"),
        ({"sources": ["/not/there"]}, "/not/there is not there"),
        ({"sources": ["/tmp", "/tmp"]}, "/tmp is named twice"),
        ({"rate": 0}, "a positive number of messages a second"),
        ({"rate": float("nan")}, "a positive number of messages a second"),
        ({"exchange": "x" * 256}, "at most 255 bytes"),
        ({"uri": "http://x"}, "uri: "),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    arguments: dict[str, Any], text: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with pytest.raises(JobError, match=text):
        replay(**({"sources": [source], "uri": "amqp://127.0.0.1:1"} | arguments))
    assert list(tmp_path.iterdir()) == [source]


def test_the_default_checkpoint_belongs_to_the_arguments() -> None:
    """The default checkpoint depends on arguments and node, and lies outside of a table."""
    one = ReplayIdentity(["/a/archive"], None, None, None, "/")
    other = ReplayIdentity(["/a/archive"], "size > 1", None, None, "/")
    assert default_checkpoint(one, "h:1") == default_checkpoint(one, "h:1")
    assert (
        len({default_checkpoint(*each) for each in [(one, "h:1"), (one, "h:2"), (other, "h:1")]})
        == 3
    )
    part = ReplayIdentity(["/a/archive/queue=q/date=d"], None, None, None, "/")
    assert default_checkpoint(part, "h:1").parent == Path("/a")


def test_batches_are_cut_by_number_and_by_bytes() -> None:
    """Pieces keep the order, and are limited by rows and by bytes, for any record batches."""
    batches = [
        pa.RecordBatch.from_pydict({"n": list(range(first, first + 10))}) for first in (0, 10, 20)
    ]
    for rows, size in ((7, 1 << 30), (10, 1 << 30), (100, 100), (1, 1)):
        cut = list(pieces(iter(batches), rows, size))
        found = [
            value for piece in cut for batch in piece for value in batch.column("n").to_pylist()
        ]
        assert found == list(range(30))
        assert max(sum(batch.num_rows for batch in piece) for piece in cut) <= rows
    assert [len(piece) for piece in pieces(iter(batches), 100, 100)] == [2, 1]
