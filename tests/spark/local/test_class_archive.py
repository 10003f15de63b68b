"""The archive of Spark's classes: when there is one, when one is made, and what cannot hurt."""

import atexit
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local import class_archive as subject
from warrenmq.spark.local.class_archive import ClassArchive, archive_options, class_archive
from warrenmq.spark.local.class_training import move_to
from warrenmq.spark.local.java import java_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with one jar, a Java, and an empty cache directory."""
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/spark.jar").write_bytes(b"classes")
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
    java.chmod(0o755)
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(subject.SWITCH, raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The commands that are to run when this process ends."""
    found: list[list[str]] = []

    def register(_run: Callable[..., object], command: list[str], **_options: object) -> None:
        found.append(command)

    monkeypatch.setattr(atexit, "register", register)
    subject._make_at_exit.cache_clear()
    yield found
    subject._make_at_exit.cache_clear()


def made(archive: ClassArchive, data: bytes = b"all classes") -> Path:
    archive.directory.mkdir(parents=True, exist_ok=True)
    new = archive.directory / "new"
    new.write_bytes(data)
    archive.keep(new)
    path = archive.find()
    assert path is not None and path.read_bytes() == data
    return path


def found() -> ClassArchive:
    archive = class_archive()
    assert archive is not None
    return archive


def test_the_first_process_leaves_the_making_behind(home: Path, at_exit: list[list[str]]) -> None:
    """Without an archive Spark starts all the same; the process leaves a maker, only once."""
    assert archive_options() == archive_options() == ""
    [command] = at_exit
    assert command[:3] == ["nice", "-n", "19"] and command[-1].endswith("class_training")
    path = made(found())
    assert path.is_relative_to(home / "cache/warren")
    assert f"-XX:SharedArchiveFile={path}" in shlex.split(archive_options())


def test_an_attempt_is_not_repeated_on_the_same_day(home: Path, at_exit: list[list[str]]) -> None:
    archive = found()
    archive.directory.mkdir(parents=True)
    archive.lock.touch()
    assert archive_options() == "" and at_exit == []
    day_before_s = time.time() - 100_000
    os.utime(archive.lock, (day_before_s, day_before_s))
    assert archive_options() == "" and len(at_exit) == 1


def test_the_variable_switches_it_off(
    home: Path, at_exit: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(found())
    monkeypatch.setenv(subject.SWITCH, "off")
    assert archive_options() == "" and at_exit == []


def test_an_archive_belongs_to_one_java_and_one_set_of_jars(home: Path) -> None:
    made(found())
    (home / "spark/jars/spark.jar").write_bytes(b"other classes")
    assert found().find() is None


def test_an_archive_that_was_cut_does_not_count(home: Path) -> None:
    """Java maps the file and dies of a page that is not there, so the name has the size."""
    path = made(found())
    os.truncate(path, 3)
    assert found().find() is None


def test_a_cache_that_cannot_be_written_is_no_error(
    home: Path, at_exit: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert archive_options() == "" and at_exit == []


def test_a_configuration_directory_of_spark_prevents_it(
    home: Path, at_exit: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java makes no archive with a directory on the class path."""
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert archive_options() == "" and at_exit == []


def test_old_archives_are_deleted(home: Path) -> None:
    directory = found().directory
    for number in range(6):
        path = made(ClassArchive(directory, f"key{number}"))
        os.utime(path, (number, number))
    assert {path.name[:4] for path in directory.glob("*.jsa")} == {"key2", "key3", "key4", "key5"}


def test_the_maker_needs_nothing_of_the_process_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its temporary directory may be gone: PySpark would wait there for the JVM for ever."""
    monkeypatch.chdir(tmp_path)
    before = tempfile.mkdtemp(dir=tmp_path)
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, before)
    monkeypatch.setattr(tempfile, "tempdir", before)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    move_to(scratch)
    assert Path.cwd() == Path(tempfile.gettempdir()) == scratch
    assert os.environ["TMPDIR"] == os.environ["SPARK_LOCAL_DIRS"] == str(scratch)


def test_java_ignores_an_archive_with_damaged_bytes(tmp_path: Path) -> None:
    """Java starts without the archive, and prints nothing about it."""
    try:
        java = java_path()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    path = tmp_path / "damaged.jsa"
    path.write_bytes(bytes(range(256)) * 1000)
    options = shlex.split(subject.options_with(path))
    done = subprocess.run([java, *options, "-version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "" and "warning" not in done.stderr


def test_spark_maps_the_archive(spark: "SparkSession") -> None:
    """The session of the tests uses the archive that `make setup` has made."""
    archive = class_archive()
    path = archive.find() if archive is not None else None
    if path is None:
        pytest.skip("no archive of Spark's classes: make setup makes one")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert str(path) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
