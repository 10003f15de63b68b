"""Tests the preparation of Spark's Python workers, which happens once in each of them."""

import gc
import socket
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from warrenmq.spark import worker_daemon
from warrenmq.spark.worker import settle

# Objects that are made after `settle` are collected, even after a second `settle`.
IN_A_TASK = """
import gc
import weakref

from pyspark import TaskContext

from warrenmq.spark.worker import settle

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


def test_a_worker_whose_jvm_has_gone_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker whose JVM has gone prints nothing; PySpark's daemon would print a stack for each."""

    def gone(sock: socket.socket, authenticated: bool) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(worker_daemon, "_work", gone)
    with socket.socket() as sock:
        assert worker_daemon.worker(sock, True) == 1
    assert tuple(capsys.readouterr()) == ("", "")


def test_a_worker_spares_what_it_has_loaded_once() -> None:
    subprocess.run([sys.executable, "-c", IN_A_TASK], check=True, timeout=60)


def test_nothing_is_spared_outside_of_a_task() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
