"""`make build` makes a wheel and a source distribution that install into an empty environment and
work there."""

import json
import sys
import tarfile
from pathlib import Path

from tests.support.environments import ROOT, UV, dist, install, only, run
from tools.release.artifacts import write_components
from tools.release.driving import drive
from warrenmq import __version__

__all__ = ["dist"]


def test_the_wheel_brings_a_compiled_broker_that_keeps_messages(dist: Path, tmp_path: Path) -> None:
    """Also the list of what it depends on has what is installed, with versions."""
    programs = install(tmp_path / "environment", str(only(dist, "*.whl")))
    drive(programs, tmp_path / "node", __version__, "compiled", has_extras=False)
    write_components(programs / "python", __version__, tmp_path / "components.json")
    document = json.loads((tmp_path / "components.json").read_text())
    subject = document["metadata"]["component"]
    assert subject["purl"] == f"pkg:pypi/warrenmq@{__version__}"
    listed = {(each["name"], each["version"]) for each in document["components"]}
    found = run(UV, "pip", "freeze", "--python", programs / "python").splitlines()
    packages = {tuple(line.split("==")) for line in found if not line.startswith("warrenmq")}
    assert {(name.lower().replace("_", "-"), version) for name, version in listed} == packages


def test_the_name_of_an_extra_adds_to_what_is_installed(dist: Path, tmp_path: Path) -> None:
    """Programs that miss an extra say so; there is no index here that could know the name."""
    wheel = only(dist, "*.whl").as_uri()
    programs = install(tmp_path / "environment", f"warrenmq[topology] @ {wheel}")
    before = run(UV, "pip", "freeze", "--python", programs / "python")
    run(
        sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-index",
        "--disable-pip-version-check", "warrenmq[topology]",
    )  # fmt: skip
    assert run(UV, "pip", "freeze", "--python", programs / "python") == before


def test_the_wheel_brings_the_pytest_plugin(dist: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "environment", str(only(dist, "*.whl")), "pytest")
    (tmp_path / "test_application.py").write_text(
        "import socket\n"
        "def test_a_broker_listens(warren_broker):\n"
        "    socket.create_connection((warren_broker.host, warren_broker.port)).close()\n"
    )
    output = run(programs / "python", "-m", "pytest", "--strict-markers", cwd=tmp_path)
    assert "plugins: warrenmq-" in output and "1 passed" in output


def test_the_spark_extra_brings_the_data_sources(dist: Path, tmp_path: Path) -> None:
    programs = install(
        tmp_path / "environment", f"warrenmq[spark] @ {only(dist, '*.whl').as_uri()}"
    )
    script = (
        "import pyspark, pyspark_warren, pyspark_warren_store, warrenmq.pipeline\n"
        "import pyspark_warren_events, pyspark_warren_metrics\n"
        "from warrenmq.spark import session\n"
        "print(pyspark_warren.DefaultSource.name(), pyspark_warren_store.DefaultSource.name())\n"
        "print(pyspark_warren_events.DefaultSource.name())\n"
        "print(pyspark_warren_metrics.DefaultSource.name())\n"
    )
    expected = "warren warren_store\nwarren_events\nwarren_metrics\n"
    assert run(programs / "python", "-c", script, cwd=tmp_path) == expected


def test_the_source_distribution_builds_a_pure_wheel_that_installs(
    dist: Path, tmp_path: Path
) -> None:
    source = only(dist, "*.tar.gz")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files", "src").splitlines()
    assert [path for path in tracked if path not in packed and (ROOT / path).exists()] == []
    run(
        UV, "build", "--quiet", "--no-config", "--wheel", "--no-build-isolation",
        "--python", sys.executable, "-o", tmp_path, source,
        environment={"WARREN_PURE": "1"},
    )  # fmt: skip
    programs = install(tmp_path / "environment", str(only(tmp_path, "*-none-any.whl")))
    drive(programs, tmp_path / "node", __version__, "interpreted", has_extras=False)
