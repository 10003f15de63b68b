"""What all jobs share: results as JSON, events, errors in one line."""

import dataclasses
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from warren.pipeline.progress import JsonProgress, Step
from warren.pipeline.result import JobError, JobResult
from warren.pipeline.spark_run import StartingSpark, one_line, starting_spark
from warren.spark import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclasses.dataclass
class Inner:
    name: bytes
    at: datetime.date


@dataclasses.dataclass
class SomeResult(JobResult):
    path: Path
    parts: list[Inner]
    hidden: object = dataclasses.field(default=None, repr=False)


def test_a_result_is_json() -> None:
    """Paths, times and bytes become text, nested as they are."""
    result = SomeResult(Path("/a"), [Inner(b"q\xff", datetime.date(2026, 1, 31))], object())
    expected = {"path": "/a", "parts": [{"name": "q�", "at": "2026-01-31"}]}
    assert json.loads(json.dumps(result.as_json())) == expected
    assert result.exit_code == 0
    assert result.lines()[0] == "path: /a"


def test_events_come_at_most_once_a_second_and_at_each_new_step() -> None:
    """However often a job tells how far it is."""
    now = [0.0]
    written: list[str] = []
    progress = JsonProgress(written.append, lambda: now[0])
    for tenth in range(25):
        now[0] = tenth / 10
        progress.show(Step("reading", tenth, 25, "files"))
    progress.show(Step("writing"))
    events = [json.loads(line) for line in written]
    assert [(event["name"], event["done"]) for event in events] == [
        ("reading", 0), ("reading", 10), ("reading", 20), ("writing", 0),
    ]  # fmt: skip


def test_an_error_of_ours_is_found_in_what_spark_makes_of_it() -> None:
    """Its text, without the worker's traceback; of other errors the first line."""
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        "  File \"x.py\", line 3, in read\nwarren.spark.broker_link.SourceError: no queue 'q' in vhost '/'\n SQLSTATE: XXKST"
    )
    assert one_line(text) == "no queue 'q' in vhost '/'"
    java = "An error occurred while calling o7.parquet.\n: org.apache.spark.SparkException: [FAILED_READ] x\n\tat a.b"
    assert one_line(java) == "[FAILED_READ] x"
    assert one_line("\n[PATH_NOT_FOUND] Path does not exist: file:/x.\nmore") == (
        "[PATH_NOT_FOUND] Path does not exist: file:/x."
    )


def test_a_spark_that_does_not_start_is_told_to_who_asks_for_it() -> None:
    """Not before: others may have failed meanwhile, with more to say."""
    spark = StartingSpark()

    def fail() -> "SparkContext":
        raise SparkUnavailableError("no java")

    spark.fill(fail)
    for _ in range(2):
        with pytest.raises(SparkUnavailableError, match="no java"):
            spark.wait()


def test_a_connect_server_is_refused_by_jobs_that_share_out_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("warren.pipeline.spark_run.require_spark", lambda: None)
    with pytest.raises(JobError, match="cannot run on a Spark Connect server"), starting_spark("x", "sc://h"):
        pass
