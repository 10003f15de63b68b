"""When a run is over, and what it has added up to; decided on snapshots alone, without sockets or clocks."""

from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf.histogram import Histogram
from warrenmq.perf.options import NANOSECONDS, PerfOptions
from warrenmq.perf.snapshot import (
    CONFIRMED,
    CONSUMERS_OPEN,
    NACKED,
    PUBLISHED,
    PUBLISHERS_OPEN,
    RECEIVED,
    RETURNED,
    UNSETTLED,
    Snapshot,
    total_counters,
)

# After the last publish the run waits at most so long for confirms that are still owed.
SETTLE_NS_MAX: Final = 10 * NANOSECONDS


@final
class Interval:
    """What happened between two reports of a run. Times in seconds, rates in messages a second."""

    def __init__(
        self,
        end_s: float,
        length_s: float,
        deltas: dict[str, int],
        latency: Histogram,
        confirm: Histogram,
    ) -> None:
        self.end_s: float = end_s
        self.published_rate: float = deltas[PUBLISHED] / length_s
        self.confirmed_rate: float = deltas[CONFIRMED] / length_s
        self.nacked_rate: float = deltas[NACKED] / length_s
        self.returned_rate: float = deltas[RETURNED] / length_s
        self.received_rate: float = deltas[RECEIVED] / length_s
        self.latency: Histogram = latency
        self.confirm_latency: Histogram = confirm


@final
class Progress:
    """The sum of a run so far. `update` takes the snapshots of a tick, then `wants_stop` and `is_over` say what to do."""

    def __init__(self, options: PerfOptions) -> None:
        self.start_ns: i64 = 0
        self.counters: dict[str, int] = Snapshot().counters
        self.latency: Histogram = Histogram()
        self.confirm_latency: Histogram = Histogram()
        # Producers have been told to stop, or have reached their limits, at this time; 0 before.
        self.producers_ended_ns: i64 = 0
        self.is_over: bool = False
        self._options: PerfOptions = options
        self._interval_start_ns: i64 = 0
        self._interval_counters: dict[str, int] = self.counters
        self._interval_latency: Histogram = Histogram()
        self._interval_confirm_latency: Histogram = Histogram()

    def start(self, now_ns: i64) -> None:
        """The run's clock starts: at the first basic.consume without producers, else at the first publish."""
        self.start_ns = now_ns
        self._interval_start_ns = now_ns

    def update(self, snapshots: list[Snapshot], now_ns: i64) -> Interval | None:
        """Add the snapshots of all processes; the interval that has ended, if one has."""
        self.counters = total_counters(snapshots)
        for snapshot in snapshots:
            self._interval_latency.merge(snapshot.latency)
            self._interval_confirm_latency.merge(snapshot.confirm_latency)
            self.latency.merge(snapshot.latency)
            self.confirm_latency.merge(snapshot.confirm_latency)
        self._decide(now_ns)
        if now_ns - self._interval_start_ns < i64(self._options.interval * NANOSECONDS):
            return None
        deltas = {
            name: self.counters[name] - self._interval_counters[name] for name in self.counters
        }
        interval = Interval(
            float(now_ns - self.start_ns) / NANOSECONDS,
            float(now_ns - self._interval_start_ns) / NANOSECONDS,
            deltas,
            self._interval_latency,
            self._interval_confirm_latency,
        )
        self._interval_start_ns = now_ns
        self._interval_counters = self.counters
        self._interval_latency = Histogram()
        self._interval_confirm_latency = Histogram()
        return interval

    def interrupt(self) -> None:
        """The user wants the end now."""
        self.is_over = True

    def is_drained(self) -> bool:
        """Whether as many messages were received as were routed."""
        counters = self.counters
        return counters[RECEIVED] >= counters[PUBLISHED] - counters[RETURNED] - counters[NACKED]

    def _decide(self, now_ns: i64) -> None:
        options = self._options
        time_is_up: bool = options.time > 0 and now_ns - self.start_ns >= i64(
            options.time * NANOSECONDS
        )
        consumers_done: bool = options.consumers > 0 and self.counters[CONSUMERS_OPEN] == 0
        if options.producers == 0:
            self.is_over = self.is_over or time_is_up or consumers_done
            return
        if self.producers_ended_ns == 0:
            producers_done = self.counters[PUBLISHERS_OPEN] == 0
            # Without a limit of their own producers would go on for ever after the last consumer has its share.
            if time_is_up or producers_done or (consumers_done and options.pmessages == 0):
                self.producers_ended_ns = now_ns
            # One tick more in any case: what publishers have sent since this snapshot is not in the counters.
            return
        since_end_ns: i64 = now_ns - self.producers_ended_ns
        if self.counters[UNSETTLED] > 0 and since_end_ns < SETTLE_NS_MAX:
            return
        waits_for_consumers = options.consumers > 0 and not consumers_done and not self.is_drained()
        self.is_over = not waits_for_consumers or since_end_ns >= i64(
            options.drain_s() * NANOSECONDS
        )
