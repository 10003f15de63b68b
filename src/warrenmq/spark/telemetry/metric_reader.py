"""Reads the samples of figures that the nodes keep: as a table, or as a stream.

A batch of a stream is a span of time of each node. The offset has the time of the last sample of
each node that is read:

    {"interval_ms": 5000, "nodes": {"n1": 1790000005000}, "v": 1}

A batch that Spark reads again has the same samples, as long as the nodes keep them: no sample
comes twice into a sink that writes a batch once. Samples that are gone are counted in a row
(sample_ranges.py).
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warrenmq.admin.protocol.samples import ReadSamples, Samples
from warrenmq.spark.local.worker import settle
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.telemetry.metric_options import MetricOptions
from warrenmq.spark.telemetry.sample_link import NodeAwayError, SampleLink, sample_link
from warrenmq.spark.telemetry.sample_ranges import SampleRange, ranges_of, read_range

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_VERSION: Final = 1
# The shortest pause before the nodes are asked again for new samples (s).
_PAUSE_MIN_S: Final = 0.05


class MetricBatchReader(DataSourceReader):
    """The reader of one `load()`: the samples that the nodes have at the call, and a fresh one."""

    def __init__(self, options: MetricOptions, schema: StructType) -> None:
        if options.stream_options:
            raise OptionError(f"option '{options.stream_options[0]}' is for streams")
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The samples of each node, in pieces of one task each."""
        link = _link(self._options)
        return [
            piece
            for node, told in _ask_all(link, is_fresh=True).items()
            for piece in ranges_of(node, 0, told.last_ms, told.interval_ms, link.nodes.places)
        ]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of the samples of a piece; runs in a worker."""
        return _read(self._options, self._schema, partition)


class MetricStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. Its constructor does no I/O: Spark builds it twice."""

    def __init__(self, options: MetricOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        # Time of the last sample of each node at the begin of an availableNow run; None otherwise.
        self._target: dict[str, int] | None = None

    # -- what Spark calls in the driver process ----------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the run to the samples that the nodes have now, and a fresh one."""
        told = _ask_all(_link(self._options), is_fresh=True)
        self._target = {node: each.last_ms for node, each in told.items()}

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """The position before all samples."""
        return {"interval_ms": 0, "nodes": {}, "v": _VERSION}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """A batch has all samples that there are: nodes keep few."""
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark
        """The last samples of the nodes; `start` when none has come within the long poll."""
        read = _nodes_of(start)
        deadline_s = time.monotonic() + self._options.long_poll_ms / 1000
        while True:
            told = _ask_all(_link(self._options), is_fresh=False)
            ends = dict(read)
            for node, each in told.items():
                last_ms = each.last_ms
                if self._target is not None:
                    last_ms = min(last_ms, self._target.get(node, 0))
                ends[node] = max(last_ms, read.get(node, 0))
            ends = {node: at_ms for node, at_ms in ends.items() if at_ms}
            if ends != read:
                interval_ms = max([each.interval_ms for each in told.values()])
                nodes = dict(sorted(ends.items()))
                return {"interval_ms": interval_ms, "nodes": nodes, "v": _VERSION}
            left_s = deadline_s - time.monotonic()
            if self._target is not None or left_s <= 0:
                return start
            time.sleep(min(left_s, max(_PAUSE_MIN_S, _next_s(told))))

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The new samples of each node, in pieces of one task each."""
        read, interval_ms = _nodes_of(start), _interval_of(end)
        places = _link(self._options).nodes.places
        return [
            piece
            for node, upto_ms in _nodes_of(end).items()
            if upto_ms > read.get(node, 0)
            for piece in ranges_of(node, read.get(node, 0), upto_ms, interval_ms, places)
        ]

    def commit(self, end: OffsetJson) -> None:
        """Nothing: nodes forget samples by themselves."""

    # -- what Spark calls in the workers -----------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of the samples of a piece."""
        return _read(self._options, self._schema, partition)


def _read(
    options: MetricOptions, schema: StructType, partition: InputPartition
) -> Iterator["RecordBatch"]:
    # Spark passes a partition of its own class when there is nothing to read.
    if isinstance(partition, SampleRange):
        settle()
        yield from read_range(options, partition, to_arrow_schema(schema, timezone="UTC"))


def _link(options: MetricOptions) -> SampleLink:
    return sample_link(options.uri, options.retry_timeout_ms, {})


def _ask_all(link: SampleLink, is_fresh: bool) -> dict[str, Samples]:
    """What each running node that can be asked tells of its samples, by node."""
    first = link.request(ReadSamples(is_fresh=is_fresh))
    told = {first.node: first}
    for node in first.nodes:
        if node not in told:
            try:
                told[node] = link.request(ReadSamples(node, is_fresh=is_fresh))
            except NodeAwayError:
                # Its samples come with a later batch.
                continue
    return told


def _next_s(told: Mapping[str, Samples]) -> float:
    """Seconds until the next sample of a node is due."""
    return min([each.interval_ms - each.now_ms % each.interval_ms for each in told.values()]) / 1000


def _nodes_of(offset: OffsetJson) -> dict[str, int]:
    """The time of the last sample that was read of each node. Raises SourceError."""
    nodes = offset.get("nodes")
    if offset.get("v") != _VERSION or not isinstance(nodes, dict):
        raise SourceError(f"the checkpoint's offset {offset!r} is not one of warren_metrics")
    return {str(node): int(at_ms) for node, at_ms in nodes.items()}


def _interval_of(offset: OffsetJson) -> int:
    interval_ms = offset.get("interval_ms")
    return interval_ms if isinstance(interval_ms, int) and interval_ms > 0 else 1
