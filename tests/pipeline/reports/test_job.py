"""The job `report` gives the same figures for a running and a stopped node, and on each engine."""

import contextlib
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pika
import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.stores.stopped_node_fixtures import original
from warrenmq.pipeline import JobError, report
from warrenmq.pipeline.progress import Silent
from warrenmq.pipeline.reports import figures as report_figures
from warrenmq.pipeline.reports.figures import DeathFigures, ReportFigures, read_figures
from warrenmq.pipeline.reports.part import age_buckets, age_of
from warrenmq.pipeline.sharing import ContextSharing, LocalSharing, Sharing

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession


__all__ = ["original"]

NOW = datetime.datetime.now(datetime.UTC)


def test_what_cannot_be_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """Impossible arguments give one line before Spark starts, and write nothing."""
    page = tmp_path / "x.html"
    for arguments, text in (
        ({}, "name a data directory, or the URI"),
        ({"directory": tmp_path, "uri": "amqp://x/"}, "name a data directory, or the URI"),
        ({"uri": "http://x/"}, "uri: "),
        ({"uri": "amqp://x/", "snapshots": tmp_path / "no"}, "there is no directory .*no"),
    ):
        with pytest.raises(JobError, match=text):
            report(page, **arguments)
    with pytest.raises(JobError, match=r"must end in \.html"):
        report(tmp_path / "x.txt", directory=tmp_path)
    with pytest.raises(JobError, match="there is no directory"):
        report(tmp_path / "no" / "x.html", directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    page.mkdir()
    with pytest.raises(JobError, match="is a directory"):
        report(page, directory=tmp_path)


@contextlib.contextmanager
def publishing(directory: Path) -> Iterator[tuple[BrokerProcess, "BlockingChannel"]]:
    """Yield a running node and a confirming channel to it; the test may close its connection."""
    node = BrokerProcess(directory)
    node.start()
    try:
        with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield node, channel
    finally:
        node.kill()


def test_a_running_node_and_the_same_one_stopped(tmp_path: Path) -> None:
    """A running and a stopped node give the same figures; only a running one has queue states.

    Dead letters are counted from the header x-death.
    """
    with publishing(tmp_path / "node") as (node, channel):
        for queue, count in (("orders", 40), ("dead", 10)):
            channel.queue_declare(queue, durable=True)
            for number in range(count):
                deaths = [
                    {
                        "reason": "expired",
                        "queue": "orders",
                        "exchange": "",
                        "count": 2,
                        "routing-keys": ["a"],
                    },
                    {"reason": "rejected", "queue": "other", "exchange": "", "count": 1},
                ]
                headers = {"n": number} | ({"x-death": deaths} if queue == "dead" else {})
                properties = pika.BasicProperties(delivery_mode=2, headers=headers)
                channel.basic_publish("", queue, b"x" * number, properties)
        channel.connection.close()
        live = report(
            tmp_path / "live.html", uri=node.uri, snapshots=tmp_path, engine="local"
        ).figures
        assert node.stop() == 0
    result = report(tmp_path / "dead.html", directory=tmp_path / "node" / "data", engine="local")
    dead = result.figures
    assert result.exit_code == 0
    for found in (live, dead):
        assert (found.messages, found.bytes, found.queue_count) == (
            50,
            sum(range(40)) + sum(range(10)),
            2,
        )
        assert [(queue.queue, queue.messages) for queue in found.queues] == [
            ("orders", 40),
            ("dead", 10),
        ]
        assert [(row.from_bytes, row.messages) for row in found.sizes] == [
            (0, 2), (1, 2), (2, 4), (4, 8), (8, 10), (16, 16), (32, 8),
        ]  # fmt: skip
        assert found.dead_letters == [DeathFigures("expired", "orders", 10, 30)]
        assert sum(row.messages for row in found.rates) == 50
        assert {row.routing_key for row in found.rates} == {"orders", "dead"}
        assert (found.largest[0].size, found.oldest[0].size) == (39, 0)
        assert found.damage_count == 0
    assert {
        form.queue: form.alpha + form.beta + form.gamma + form.delta for form in live.forms
    } == {
        "orders": 40,
        "dead": 10,
    }
    assert dead.forms == []
    assert json.loads((tmp_path / "dead.json").read_text())["messages"] == 50
    assert "<svg" in (tmp_path / "live.html").read_text()
    assert not list(tmp_path.glob("warren-snapshot-*"))


# Values that a publisher may write into the header x-death, and whether they count as an entry.
_COUNT_MAX = (1 << 63) - 1
_FORMS: list[tuple[Any, bool]] = [
    ([{"reason": "<script>", "queue": "</svg><b>", "count": 1}], True),
    ([{"reason": "max", "queue": "q", "count": _COUNT_MAX}] * 2, True),
    ([{"reason": "minus", "queue": "q", "count": -5}], True),
    ([{"reason": {"a": 1}, "queue": ["x"]}], True),
    ([{}], True),
    ({"reason": "table", "queue": "q", "count": 1}, True),
    ([], False),
    ("text", False),
    (5, False),
    (True, False),
    (None, False),
]


def test_what_strangers_have_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hostile names, headers and damage every message counts, and no text becomes markup."""
    with publishing(tmp_path / "node") as (node, channel):
        for queue in ("<script>alert(1)</script>", "\u202eqp", "a\x00b"):
            channel.queue_declare(queue, durable=True)
            for deaths, _ in _FORMS:
                properties = pika.BasicProperties(delivery_mode=2, headers={"x-death": deaths})
                channel.basic_publish("", queue, b"<i>", properties)
        channel.connection.close()
        with pytest.raises(JobError, match="login of user 'guest' was refused"):
            report(
                tmp_path / "no.html",
                uri=node.uri.replace("guest:guest", "guest:no"),
                engine="local",
            )
        assert node.stop() == 0
    data = tmp_path / "node" / "data"
    (data / "msg_stores/vhosts/<stray>").touch()
    result = report(tmp_path / "page.html", directory=data, engine="local")
    # The figures are the same with one task and with one task for each partition.
    one = figures_of(data, tmp_path / "one", LocalSharing(1))
    monkeypatch.setattr(report_figures, "TASK_BYTES", 0)
    assert figures_of(data, tmp_path / "many", LocalSharing(1)) == one
    assert [len(list((tmp_path / name).iterdir())) for name in ("one", "many")] == [1, 5]
    assert (
        report(
            tmp_path / "no.html", directory=data, headers=False, engine="local"
        ).figures.dead_letters
        == []
    )
    figures = result.figures
    assert (result.exit_code, figures.messages, figures.queue_count) == (1, 3 * len(_FORMS), 3)
    assert sum(row.messages for row in figures.dead_letters) == 3 * sum(
        counts for _, counts in _FORMS
    )
    assert {row.reason: row.deaths for row in figures.dead_letters}["max"] > 0
    assert figures.damage[0].vhost == ""
    html = result.html.read_text()
    assert "<script" not in html and "</svg><b>" not in html and "<stray>" not in html
    assert "\u202e" not in html and "None" not in html
    assert json.loads(result.json.read_text())["messages"] == figures.messages


def figures_of(store: Path, scratch: Path, sharing: Sharing) -> ReportFigures:
    scratch.mkdir()
    return read_figures(sharing, store, scratch, NOW, True, "store", [], Silent())


@pytest.mark.kill
@pytest.mark.spark
def test_spark_finds_the_same_figures(
    spark: "SparkSession", original: Path, tmp_path: Path
) -> None:
    local = figures_of(original, tmp_path / "local", LocalSharing(1))
    for queue in local.queues:
        assert queue.newest_age_s <= queue.median_age_s <= queue.oldest_age_s
    assert figures_of(original, tmp_path / "spark", ContextSharing(spark.sparkContext)) == local


def test_ages_are_counted_within_half_a_percent() -> None:
    ages = np.unique(np.concatenate([np.arange(2000), np.logspace(0, 14, 5000).astype(np.int64)]))
    buckets = age_buckets(ages)
    assert (np.diff(buckets) >= 0).all()
    middles = np.array([age_of(bucket) for bucket in buckets.tolist()])
    assert (np.abs(middles - ages) <= ages / 250).all()
    assert (middles[ages < 256] == ages[ages < 256]).all()
