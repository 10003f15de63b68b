"""Tests the preparation of Spark's Python workers, which happens once in each of them."""

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

pytest.importorskip("pyspark")

from tests.support.awaiting import eventually
from warrenmq.spark.local.worker import settle

# Objects that are made after `settle` are collected, even after a second `settle`.
IN_A_TASK = """
import gc
import weakref

from pyspark import TaskContext

from warrenmq.spark.local.worker import settle

TaskContext._getOrCreate()
settle()
spared = gc.get_freeze_count()
assert spared > 0


class Ring:
    pass


ring = Ring()
ring.self = ring
seen = weakref.ref(ring)
del ring
settle()
assert gc.get_freeze_count() <= spared
gc.collect()
assert seen() is None
"""


def read_number(file: IO[bytes]) -> int:
    return int.from_bytes(file.read(4), "big")


@pytest.mark.parametrize(
    "module", ["warrenmq.spark.local.worker_daemon", "warrenmq.pipeline.task_daemon"]
)
def test_workers_whose_jvm_has_gone_say_nothing(module: str, tmp_path: Path) -> None:
    """Neither one that is forked for nobody nor an idle one; PySpark prints a stack for each."""
    environment = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        address = process.stdout.read(read_number(process.stdout))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.connect(address)
        with socket.socket(socket.AF_UNIX) as idle, idle.makefile("rb") as replies:
            idle.connect(address)
            assert str(read_number(replies)) in children.read_text().split()
        eventually(lambda: children.read_text() == "", "both workers have ended")
        process.stdin.close()
        assert process.stderr.read() == b""


def test_a_worker_spares_what_it_has_loaded_once() -> None:
    subprocess.run([sys.executable, "-c", IN_A_TASK], check=True, timeout=60)


def test_nothing_is_spared_outside_of_a_task() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
