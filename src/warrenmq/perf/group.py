"""The agents of a run behind one face, whether they live in this process or in forked ones."""

import time
from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf.loop import PerfLoop
from warrenmq.perf.options import NANOSECONDS
from warrenmq.perf.snapshot import Snapshot

# How often the run looks at its agents; its rates use the exact times of the first and last message instead.
TICK_NS: Final = NANOSECONDS // 20


class AgentGroup:
    """All publishers and consumers of a run. Any function may raise PerfError; call `abort` in every case at the end."""

    def start_consuming(self) -> None:
        """Return when every consumer is registered with the broker."""
        raise NotImplementedError

    def start_publishing(self, start_ns: i64) -> None:
        """Publishers begin; rates count from `start_ns`."""
        raise NotImplementedError

    def stop_publishing(self) -> None:
        """Publishers finish what they have begun."""
        raise NotImplementedError

    def run(self) -> list[Snapshot]:
        """Let the agents work for one tick; then one snapshot of each process."""
        raise NotImplementedError

    def close(self) -> None:
        """End all connections in good order."""
        raise NotImplementedError

    def abort(self) -> None:
        """Release sockets and processes; without effect after `close`."""
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
