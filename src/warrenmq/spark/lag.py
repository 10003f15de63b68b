"""How far behind a stream is, in the progress of its query.

Spark 4.3 gives a source in Python no way to report metrics: its stream in the JVM (PythonMicroBatchStream) does not implement
ReportsSourceMetrics, by which Kafka's source reports `avgOffsetsBehindLatest`, nor `toString`, which is what the progress calls
the source's `description`. What a source in Python does report is its latest offset, for nobody but the progress. So the lag
and a description are in there, and `lag_of` takes them out again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_SOURCE: Final = "source"
_LAG: Final = "lag"


@dataclass(frozen=True)
class SourceLag:
    """The lag of one source: messages it has not read yet."""

    # The source in words, without a password.
    source: str
    # Messages behind the end of the batch that the progress is about.
    messages: int
    # The age of the oldest message that is not acked, one of the batch included; None: the source does not know.
    seconds: float | None = None
    # Messages by queue, of queues that have some.
    queues: Mapping[str, int] = field(default_factory=dict)


def lag_of(progress: Mapping[str, Any] | None) -> list[SourceLag]:
    """The lag of each source of warren's in the progress of a query, in their order: `lag_of(query.lastProgress)`, or of
    `event.progress` in a StreamingQueryListener. Empty before the first batch, and while the broker cannot be asked."""
    found = []
    for source in (progress or {}).get("sources", ()):
        try:
            reported = json.loads(source["latestOffset"])
        except ValueError:
            continue
        if isinstance(reported, dict) and isinstance(reported.get(_LAG), dict):
            found.append(SourceLag(reported[_SOURCE], **reported[_LAG]))
    return found


def with_lag(offset: Mapping[str, Any], lag: SourceLag) -> dict[str, Any]:
    """The latest offset that a source reports."""
    values: dict[str, Any] = {"messages": lag.messages}
    if lag.seconds is not None:
        values["seconds"] = lag.seconds
    if lag.queues:
        values["queues"] = dict(lag.queues)
    return {_SOURCE: lag.source, _LAG: values, **offset}
