"""One interface to the agents of a run, whether they live in this process or in forked ones."""

import time
from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf.loop import PerfLoop
from warrenmq.perf.options import NANOSECONDS
from warrenmq.perf.snapshot import Snapshot

# Interval at which the run takes snapshots of its agents; its rates use the exact times of the
# first and last message instead.
TICK_NS: Final = NANOSECONDS // 20


class AgentGroup:
    """All publishers and consumers of a run; subclasses define every method.

    Any method may raise PerfError. Call `abort` at the end in every case.
    """

    def start_consuming(self) -> None:
        """Register every consumer with the broker and wait for the answers."""
        raise NotImplementedError

    def start_publishing(self, start_ns: i64) -> None:
        """Start the publishers; rates count from `start_ns`."""
        raise NotImplementedError

    def stop_publishing(self) -> None:
        """Stop the publishers once they have sent the messages begun."""
        raise NotImplementedError

    def run(self) -> list[Snapshot]:
        """Run the agents for one tick; returns one snapshot of each process."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections in good order."""
        raise NotImplementedError

    def abort(self) -> None:
        """Release sockets and processes; no effect after `close`."""
        raise NotImplementedError


@final
class LocalGroup(AgentGroup):
    """All agents in this process, in one loop."""

    def __init__(self, loop: PerfLoop) -> None:
        self._loop: PerfLoop = loop

    def start_consuming(self) -> None:
        self._loop.start_consuming()

    def start_publishing(self, start_ns: i64) -> None:
        self._loop.start_publishing(start_ns)

    def stop_publishing(self) -> None:
        self._loop.stop_publishing()

    def run(self) -> list[Snapshot]:
        tick_end_ns: i64 = time.monotonic_ns() + TICK_NS
        left_ns: i64 = TICK_NS
        while left_ns > 0:
            self._loop.turn(left_ns)
            left_ns = tick_end_ns - time.monotonic_ns()
        return [self._loop.snapshot()]

    def close(self) -> None:
        self._loop.close()

    def abort(self) -> None:
        self._loop.abort()
