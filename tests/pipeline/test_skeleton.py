"""The frame of all jobs: results as JSON and text, progress events, errors in one line."""

import dataclasses
import datetime
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.spark.inline import InlineSpark
from warrenmq.offline.backup_files import must_be_new
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline import spark_run
from warrenmq.pipeline.progress import JsonProgress, Step
from warrenmq.pipeline.result import JobError, JobResult, must_have_parent
from warrenmq.pipeline.sharing import Sharing
from warrenmq.pipeline.spark_run import StartingSpark
from warrenmq.spark import SparkUnavailableError


@dataclasses.dataclass
class Inner:
    name: bytes
    at: datetime.date


@dataclasses.dataclass
class SomeResult(JobResult):
    path: Path
    parts: list[Inner]
    hidden: object = dataclasses.field(default=None, repr=False)


@pytest.mark.parametrize("name", ["", "no-directory/"])
def test_a_job_makes_only_the_last_name_of_a_path(name: str, tmp_path: Path) -> None:
    """A job creates only the last name of a path: a typo in a parent is an error."""
    path = tmp_path / f"{name}new"
    for check, error in ((must_have_parent, JobError), (must_be_new, ToolError)):
        if not name:
            check(path)
            continue
        with pytest.raises(error, match=f"there is no directory {path.parent} for new"):
            check(path)
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_json() -> None:
    """A result is JSON: paths, times and bytes become text, nested values stay nested."""
    result = SomeResult(Path("/a"), [Inner(b"q\xff", datetime.date(2026, 1, 31))], object())
    expected = {"path": "/a", "parts": [{"name": "q�", "at": "2026-01-31"}]}
    assert json.loads(json.dumps(result.as_json())) == expected
    assert result.exit_code == 0
    assert result.lines()[0] == "path: /a"


def test_events_come_at_most_once_a_second_and_at_the_ends_of_each_step() -> None:
    """While a step goes on, its progress is written once a second at most."""
    now = [0.0]
    written: list[str] = []
    progress = JsonProgress(written.append, lambda: now[0])
    for tenth in range(26):
        now[0] = tenth / 10
        progress.show(Step("reading", tenth, 25, "files"))
    progress.show(Step("writing"))
    events = [json.loads(line) for line in written]
    assert [(event["name"], event["done"]) for event in events] == [
        ("reading", 0), ("reading", 10), ("reading", 20), ("reading", 25), ("writing", 0),
    ]  # fmt: skip


def test_no_event_comes_twice() -> None:
    """An unchanged step is not repeated, also at its end."""
    now = [0.0]
    written: list[str] = []
    progress = JsonProgress(written.append, lambda: now[0])
    for second in range(5):
        now[0] = float(second)
        progress.show(Step("reading", 5, 5, "files"))
    assert len(written) == 1


def test_a_result_is_told_in_words() -> None:
    """The text of a result has words for None, False, empty lists and tables."""

    @dataclasses.dataclass
    class Mixed(JobResult):
        base: str | None
        losses: dict[str, int]
        notes: list[str]
        is_dry: bool
        waiting: dict[str, int]

    assert Mixed(None, {}, [], False, {"a": 1, "b": 2}).lines() == [
        "base: none",
        "losses: none",
        "notes: none",
        "is dry: no",
        "waiting: a 1, b 2",
    ]


def test_a_spark_that_does_not_start_is_told_to_who_asks_for_it() -> None:
    """A failed start of Spark is raised only at `wait`: another error may say more."""

    def fail() -> Sharing:
        raise SparkUnavailableError("no java")

    with ThreadPoolExecutor(1) as thread:
        spark = StartingSpark(fail, thread)
        spark.begin()
        for _ in range(2):
            with pytest.raises(SparkUnavailableError, match="no java"):
                spark.wait()


def test_ctrl_c_waits_while_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is deferred while Spark starts, because PySpark would leave its JVM running."""
    pytest.importorskip("pyspark")
    came_to_its_end = False

    def start(*_: object, tells_failures: bool, is_light: bool) -> object:
        nonlocal came_to_its_end
        os.kill(os.getpid(), signal.SIGINT)
        came_to_its_end = True
        return InlineSpark()

    monkeypatch.setattr(spark_run, "session", start)
    with pytest.raises(KeyboardInterrupt), spark_run.spark_for("test", None):
        pytest.fail("it goes on")
    assert came_to_its_end


def test_a_spark_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = pytest.importorskip("py4j.protocol")

    def fail(*_: object, tells_failures: bool, is_light: bool) -> object:
        raise protocol.Py4JError(
            "An error occurred while calling None.Context.\n: x.SparkException: Could not parse Master URL\n\tat x"
        )

    monkeypatch.setattr(spark_run, "session", fail)
    with (
        pytest.raises(JobError, match=r"^Could not parse Master URL$"),
        spark_run.spark_for("test", "moon"),
    ):
        pytest.fail("it goes on")
