"""The final figures of a run, as numbers; the command line prints them."""

from typing import Final, final

from warrenmq.perf import snapshot
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.options import NANOSECONDS, PerfOptions
from warrenmq.perf.progress import Progress

# Pairs of a percentile's name in JSON and its value.
PERCENTILES: Final = (
    ("median", 50.0),
    ("p75", 75.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
)
NANOSECONDS_A_MICROSECOND: Final = 1000.0


def latency_figures(histogram: Histogram) -> dict[str, float]:
    """Minimum, percentiles, maximum and mean in microseconds; empty when nothing was measured."""
    if histogram.count == 0:
        return {}
    figures = {"min": float(histogram.minimum)}
    for name, percent in PERCENTILES:
        figures[name] = histogram.percentile(percent)
    figures["max"] = float(histogram.maximum)
    figures["mean"] = histogram.mean()
    return {name: round(value / NANOSECONDS_A_MICROSECOND, 1) for name, value in figures.items()}


@final
class Summary:
    """Totals and average rates of a run.

    A rate is the count divided by the time from the start to the last such message, so that neither
    waiting for the end nor the length of a tick is counted.
    """

    def __init__(self, options: PerfOptions, progress: Progress) -> None:
        counters = progress.counters
        self.id: str = options.id
        self.published: int = counters[snapshot.PUBLISHED]
        self.confirmed: int = counters[snapshot.CONFIRMED]
        self.nacked: int = counters[snapshot.NACKED]
        self.returned: int = counters[snapshot.RETURNED]
        self.received: int = counters[snapshot.RECEIVED]
        self.publish_s: float = _seconds_since(
            progress.start_ns, counters[snapshot.PUBLISH_LATEST_NS]
        )
        self.receive_s: float = _seconds_since(
            progress.start_ns, counters[snapshot.RECEIVE_LATEST_NS]
        )
        self.publish_rate: float = _rate(self.published, self.publish_s)
        self.receive_rate: float = _rate(self.received, self.receive_s)
        self.is_drained: bool = progress.is_drained()
        self.latency_us: dict[str, float] = latency_figures(progress.latency)
        self.confirm_latency_us: dict[str, float] = latency_figures(progress.confirm_latency)
        self.blocked_s: float = counters[snapshot.BLOCKED_NS] / NANOSECONDS
        self.behind_ms_max: float = counters[snapshot.BEHIND_NS_MAX] * 1000 / NANOSECONDS
        self.generator_cpu_s: float = counters[snapshot.CPU_NS] / NANOSECONDS
        messages = max(self.published, self.received)
        self.generator_cpu_ns_per_message: float = (
            counters[snapshot.CPU_NS] / messages if messages else 0.0
        )

    def as_json(self) -> dict[str, object]:
        """All figures, ready for json.dumps."""
        return {
            "id": self.id,
            "published": self.published,
            "confirmed": self.confirmed,
            "nacked": self.nacked,
            "returned": self.returned,
            "received": self.received,
            "publish_s": round(self.publish_s, 6),
            "receive_s": round(self.receive_s, 6),
            "publish_rate": round(self.publish_rate, 1),
            "receive_rate": round(self.receive_rate, 1),
            "is_drained": self.is_drained,
            "consumer_latency_us": self.latency_us,
            "confirm_latency_us": self.confirm_latency_us,
            "blocked_s": round(self.blocked_s, 3),
            "behind_ms_max": round(self.behind_ms_max, 3),
            "generator_cpu_s": round(self.generator_cpu_s, 3),
            "generator_cpu_ns_per_message": round(self.generator_cpu_ns_per_message, 1),
        }


def _seconds_since(start_ns: int, latest_ns: int) -> float:
    return max(latest_ns - start_ns, 0) / NANOSECONDS


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
