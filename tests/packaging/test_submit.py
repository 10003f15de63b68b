"""docs/spark/submit.md: a program on a standalone cluster, in an environment made of the wheel."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from tests.support.brokers.fixtures import broker_uri
from tests.support.documented_commands import commands_of, run_commands, section_of, write_files
from tests.support.environments import CLEAN, ROOT, dist, install, only
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local.java import require_spark

__all__ = ["broker_uri", "dist"]

PAGE = (ROOT / "docs/spark/submit.md").read_text()
# Four JVMs start one after the other.
TIMEOUT_S = 600
# Spark listens on the loopback interface alone, and its JVMs compile little.
SETTINGS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
HEAD = "spark://head:7077"
ORDERS = 1000

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 120)]


@contextmanager
def started(command: list[str], log: Path, ready: str) -> Iterator[str]:
    """A process of Spark that has logged `ready`, a pattern; yields the pattern's first group."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{CLEAN['PATH']}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(programs / command[0]), *command[1:], "--host", "127.0.0.1", "--webui-port", "0"],
            cwd=log.parent, env=CLEAN | SETTINGS | {"PATH": path}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        while (found := re.search(ready, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield found[1]
    finally:
        process.kill()
        process.wait()


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """The URL of a master with one worker: the page's commands, on ports that are free here."""
    master, worker = commands_of(section_of(PAGE, "A cluster for an afternoon")).splitlines()
    head = master.replace("--host head --port 7077", "--port 0").split()
    with started(head, directory / "master.log", r"Starting Spark master at (\S+)") as url:
        hand = worker.replace(HEAD, url).split()
        hand += ["--cores", "2", "--memory", "2g", "--work-dir", str(directory / "work")]
        with started(hand, directory / "worker.log", r"registered with master (\S+)"):
            yield url


def test_the_program_runs_on_a_cluster(dist: Path, broker_uri: str, tmp_path: Path) -> None:
    """The cluster has warren from the archive alone, and each order arrives once."""
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    with pika.BlockingConnection(pika.URLParameters(broker_uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for number in range(ORDERS):
            channel.basic_publish(
                "", "orders", b"%d" % number, pika.BasicProperties(delivery_mode=2)
            )
    write_files(PAGE, tmp_path)
    made = commands_of(section_of(PAGE, "An environment")).splitlines()
    assert [line.split()[0] for line in made] == ["python3", "environment/bin/pip", "tar"]
    # The page's pip would take the newest libraries: the first two lines are done with the lock's.
    wheel = only(dist, "*.whl").as_uri()
    install(tmp_path / "environment", f"warrenmq[jobs] @ {wheel}", is_copied=True)
    run_commands(made[2], tmp_path, TIMEOUT_S)
    with cluster(tmp_path) as url:
        submit = commands_of(section_of(PAGE, "Submit"))
        submit = submit.replace(HEAD, url).replace("/shared/orders", str(tmp_path / "shared"))
        # Neither this Python nor the sources of the checkout may be found.
        printed = run_commands(
            f"unset PYTHONPATH PYSPARK_PYTHON\n{submit}",
            tmp_path, TIMEOUT_S, WARREN_URI=broker_uri, **SETTINGS,
        )  # fmt: skip
    assert f"orders: {ORDERS}" in printed
    logs = [path.read_text() for path in (tmp_path / "work").rglob("stderr")]
    assert any("Unpacking an archive" in log for log in logs)
