"""`python -m bench disk`: what the broker makes of its disk, beside what the disk does alone.

Round by round, on the same file system:

- messages of 1 KiB are published into a lazy queue, with a window of 1,000 confirms, and the disk
  alone writes and syncs pieces of --batch bytes, about what half of the window has as records;
- messages of 12 B are published, each after the confirm of the one before, and the disk alone
  writes and syncs records of as many bytes.

The disk alone gets the calls that warren's flusher makes, in files of the journal's size. The
figures are medians of the rounds; those of a round trip and of a sync are medians in a round too.
"""

import argparse
import statistics
import time
from pathlib import Path

from bench.brokers import Broker
from bench.scenario import Scenario, remove, run_scenario
from warrenmq.store.disk.local_file_system import LocalFileSystem

QUEUE = "bench-disk"
FILE_BYTES = 16_777_216
# Bytes that are allocated ahead of the writing.
ALLOCATE_BYTES = 8_388_608
# Bytes of a record with a body of 1 KiB, and of one of 12 B.
LARGE_RECORD_BYTES = 1100
SMALL_RECORD_BYTES = 90
SMALL_RECORDS = 300
MICROSECONDS = 1e6


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument(
        "--messages", type=int, default=500_000, metavar="N", help="of 1 KiB in each round"
    )
    parser.add_argument("--batch", type=int, default=550_000, metavar="BYTES", help="of a sync")
    parser.add_argument("--seconds", type=float, default=3, help="of the round trips in each round")


def main(arguments: list[str]) -> int:
    return run_scenario("disk", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    for kind in scenario.kinds():
        with scenario.running(kind) as broker:
            _measure(scenario, broker)


def _measure(scenario: Scenario, broker: Broker) -> None:
    options = scenario.options
    batch_bytes: int = options.batch
    rates: list[float] = []
    disk_rates: list[float] = []
    trips: list[float] = []
    syncs: list[float] = []
    for number in range(1, options.rounds + 1):
        filled = scenario.fill(
            broker, QUEUE, options.messages, "--size", "1024", "--queue-args", "x-queue-mode=lazy"
        )
        remove(broker, QUEUE)
        rates.append(float(filled.summary["publish_rate"]))
        count = options.messages * LARGE_RECORD_BYTES // batch_bytes + 1
        times_s = write_and_sync(scenario.directory, batch_bytes, count)
        disk_rates.append(count * batch_bytes / LARGE_RECORD_BYTES / sum(times_s))
        syncs.append(_sync_us(scenario.directory))
        trip = scenario.perf(
            broker,
            0,
            *("--queue", QUEUE, "--consumers", "0", "--time", str(options.seconds)),
            *("--size", "12", "--flag", "persistent", "--confirm", "1"),
        )
        remove(broker, QUEUE)
        trips.append(float(trip.summary["confirm_latency_us"]["median"]))
        syncs.append(_sync_us(scenario.directory))
        scenario.say(
            f"round {number}: {rates[-1]:,.0f} of {disk_rates[-1]:,.0f} msg/s, {trips[-1]:.0f} µs"
        )
    rate, disk_rate = statistics.median(rates), statistics.median(disk_rates)
    trip_us, sync_us = statistics.median(trips), statistics.median(syncs)
    for name, value, unit in (
        ("published into a lazy queue, 1 KiB", rate, "msg/s"),
        ("disk alone at the same batch", disk_rate, "msg/s"),
        ("published, of the disk alone", 100 * rate / disk_rate, "%"),
        ("confirm round trip, 12 B", trip_us, "µs"),
        ("disk alone: one record written and synced", sync_us, "µs"),
        ("round trip, above the disk alone", trip_us - sync_us, "µs"),
    ):
        scenario.add(broker, name, value, unit)


def _sync_us(directory: Path) -> float:
    times_s = write_and_sync(directory, SMALL_RECORD_BYTES, SMALL_RECORDS)
    return statistics.median(times_s) * MICROSECONDS


def write_and_sync(directory: Path, size: int, count: int) -> list[float]:
    """Write and sync `count` pieces of `size` bytes below `directory`; returns the times (s).

    A new file begins every FILE_BYTES, as the journal's files do.
    """
    files = LocalFileSystem(directory)
    # Not zeros, which a disk may compress.
    part = bytes(range(256)) * (size // 256 + 1)
    times_s: list[float] = []
    try:
        while len(times_s) < count:
            handle = files.create("disk-alone")
            offset = allocated = 0
            while offset < FILE_BYTES and len(times_s) < count:
                started = time.perf_counter()
                if offset + size > allocated:
                    handle.allocate(allocated, offset + size + ALLOCATE_BYTES - allocated)
                    allocated = offset + size + ALLOCATE_BYTES
                handle.write_synced(offset, [part[:size]])
                times_s.append(time.perf_counter() - started)
                offset += size
            handle.close()
            files.unlink("disk-alone")
    finally:
        files.release()
    return times_s
