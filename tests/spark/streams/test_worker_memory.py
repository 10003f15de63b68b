"""The memory of a task depends on the size of a block, and not on the size of its batch."""

import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from tests.spark.driving import latest
from warrenmq.spark.fetching import FETCH_BYTES

if TYPE_CHECKING:
    from tests.spark.driving import Make
    from tests.support.brokers.memory_node import MemoryNode

BODY_BYTES = 64 << 10
# Messages of three blocks: while one is read, the one before is still there.
FEW = 400


def test_a_task_holds_one_block_however_large_its_batch(node: "MemoryNode", make: "Make") -> None:
    """Four times the messages take no more memory; the share of the node is in both."""
    reader = make(minPartitions="1")
    peaks = []
    start = reader.initialOffset()
    for count in (FEW, 4 * FEW):
        for number in range(count):
            node.publish(b"q", b"%0*d" % (BODY_BYTES, number))
        end = latest(reader, start, 5 * FEW)
        [partition] = reader.partitions(start, end)
        peaks.append(_peak(reader.read(partition), count))
        start = end
    assert peaks[1] < 1.2 * peaks[0], peaks
    assert peaks[1] < 8 * FETCH_BYTES, peaks


def _peak(batches: Iterator[pa.RecordBatch], expected: int) -> int:
    """The most bytes that reading takes, of Python and Arrow."""
    rows = arrow = 0
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        for batch in batches:
            assert batch.nbytes <= 2 * FETCH_BYTES
            rows += batch.num_rows
            arrow = max(arrow, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == expected
    return peak + arrow
