"""Decides when a run is over and adds up its figures, from snapshots only: no sockets, no clock."""

from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf import snapshot
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.options import NANOSECONDS, PerfOptions

# Longest wait for outstanding confirms after the last publish.
SETTLE_NS_MAX: Final = 10 * NANOSECONDS


@final
class Interval:
    """The figures between two reports of a run; times in seconds, rates in messages per second."""

    def __init__(
        self,
        end_s: float,
        length_s: float,
        deltas: dict[str, int],
        latency: Histogram,
        confirm: Histogram,
    ) -> None:
        self.end_s: float = end_s
        self.published_rate: float = deltas[snapshot.PUBLISHED] / length_s
        self.confirmed_rate: float = deltas[snapshot.CONFIRMED] / length_s
        self.nacked_rate: float = deltas[snapshot.NACKED] / length_s
        self.returned_rate: float = deltas[snapshot.RETURNED] / length_s
        self.received_rate: float = deltas[snapshot.RECEIVED] / length_s
        self.latency: Histogram = latency
        self.confirm_latency: Histogram = confirm


@final
class Progress:
    """The sum of a run so far.

    `update` takes the snapshots of a tick; then `producers_ended_ns` and `is_over` say what to do.
    """

    def __init__(self, options: PerfOptions) -> None:
        self.start_ns: i64 = 0
        self.counters: dict[str, int] = snapshot.Snapshot().counters
        self.latency: Histogram = Histogram()
        self.confirm_latency: Histogram = Histogram()
        # Time at which producers were stopped or reached their limits; 0 before.
        self.producers_ended_ns: i64 = 0
        self.is_over: bool = False
        self._options: PerfOptions = options
        self._interval_start_ns: i64 = 0
        self._interval_counters: dict[str, int] = self.counters
        self._interval_latency: Histogram = Histogram()
        self._interval_confirm_latency: Histogram = Histogram()

    def start(self, now_ns: i64) -> None:
        """Start the run's clock: with the first publish, or the first basic.consume.

        A run without producers starts with its first basic.consume.
        """
        self.start_ns = now_ns
        self._interval_start_ns = now_ns

    def update(self, snapshots: list[snapshot.Snapshot], now_ns: i64) -> Interval | None:
        """Add the snapshots of all processes; returns the interval if one has ended."""
        self.counters = snapshot.total_counters(snapshots)
        for each in snapshots:
            self._interval_latency.merge(each.latency)
            self._interval_confirm_latency.merge(each.confirm_latency)
            self.latency.merge(each.latency)
            self.confirm_latency.merge(each.confirm_latency)
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
        """End the run at once, as the user asks."""
        self.is_over = True

    def is_drained(self) -> bool:
        """Whether consumers have received as many messages as queues got."""
        counters = self.counters
        return (
            counters[snapshot.RECEIVED]
            >= counters[snapshot.PUBLISHED]
            - counters[snapshot.RETURNED]
            - counters[snapshot.NACKED]
        )

    def _decide(self, now_ns: i64) -> None:
        options = self._options
        time_is_up: bool = options.time > 0 and now_ns - self.start_ns >= i64(
            options.time * NANOSECONDS
        )
        consumers_done: bool = options.consumers > 0 and self.counters[snapshot.CONSUMERS_OPEN] == 0
        if options.producers == 0:
            self.is_over = self.is_over or time_is_up or consumers_done
            return
        if self.producers_ended_ns == 0:
            producers_done = self.counters[snapshot.PUBLISHERS_OPEN] == 0
            # Without a limit of their own, producers would continue forever after the last consumer
            # is done.
            if time_is_up or producers_done or (consumers_done and options.pmessages == 0):
                self.producers_ended_ns = now_ns
            # Wait one tick more in any case: this snapshot lacks messages that publishers have sent
            # since.
            return
        since_end_ns: i64 = now_ns - self.producers_ended_ns
        if self.counters[snapshot.UNSETTLED] > 0 and since_end_ns < SETTLE_NS_MAX:
            return
        waits_for_consumers = options.consumers > 0 and not consumers_done and not self.is_drained()
        self.is_over = not waits_for_consumers or since_end_ns >= i64(
            options.drain_s() * NANOSECONDS
        )
