"""Options of the data source "warren_metrics": parsed and checked once, into a typed value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from warrenmq.spark.options import (
    OptionError,
    check_names,
    parse_names,
    parse_number,
    parse_uri,
)
from warrenmq.spark.telemetry.metric_columns import METRICS

METRIC_OPTIONS: Final = ("uri", "vhost", "metrics", "longPollMs", "retryTimeoutMs")
# Options that only a stream has.
METRIC_STREAM_OPTIONS: Final = ("longPollMs",)


@dataclass(frozen=True)
class MetricOptions:
    """The options of a read; the repr leaves out the URI."""

    uri: str = field(repr=False)
    # The metrics to read; None for all.
    metrics: frozenset[str] | None
    long_poll_ms: int
    retry_timeout_ms: int
    # Names of given options that only streams have; a batch read refuses them.
    stream_options: tuple[str, ...]


def parse_metric_options(options: Mapping[str, str]) -> MetricOptions:
    """The options of a read. Raises OptionError, in one line, for an option that is not usable."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, METRIC_OPTIONS, 'format "warren_metrics" has')
    metrics = parse_names(given, "metrics")
    for name in metrics or ():
        if name not in METRICS:
            raise OptionError(f"option 'metrics': '{name}' is none of {', '.join(METRICS)}")
    return MetricOptions(
        uri=parse_uri(given),
        metrics=None if metrics is None else frozenset(metrics),
        long_poll_ms=parse_number(given, "longPollMs", 2_000, 0, 60_000),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
        stream_options=tuple(name for name in METRIC_STREAM_OPTIONS if name.lower() in given),
    )
