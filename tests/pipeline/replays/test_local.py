"""The job `replay` without Spark chooses and sorts messages of files, or leaves them to Spark."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tests.support.brokers.process import BrokerProcess
from warrenmq.pipeline import JobError, RouteCount, replay
from warrenmq.pipeline.places import LocalPlace
from warrenmq.pipeline.replays import local as replay_local
from warrenmq.pipeline.replays.local import NotLocalError, choose

TIME = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def bodies(sources: list[Path], exchange: str | None = None) -> list[bytes]:
    return [
        bytes(body)
        for body in choose([LocalPlace(path) for path in sources], None, exchange)[
            "body"
        ].to_pylist()
    ]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    yield broker
    assert broker.stop() == 0


def test_names_of_directories_are_columns_and_hidden_files_are_none(tmp_path: Path) -> None:
    """Partition names become columns, hidden files are ignored, rows are sorted by queue and seq.

    Rows without a seq come first.
    """
    table = tmp_path / "table"
    write(table / "queue=b%2Fc/date=2026-01-31/x.parquet", body=[b"4", b"3"], seq=[8, 7])
    write(table / "queue=a/date=2026-01-30/y.parquet", body=[b"2", b"1"], seq=[9, None])
    write(table / "queue=a/_temporary/z.parquet", body=[b"no"], seq=[1])
    (table / ".lock").write_bytes(b"no Parquet")
    found = choose([LocalPlace(table)], None, "")
    assert found.column("body").to_pylist() == [b"1", b"2", b"3", b"4"]
    assert found.column("queue").to_pylist() == ["a", "a", "b/c", "b/c"]
    assert found.column("exchange_name").unique().to_pylist() == [b""]
    more = write(tmp_path / "more.parquet", body=[b"0"], seq=[10], queue=["a"])
    assert bodies([table, more], "") == [b"1", b"2", b"0", b"3", b"4"]


def test_what_could_mean_something_else_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write(tmp_path / "plain.parquet", body=[b"x"], exchange=["a"], seq=[1])
    assert bodies([plain]) == [b"x"]
    write(tmp_path / "mixed/a.parquet", body=[b"x"])
    write(tmp_path / "mixed/b.parquet", body=[b"x"], type=["t"])
    other = write(tmp_path / "other.parquet", body=[b"x"], exchange=["a"], seq=["one"])
    for sources, where, text in (
        ([plain], "size > 1", "a filter"),
        ([tmp_path / "mixed"], None, "has other columns"),
        ([plain, other], None, "column 'seq' has several types"),
    ):
        with pytest.raises(NotLocalError, match=text):
            choose([LocalPlace(path) for path in sources], where, None)
    monkeypatch.setattr(replay_local, "MEMORY_BYTES_MAX", 10)
    with pytest.raises(NotLocalError, match="sorted by Spark"):
        choose([LocalPlace(plain)], None, None)
    with pytest.raises(JobError, match=r"cannot be replayed: where to"):
        monkeypatch.undo()
        choose([LocalPlace(write(tmp_path / "nowhere.parquet", body=[b"x"]))], None, None)


def test_messages_are_published_without_a_jvm(broker: BrokerProcess, tmp_path: Path) -> None:
    """Without a JVM messages are published in order, unchanged; a dry run counts the same."""
    source = write(
        tmp_path / "source/a.parquet",
        queue=["a"] * 4,
        seq=[4, 3, 2, 1],
        body=[b"4", b"3", b"2", b"1"],
        exchange=[""] * 4,
        routing_key=["q"] * 4,
        headers=pa.array([[("n", str(n))] for n in range(4)], pa.map_(pa.string(), pa.string())),
        headers_raw=pa.array([None] * 4, pa.binary()),
        timestamp=pa.array([TIME] * 4, pa.timestamp("us", tz="UTC")),
    ).parent
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        dry = replay([source], uri=broker.uri, dry_run=True, engine="local")
        assert dry.routes == [RouteCount("", "q", 4)] and dry.messages == 4
        assert replay([source], uri=broker.uri, engine="local").published == 4
        # The engine is no part of a replay's identity.
        assert replay([source], uri=broker.uri, engine="spark").published_before == 4
        for number in (1, 2, 3, 4):
            _, properties, body = channel.basic_get("q", auto_ack=True)
            assert body == b"%d" % number and properties.headers == {"n": 4 - number}
            assert properties.timestamp == TIME.timestamp()
    with pytest.raises(JobError, match="a filter is evaluated by Spark: take the engine spark"):
        replay([source], uri=broker.uri, where="seq > 2", engine="local")
    write(source / "a.parquet", body=pa.array([None], pa.binary()), exchange=["x"])
    with pytest.raises(JobError, match="column 'body' is null"):
        replay([source], uri=broker.uri, exchange="", engine="local")
    assert sorted(
        path.name for path in tmp_path.iterdir() if "replay" in path.name and path.is_dir()
    ) == [path.name for path in tmp_path.glob("source.replay-*")]
