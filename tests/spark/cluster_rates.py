"""Measures what mirrors cost a stream: `python -m tests.spark.cluster_rates --rounds 3`.

Each round publishes the same confirmed messages to a queue of a node that runs alone, and in a
cluster of three nodes to a queue without mirrors and one with two. A local Spark session then
streams each queue into Parquet (availableNow, a group of its own). Prints the rows a second of each
stream, the medians of all rounds, and the ratios. The nodes and Spark run the installed warren.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import warrenmq.spark
from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import ClusterNode, ClusterNodes
from tests.support.etcd import running_etcd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONE, UNMIRRORED, MIRRORED = "lone node", "without mirrors", "two mirrors"
KINDS: Final = (LONE, UNMIRRORED, MIRRORED)
POLICY: Final = '{"ha-mode": "all", "ha-sync-mode": "automatic"}'
PRODUCERS: Final = 4
BODY_BYTES: Final = 1024
# Unconfirmed messages of a producer.
WINDOW: Final = 500
# Messages that each kind streams before the first round: Spark's code is warm then.
WARM_UP: Final = 2_000


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.cluster_rates")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200_000, help="in each queue and round")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="warren-rates-") as scratch:
        place = Path(scratch)
        lone = BrokerProcess(place / "lone")
        with (
            running_etcd(place / "etcd") as etcd,
            ClusterNodes(place, etcd.url, "n1", "n2", "n3") as cluster,
        ):
            entry = cluster.nodes[0]
            assert entry.ctl("set_policy", "mirrored", "^mirrored", POLICY).code == 0
            lone.start()
            spark = warrenmq.spark.session("cluster rates")
            try:
                for number in range(given.rounds + 1):
                    # The order of kinds changes, so that none always comes first.
                    for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
                        node = lone if kind == LONE else entry
                        queue = f"{'mirrored' if kind == MIRRORED else 'plain'}-{number}"
                        messages = given.messages if number else WARM_UP
                        publish(node, queue, messages)
                        if kind == MIRRORED:
                            await_mirrors(entry, queue)
                        rate = streamed(spark, node, queue, messages, place / f"{number}-{kind}")
                        if number:
                            rates[kind].append(rate)
                            print(f"round {number}: {kind}: {rate:,.0f} rows/s", flush=True)
            finally:
                spark.stop()
                lone.kill()
    show(rates)


def publish(node: BrokerProcess, queue: str, messages: int) -> None:
    """Publish persistent messages over several connections; return when all are confirmed."""
    count = messages // PRODUCERS
    assert count * PRODUCERS == messages, f"--messages must be a multiple of {PRODUCERS}"
    command = [
        *(sys.executable, "-m", "warrenmq", "perf", "--uri", node.uri, "--queue", queue),
        *("--producers", PRODUCERS, "--consumers", 0, "--pmessages", count, "--size", BODY_BYTES),
        *("--confirm", WINDOW, "--flag", "persistent", "--no-auto-delete"),
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.stdout


def await_mirrors(node: ClusterNode, queue: str) -> None:
    """Return when both mirrors of the queue have all of it."""

    def are_in_sync() -> bool:
        rows = node.table("list_queues", "name", "synchronised_slave_pids")
        return any(name == queue and pids.count("<") == 2 for name, pids in rows)

    eventually(are_in_sync, f"{queue} has two mirrors in sync", pause_s=0.1)


def streamed(
    spark: "SparkSession", node: BrokerProcess, queue: str, messages: int, place: Path
) -> float:
    """Stream the queue into Parquet, from start to end of the query; rows a second."""
    begun_s = time.monotonic()
    query = (
        spark.readStream.format("warren")
        .option("uri", node.uri)
        .option("queues", queue)
        .option("group", "rates")
        .load()
        .writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    lasted_s = time.monotonic() - begun_s
    count = spark.read.parquet(str(place / "out")).count()
    assert count == messages, f"{count} rows of {messages} messages"
    return messages / lasted_s


def show(rates: dict[str, list[float]]) -> None:
    """Print medians, and each as a part of the rates without mirrors and of a lone node."""
    medians = {kind: statistics.median(rates[kind]) for kind in KINDS}
    print(f"\n{'':16} {'rows/s':>10} {'lowest':>10} {'highest':>10} {'of plain':>9} {'of lone':>9}")
    for kind in KINDS:
        found = medians[kind]
        print(
            f"{kind:16} {found:10,.0f} {min(rates[kind]):10,.0f} {max(rates[kind]):10,.0f} "
            f"{found / medians[UNMIRRORED]:9.2f} {found / medians[LONE]:9.2f}"
        )


if __name__ == "__main__":
    main()
