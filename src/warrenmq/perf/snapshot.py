"""The figures of each process of a run so far, as it reports them to the process that decides.

Counters are totals since the start. Latencies are only those since the snapshot before, so that an
interval and the whole run are both sums of snapshots. A snapshot travels between processes as one
line of JSON.
"""

import json
from typing import Any, Final, final

from warrenmq.perf.histogram import Histogram, decode_histogram

PUBLISHED: Final = "published"
CONFIRMED: Final = "confirmed"
NACKED: Final = "nacked"
RETURNED: Final = "returned"
# Messages published and, with confirms on, neither confirmed nor nacked.
UNSETTLED: Final = "unsettled"
RECEIVED: Final = "received"
# Time at which the latest message was sent or settled (monotonic ns); 0 for never.
PUBLISH_LATEST_NS: Final = "publish_latest_ns"
# Time at which the latest message was received (monotonic ns); 0 for never.
RECEIVE_LATEST_NS: Final = "receive_latest_ns"
BLOCKED_NS: Final = "blocked_ns"
BEHIND_NS_MAX: Final = "behind_ns_max"
CPU_NS: Final = "cpu_ns"
# Agents that have not reached their limit.
PUBLISHERS_OPEN: Final = "publishers_open"
CONSUMERS_OPEN: Final = "consumers_open"

SUMMED: Final = (
    PUBLISHED,
    CONFIRMED,
    NACKED,
    RETURNED,
    UNSETTLED,
    RECEIVED,
    BLOCKED_NS,
    CPU_NS,
    PUBLISHERS_OPEN,
    CONSUMERS_OPEN,
)
MAXIMA: Final = (PUBLISH_LATEST_NS, RECEIVE_LATEST_NS, BEHIND_NS_MAX)


@final
class Snapshot:
    """Counters by name (all of SUMMED and MAXIMA), and latencies since the previous snapshot."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        for name in SUMMED:
            self.counters[name] = 0
        for name in MAXIMA:
            self.counters[name] = 0
        self.latency: Histogram = Histogram()
        self.confirm_latency: Histogram = Histogram()

    def add(self, name: str, value: int) -> None:
        """Add `value` to a summed counter, or keep the larger one of a maximum."""
        if name in MAXIMA:
            self.counters[name] = max(self.counters[name], value)
        else:
            self.counters[name] += value

    def encode(self) -> str:
        """One line of JSON, without its newline."""
        return json.dumps([self.counters, self.latency.encode(), self.confirm_latency.encode()])


def decode_snapshot(line: str) -> Snapshot:
    """The snapshot in a line that `Snapshot.encode` wrote in another process."""
    parts: list[Any] = json.loads(line)
    snapshot = Snapshot()
    snapshot.counters = parts[0]
    snapshot.latency = decode_histogram(parts[1])
    snapshot.confirm_latency = decode_histogram(parts[2])
    return snapshot


def total_counters(snapshots: list[Snapshot]) -> dict[str, int]:
    """The counters of all processes together."""
    total = Snapshot()
    for snapshot in snapshots:
        for name, value in snapshot.counters.items():
            total.add(name, value)
    return total.counters
