"""The acts of the torture: what exists already, in rounds of a few minutes, each with a seed.

Every command exits with 1 when a promise is broken, and says itself what has happened.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.cluster.namespaces import why_no_namespaces
from warrenmq.spark.local.java import SparkUnavailableError, require_java


def why_no_cluster() -> str:
    """Why no cluster runs here, or ""."""
    return "" if shutil.which("etcd") else "etcd is not installed"


def why_no_namespaced_cluster() -> str:
    """Why no cluster runs here whose network is cut, or ""."""
    return why_no_cluster() or why_no_namespaces()


def why_no_spark() -> str:
    """Why Spark does not run here, or ""."""
    try:
        require_java()
    except SparkUnavailableError as error:
        return str(error)
    return ""


def why_no_spark_cluster() -> str:
    """Why neither of both runs here, or ""."""
    return why_no_spark() or why_no_cluster()


def nothing() -> str:
    """Nothing is missing."""
    return ""


@dataclass(frozen=True)
class Act:
    """One kind of round; `SEED` in its arguments is replaced. `missing`: why it cannot run here."""

    name: str
    arguments: tuple[str, ...]
    missing: Callable[[], str] = nothing

    def command(self, seed: int) -> list[str]:
        """The command of the round of `seed`."""
        words = (str(seed) if word == "SEED" else word for word in self.arguments)
        return [sys.executable, "-m", *words]


def _kills(load: str) -> Act:
    arguments = ("tests.kill.long", "--load", load, "--kills", "5", "--seed", "SEED")
    return Act(f"kills under {load}", arguments)


def _cluster(scenario: str, what: str, missing: Callable[[], str] = why_no_cluster) -> Act:
    arguments = ("tests.cluster.long", scenario, "--rounds", "2", "--seed", "SEED")
    return Act(what, arguments, missing)


def _spark(module: str, what: str, missing: Callable[[], str] = why_no_spark) -> Act:
    return Act(what, (f"tests.spark.{module}", "--runs", "1", "--seed", "SEED"), missing)


def _simulated(kind: str, what: str) -> Act:
    options = (kind,) if kind else ()
    # 500 seeds from one of its own on.
    arguments = ("simulator.simulate", *options, "--first", "SEED", "--seeds", "500")
    return Act(what, arguments)


ACTS = (
    _kills("mixed"),
    _kills("dead-letters"),
    _kills("delayed"),
    Act(
        "disks that fail, fill up and stall",
        (
            "pytest", "-q", "-p", "no:cacheprovider",
            "tests/kill/test_failing_disk.py", "tests/kill/test_full_disk.py",
            "tests/kill/test_full_disk_control.py", "tests/kill/test_slow_disk.py",
        ),
    ),
    _simulated("", "a simulated disk and clock"),
    _simulated("--leaving", "simulated expiry and dead letters"),
    _simulated("--mirrors", "a simulated cluster"),
    _cluster("faults", "nodes and etcd killed, frozen and cut"),
    _cluster("mirrors", "mirrored queues under faults"),
    _cluster("rolling", "rolling restarts"),
    _cluster("pairs", "pairs of faults that overlap", why_no_namespaced_cluster),
    _spark("kills", "Spark reads while processes die"),
    _spark("sink_kills", "Spark writes while processes die"),
    _spark("cluster.stream_kills", "Spark reads a cluster", why_no_spark_cluster),
    _spark("cluster.sink_kills", "Spark writes to a cluster", why_no_spark_cluster),
)  # fmt: skip
