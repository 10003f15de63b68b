"""Tests that a missing requirement of Spark is reported in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local.java import require_java, require_spark


def fake_java(home: Path, text: str, status: int = 0) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {status}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    "version",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'java version "25-ea"',
    ],
)
def test_java_17_and_newer_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Java 17 and newer is accepted, however its vendor prints the version."""
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_java()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 17 or newer.*is Java 11"),
        ('java version "1.8.0_401"', "is Java 8"),
        ("no idea", "does not tell its version"),
    ],
)
def test_older_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, text: str
) -> None:
    """An older Java is named in the error, together with the package to install."""
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=text) as caught:
        require_java()
    assert "openjdk-17" in str(caught.value) and "\n" not in str(caught.value)


def test_java_that_is_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong JAVA_HOME, no java on PATH and a file that does not run are all reported."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="JAVA_HOME is set"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="no java on PATH"):
        require_java()
    (tmp_path / "java").write_text("not a program")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(SparkUnavailableError, match="cannot be run"):
        require_java()


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark the error names the extra to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SparkUnavailableError, match=r"pip install 'warrenmq\[spark\]'"):
        require_spark()


def test_importing_the_package_loads_no_spark() -> None:
    """The package imports no pyspark: the command line imports it on machines without Spark."""
    code = "import sys, warrenmq.spark; print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_registered_package_imports_neither_arrow_nor_numpy() -> None:
    """The package stays light, because Spark imports it at the first look-up of any data source."""
    pytest.importorskip("pyspark")
    packages = "pyspark_warren, pyspark_warren_store, pyspark_warren_events, pyspark_warren_metrics"
    code = f"import sys, {packages}; print([m for m in ('pyarrow', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
