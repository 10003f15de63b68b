"""A job chooses the right engine, and gives the same result in one process, several, and Spark."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.support.command_line import warren
from tests.support.stores.stopped_node import MESSAGES
from tests.support.stores.stopped_node_fixtures import data, original, store
from warrenmq.pipeline import (
    archive,
    backup,
    engine,
    import_rabbitmq,
    replay,
    report,
    restore,
    restore_live,
    verify_job,
)
from warrenmq.pipeline.engine import is_local, require_engine, sharing_for
from warrenmq.pipeline.progress import Silent
from warrenmq.pipeline.rebuild_index_job import rebuild_index
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import LocalSharing
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.pipeline.verify_job import verify
from warrenmq.spark import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["data", "original", "store"]


def process_id(_: object) -> int:
    return os.getpid()


def fail_for(number: int) -> int:
    if number == 3:
        raise ValueError("three is not done")
    return number


def die(part: Iterable[Any]) -> Iterator[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield from map(str, part)


def blunder(part: Iterable[Any]) -> Iterator[str]:
    raise KeyError("a mistake of ours")


def test_a_job_runs_on_spark_unless_it_is_not_there_or_not_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "_why_not_spark", lambda: "")
    assert not is_local("auto") and not is_local("spark") and is_local("local")
    require_engine("local")
    monkeypatch.setattr(engine, "_why_not_spark", lambda: "no Java")
    assert is_local("auto") and not is_local("spark")
    assert not is_local("auto", master="local[1]")
    assert not caplog.messages
    require_engine("auto")
    assert caplog.messages == ["the job runs on this machine, without Spark: no Java"]
    with pytest.raises(JobError, match="the engine local uses no Spark"):
        is_local("local", master="local[1]")
    with pytest.raises(JobError, match="unknown engine 'fast'; there are: auto, spark, local"):
        is_local("fast")  # type: ignore[arg-type]  # what a program may pass


def test_tasks_are_done_by_several_processes(tmp_path: Path) -> None:
    """Several processes run each task once; a failure is raised after the others have results."""
    sharing = LocalSharing(2)
    runner = TaskRunner(sharing, Silent())
    try:
        tasks = {str(number): number for number in range(6)}
        with pytest.raises(JobError, match=r"^three is not done$"):
            runner.run(tmp_path / "numbers", tasks, fail_for, int, "count")
        done = {
            path.name: msgspec.json.decode(path.read_bytes())
            for path in (tmp_path / "numbers").iterdir()
        }
        assert done == {name: number for name, number in tasks.items() if number != 3}
        ids = runner.run(tmp_path / "ids", tasks, process_id, int, "count")
        assert len(set(ids.values())) == 2 and os.getpid() not in ids.values()
        one = runner.run(tmp_path / "one", {"0": 0}, process_id, int, "count")
        assert one == {"0": os.getpid()}
        with pytest.raises(JobError, match=r"a worker process has ended \(exit status -9\)"):
            sharing.run(die, [0, 1])
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            sharing.run(blunder, [0, 1])
        assert sharing.run(map_to_text, [0, 1, 2]) == ["0", "1", "2"]
    finally:
        sharing.close()


def map_to_text(part: Iterable[Any]) -> Iterator[str]:
    # A task's printed text must not get into its results.
    print("printed by a task")
    return map(str, part)


@pytest.mark.kill
def test_verify_says_the_same_in_one_process_and_in_two(
    data: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a damaged store, `verify` gives the same result in one process and in two."""
    paths = sorted(store.glob("queues/1/*.idx"), key=lambda path: int(path.stem))
    paths[1].write_bytes(bytes(4096))
    here = verify(data, engine="local")
    assert here.counts and not here.clean
    monkeypatch.setattr(verify_job, "TASK_BYTES", 100_000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    in_two = verify(data, engine="local")
    assert vars(in_two) == vars(here)


@pytest.mark.kill
def test_the_command_verifies_a_store_without_java(original: Path, tmp_path: Path) -> None:
    """Without PySpark, too; a line says so, unless that was asked for."""
    without = "import sys; sys.modules['pyspark'] = None; from warrenmq.cli import main; main()"
    environment = {"JAVA_HOME": str(tmp_path), "PATH": os.path.dirname(sys.executable)}
    command = [sys.executable, "-c", without, "pipeline", "verify", str(original)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0 and f" {MESSAGES} messages," in done.stdout
    assert re.fullmatch(r"[^\n]*: the job runs on this machine, without Spark: .*\n", done.stderr)
    asked = warren("pipeline", "verify", original, "--engine", "local", environment=environment)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, done.stdout, "")
    refused = warren("pipeline", "verify", original, "--engine", "spark", environment=environment)
    assert refused.returncode == 2 and refused.stderr.startswith(
        "warren: JAVA_HOME is set, but there is no"
    )


@pytest.mark.spark
@pytest.mark.kill
def test_verify_says_the_same_in_spark(spark: "SparkSession", data: Path, store: Path) -> None:
    sorted(store.glob("msg_store_persistent/*.rdq"))[0].write_bytes(b"noise" * 100)
    assert vars(verify(data, spark=spark)) == vars(verify(data, engine="local"))


# The address of a broker that is away.
NOBODY = "amqp://guest:guest@127.0.0.1:1/"
# Runs a job with the engine spark, or one that takes nothing else; arguments are a directory and
# the URI of a broker.
SPARK_JOBS: dict[str, Callable[[Path, str], object]] = {
    "archive": lambda place, uri: archive(place / "new", uri=uri, queues=["q"], retry_timeout_s=0),
    "replay": lambda place, uri: replay([place], uri=uri, engine="spark", retry_timeout_s=0),
    "replay with a filter": lambda place, uri: replay(
        [place], uri=uri, where="seq > 1", retry_timeout_s=0
    ),
    "restore to a node": lambda place, uri: restore_live(
        place, uri, engine="spark", retry_timeout_s=0
    ),
    "backup": lambda place, uri: backup(uri, place / "new", engine="spark", retry_timeout_s=0),
    "report": lambda place, uri: report(
        place / "new.html", uri=uri, engine="spark", retry_timeout_s=0
    ),
    "restore": lambda place, uri: restore(place, place.parent / "new", engine="spark"),
    "verify": lambda place, uri: verify(place, engine="spark"),
    "rebuild": lambda place, uri: rebuild_index(place, place.parent / "new", engine="spark"),
    "import": lambda place, uri: import_rabbitmq(place, place.parent / "new", engine="spark"),
}


@pytest.mark.parametrize("job", SPARK_JOBS)
def test_a_job_says_that_java_is_missing_before_it_waits_for_anything(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before the broker is asked, and the job leaves nothing behind."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SparkUnavailableError, match="JAVA_HOME is set, but there is no"):
        SPARK_JOBS[job](tmp_path, NOBODY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["replay", "restore to a node"])
def test_a_job_that_publishes_says_that_pyspark_is_missing(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a JVM too, since the sink belongs to the data source."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match="pyspark is not installed: pip install"):
        if job == "replay":
            replay([tmp_path], uri=NOBODY, retry_timeout_s=0)
        else:
            restore_live(tmp_path, NOBODY, retry_timeout_s=0)


def test_a_spark_that_is_named_is_taken() -> None:
    """A named Spark master excludes the engine `local`: the error says so."""
    with (
        pytest.raises(JobError, match="the engine local uses no Spark"),
        sharing_for("verify", "local", "local[1]", None, Silent()),
    ):
        pytest.fail("it goes on")
