"""The rates of a queue's messages, and the number of them that it may keep in memory (S59, S69).

The four rates are messages in, messages out, acks in (deliveries that wait for one), and acks out.
Each is an exponential average with a half-life of five seconds, made from counters that the queue
keeps anyway, at each sample. A duration says for how many seconds of traffic at these rates the
messages in memory last. The memory monitor gives the queue a duration, and the queue translates it
back into a number of messages, `target_ram_count`.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.memory.account import FOREVER_S

HALF_LIFE_S: Final = 5.0
# A queue counts as idle while all its rates are below this (messages per second).
IDLE_RATE: Final = 0.01


class Rates:
    """Rates of one queue, in messages per second."""

    def __init__(self) -> None:
        self.ingress: float = 0.0
        self.egress: float = 0.0
        self.ack_ingress: float = 0.0
        self.ack_egress: float = 0.0
        self._sampled_ms: i64 = 0
        self._in_count: i64 = 0
        self._out_count: i64 = 0
        self._ack_in_count: i64 = 0
        self._ack_out_count: i64 = 0
        # Ready messages in memory at the last sample.
        self._ram_count: i64 = 0
        # Ready messages in memory at the sample before.
        self._ram_count_before: i64 = 0
        # Unacked messages at the last sample.
        self._unacked_count: i64 = 0
        # Unacked messages at the sample before.
        self._unacked_count_before: i64 = 0

    def start(self, in_count: i64, out_count: i64, ack_in_count: i64, ack_out_count: i64) -> None:
        """Measure from these counter values on."""
        self._in_count = in_count
        self._out_count = out_count
        self._ack_in_count = ack_in_count
        self._ack_out_count = ack_out_count

    def start_time(self, now_ms: i64) -> None:
        """Measure from this time on."""
        self._sampled_ms = now_ms

    def sample(
        self, now_ms: i64, in_count: i64, out_count: i64, ack_in_count: i64, ack_out_count: i64
    ) -> None:
        """Update the averages from the counters, which only grow."""
        elapsed_ms = now_ms - self._sampled_ms
        if elapsed_ms <= 0:
            return
        elapsed_s = float(elapsed_ms) / 1000.0
        weight = 2.0 ** (-elapsed_s / HALF_LIFE_S)
        self.ingress = _averaged(self.ingress, in_count - self._in_count, elapsed_s, weight)
        self.egress = _averaged(self.egress, out_count - self._out_count, elapsed_s, weight)
        self.ack_ingress = _averaged(
            self.ack_ingress, ack_in_count - self._ack_in_count, elapsed_s, weight
        )
        self.ack_egress = _averaged(
            self.ack_egress, ack_out_count - self._ack_out_count, elapsed_s, weight
        )
        self.start(in_count, out_count, ack_in_count, ack_out_count)
        self.start_time(now_ms)

    def sample_ram(self, ram_count: i64, unacked_count: i64) -> None:
        """Note the messages in memory; to be called once with each `sample`."""
        self._ram_count_before = self._ram_count
        self._unacked_count_before = self._unacked_count
        self._ram_count = ram_count
        self._unacked_count = unacked_count

    def total(self) -> float:
        """The sum of the four rates."""
        return self.ingress + self.egress + self.ack_ingress + self.ack_egress

    def is_idle(self) -> bool:
        """Whether the rates are too low to give a duration."""
        return (
            self.ingress < IDLE_RATE
            and self.egress < IDLE_RATE
            and self.ack_ingress < IDLE_RATE
            and self.ack_egress < IDLE_RATE
        )

    def duration_s(self) -> float:
        """Seconds of traffic that the messages in memory make; FOREVER_S for an idle queue."""
        if self.is_idle():
            return FOREVER_S
        count = (
            self._ram_count
            + self._ram_count_before
            + self._unacked_count
            + self._unacked_count_before
        )
        return float(count) / (4.0 * self.total())

    def grows_by_acks(self) -> bool:
        """Whether unacked messages grow faster than ready ones."""
        return self.ack_ingress - self.ack_egress > self.ingress - self.egress


def _averaged(rate: float, count: i64, elapsed_s: float, weight: float) -> float:
    return float(count) / elapsed_s * (1.0 - weight) + rate * weight
