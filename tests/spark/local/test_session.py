"""Tests session(): its settings for each kind of master; an active session is not changed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.support.spark.inline import InlineSpark
from warrenmq.pipeline.spark_run import spark_for
from warrenmq.spark import SparkUnavailableError, session
from warrenmq.spark.local import session as local_session

if TYPE_CHECKING:
    from collections.abc import Mapping

LIGHT = "-XX:TieredStopAtLevel=1"


class RecordingBuilder:
    """Replaces SparkSession.builder."""

    def __init__(self) -> None:
        self.address = ""
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> "RecordingBuilder":
        return self

    def master(self, address: str) -> "RecordingBuilder":
        self.address = address
        return self

    def remote(self, address: str) -> "RecordingBuilder":
        self.address = f"remote {address}"
        return self

    def config(self, key: str, value: str) -> "RecordingBuilder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> str:
        return "session"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> RecordingBuilder:
    builder = RecordingBuilder()
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(local_session, "require_spark", lambda: None)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return builder


def make(master: str | None, settings: "Mapping[str, str] | None" = None) -> None:
    assert session("s", master, settings) == "session"  # type: ignore[comparison-overlap]  # fake


def test_spark_logs_errors_only(
    builder: RecordingBuilder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark logs errors only, unless a configuration directory configures the log."""
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    make(None)
    _, settings = builder.settings["spark.driver.extraJavaOptions"].split(
        "-Dlog4j2.configurationFile=file://"
    )
    assert "rootLogger.level = error" in Path(settings).read_text()
    quiet = local_session.log_options(tells_failures=False)
    assert quiet.endswith(" -Dwarren.failures.log.level=off") and settings in quiet
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert settings in local_session.log_options()
    (tmp_path / "log4j2.properties").touch()
    assert local_session.log_options() == ""


def test_without_a_master_the_session_is_local_with_all_cores(builder: RecordingBuilder) -> None:
    """A local session retries tasks, listens on the loopback interface, and runs this Python."""
    make(None)
    cores = len(os.sched_getaffinity(0))
    assert builder.address == f"local[{cores},4]"
    assert builder.settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert builder.settings["spark.sql.shuffle.partitions"] == str(cores)
    assert "ExitOnOutOfMemoryError" in builder.settings["spark.driver.extraJavaOptions"]
    assert os.environ["PYSPARK_PYTHON"]


def test_a_job_gets_the_light_jvm(
    builder: RecordingBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs get the JVM flags that save start-up time; sessions of users keep Spark's own."""
    with monkeypatch.context() as patch:
        patch.setattr(builder, "getOrCreate", InlineSpark)
        with spark_for("replay", None):
            assert LIGHT in builder.settings["spark.driver.extraJavaOptions"]
    make(None)
    assert LIGHT not in builder.settings["spark.driver.extraJavaOptions"]


def test_a_cluster_gets_none_of_the_settings_for_one_machine(builder: RecordingBuilder) -> None:
    """A cluster's workers must reach the driver, so it is not bound to the loopback interface."""
    make("spark://head:7077", {"spark.sql.session.timeZone": "Europe/Berlin"})
    assert builder.address == "spark://head:7077"
    assert not [
        key
        for key in builder.settings
        if key.startswith("spark.driver.") and "extraJava" not in key
    ]
    assert builder.settings["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert builder.settings["spark.ui.showConsoleProgress"] == "false", "jobs have their own"


def test_a_connect_server_is_told_only_what_a_query_may_set(
    builder: RecordingBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Connect session gets only settings of queries, and needs no Java on this side."""

    def no_java() -> None:
        raise SparkUnavailableError("no java")

    monkeypatch.setattr(local_session, "require_spark", no_java)
    make("sc://server:15002")
    assert builder.address == "remote sc://server:15002"
    assert all(key.startswith("spark.sql.") for key in builder.settings)


def test_an_active_session_is_used_as_it_is(
    builder: RecordingBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An active session is returned with the settings it has."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "mine")
    assert (
        session(  # type: ignore[comparison-overlap]  # fake
            "s", settings={"spark.sql.session.timeZone": "UTC"}
        )
        == "mine"
    )
    assert builder.settings == {}
