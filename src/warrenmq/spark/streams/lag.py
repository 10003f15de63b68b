"""Puts the lag of a stream into the progress of its query, and reads it from there.

Spark 4.3 gives a Python source no way to report metrics. Its stream in the JVM
(PythonMicroBatchStream) does not implement ReportsSourceMetrics, by which Kafka's source reports
`avgOffsetsBehindLatest`, nor `toString`, which the progress shows as the source's `description`. A
Python source can report its latest offset, which only the progress uses. That offset therefore
carries the lag and a description, and `lag_of` takes them out again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_SOURCE: Final = "source"
_LAG: Final = "lag"


@dataclass(frozen=True)
class SourceLag:
    """The lag of one source: how many messages it has not read yet."""

    # The source in words, without a password.
    source: str
    # Messages behind the end of the batch that the progress is about.
    messages: int
    # Age in seconds of the oldest message that is not acked, in that batch or behind it; None when
    # the source does not know.
    seconds: float | None = None
    # Messages by queue name; queues without any are left out.
    queues: Mapping[str, int] = field(default_factory=dict)


def lag_of(progress: Mapping[str, Any] | None) -> list[SourceLag]:
    """The lag of each of warren's sources in the progress of a query, in the order of its sources.

    Takes `query.lastProgress`, or `event.progress` in a StreamingQueryListener. The list is empty
    before the first batch and while the broker does not answer.
    """
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
    """`offset` with `lag` added: the latest offset that a source reports."""
    values: dict[str, Any] = {"messages": lag.messages}
    if lag.seconds is not None:
        values["seconds"] = lag.seconds
    if lag.queues:
        values["queues"] = dict(lag.queues)
    return {_SOURCE: lag.source, _LAG: values, **offset}
