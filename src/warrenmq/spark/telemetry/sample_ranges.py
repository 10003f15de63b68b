"""Ranges of samples: planned by the driver, read by the tasks.

A range is a span of time of one node. The node may have lost the samples of it meanwhile: it keeps
them in memory, for a time. Rows of the metric `samples_lost` say how many there were.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from warrenmq.admin.protocol.samples import KEPT_MS, ReadSamples, Samples
from warrenmq.spark.nodes import Place
from warrenmq.spark.telemetry.metric_columns import lost_batch, metric_batch
from warrenmq.spark.telemetry.metric_options import MetricOptions
from warrenmq.spark.telemetry.sample_link import NodeAwayError, SampleLink, sample_link

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# The time that one task reads (ms): 120 samples with the default interval.
_TASK_MS: Final = 600_000
# How long a task waits for a node that no link leads to, before its samples count as lost.
_AWAY_S: Final = 10.0
_PAUSE_S: Final = 0.5


@dataclass
class SampleRange(InputPartition):
    """The samples of `node` after `after_ms`, up to `upto_ms`; 0: from the first one on.

    `interval_ms`: the time between two samples when the range was planned. `is_behind`: the reader
    has read earlier samples of the node, so those that the range lacks are lost.
    """

    node: str
    after_ms: int
    upto_ms: int
    interval_ms: int
    is_behind: bool
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)


def ranges_of(
    node: str, after_ms: int, upto_ms: int, interval_ms: int, places: Mapping[str, Place]
) -> list[SampleRange]:
    """The range of `node` in pieces of one task each, at the same times whenever it is planned."""
    # No node has older samples: the first piece finds that out.
    first_ms = max(after_ms, upto_ms - KEPT_MS - _TASK_MS)
    cuts = [after_ms]
    cut = first_ms - first_ms % _TASK_MS + _TASK_MS
    while cut < upto_ms:
        cuts.append(cut)
        cut += _TASK_MS
    cuts.append(upto_ms)
    return [
        SampleRange(node, start, end, interval_ms, after_ms > 0, places)
        for start, end in pairwise(cuts)
    ]


def read_range(options: MetricOptions, wanted: SampleRange, schema: Any) -> Iterator["RecordBatch"]:
    """Record batches of the samples of a range; runs in a worker. Raises SourceError."""
    link = sample_link(options.uri, options.retry_timeout_ms, wanted.places)
    last_ms, after_ms, skip = wanted.after_ms, wanted.after_ms, 0
    is_behind, is_empty = wanted.is_behind, True
    while True:
        reply = _ask(link, ReadSamples(wanted.node, after_ms, wanted.upto_ms, skip))
        if reply is None:
            break
        for sample in reply.samples:
            # The sample before this one is no longer there, or of an earlier run of the node. The
            # rest of a sample has the time of the last one.
            is_alone = sample.before_ms == 0 or sample.before_ms > last_ms
            if is_behind and is_alone and sample.at_ms != last_ms:
                lost = round((sample.at_ms - last_ms) / wanted.interval_ms) - 1
                if lost > 0:
                    yield lost_batch(wanted.node, sample.at_ms, lost, schema)
            last_ms, is_behind, is_empty = sample.at_ms, True, False
        batch = metric_batch(wanted.node, reply.samples, options.metrics, schema)
        if batch.num_rows:
            yield batch
        if not reply.has_more:
            break
        after_ms, skip = reply.next_after_ms, reply.next_skip
    if wanted.is_behind and is_empty:
        lost = round((wanted.upto_ms - wanted.after_ms) / wanted.interval_ms)
        if lost > 0:
            yield lost_batch(wanted.node, wanted.upto_ms, lost, schema)


def _ask(link: SampleLink, request: ReadSamples) -> Samples | None:
    """The reply of the node; None when no link leads to it for a while."""
    deadline_s = time.monotonic() + _AWAY_S
    while True:
        try:
            return link.request(request)
        except NodeAwayError:
            if time.monotonic() > deadline_s:
                return None
        time.sleep(_PAUSE_S)
