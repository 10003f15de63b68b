"""`make build` makes a wheel and a source distribution that install into an empty environment and
work there."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pika

from tests.support.environments import CLEAN, ROOT, UV, dist, install, only, run

__all__ = ["dist"]


def test_the_wheel_brings_a_compiled_broker_that_keeps_messages(dist: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "environment", str(only(dist, "*.whl")))
    assert run(programs / "warren", "--version", cwd=tmp_path).endswith("(compiled)\n")
    data = tmp_path / "data"
    server = subprocess.Popen(
        [str(programs / "warren"), "server", "--data-dir", str(data), "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env=CLEAN,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith("warren is ready: amqp=")
        port = int(ready.split("amqp=")[1].split()[0].rpartition(":")[2])
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
    finally:
        server.terminate()
        assert server.wait(60) == 0


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
    assert run(programs / "warren", "--version", cwd=tmp_path).endswith("(interpreted)\n")
