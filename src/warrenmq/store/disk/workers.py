"""The threads that run the store's jobs.

One for the WRITE lane of the whole node, whose jobs run in their order; two that read; one for the long copies, which must
not be in the way of either. The flusher, whose latency clients see, is a thread of its own (`flusher.py`).
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from warrenmq.store.jobs import COMPACT, READ, WRITE, StoreJob

logger = logging.getLogger("warren.workers")

# Threads and name of each lane.
_LANES: Final = {WRITE: (1, "write"), READ: (2, "read"), COMPACT: (1, "compact")}
# How long `stop` waits: for the writes that are still to be done, and for a read or copy that is under way.
WRITE_STOP_S: Final = 60.0
OTHER_STOP_S: Final = 2.0


class Runner(Protocol):
    """Does a job: a JobRunner, or whoever has jobs of their own for a lane."""

    def run(self, job: StoreJob) -> None:
        """Do the job; `job.error` says why not."""


_Jobs = queue.SimpleQueue[tuple[Runner, StoreJob] | None]


class Stopped(Exception):
    """The node stops: the copy under way is given up."""


class Workers:
    """`notify(job)` is called on a worker's thread when the job has run."""

    def __init__(self, notify: Callable[[StoreJob], None]) -> None:
        self._notify = notify
        self._stopping = threading.Event()
        self._jobs: dict[int, _Jobs] = {lane: queue.SimpleQueue() for lane in _LANES}
        # Daemons: a disk that does not answer must not keep the node from stopping (T67).
        self._threads: dict[int, list[threading.Thread]] = {
            lane: [
                threading.Thread(target=self._run, args=(lane,), name=f"warren-{name}", daemon=True)
                for _ in range(count)
            ]
            for lane, (count, name) in _LANES.items()
        }
        for threads in self._threads.values():
            for thread in threads:
                thread.start()

    def submit(self, runner: Runner, job: StoreJob) -> None:
        """Have `runner` run the job in its lane."""
        self._jobs[job.lane].put((runner, job))

    def pause(self, seconds: float) -> None:
        """Rest for a while, for the copies; raises Stopped when there is no time left."""
        if self._stopping.wait(seconds):
            raise Stopped("the node stops")

    def stop(self, write_stop_s: float = WRITE_STOP_S, other_stop_s: float = OTHER_STOP_S) -> bool:
        """Run what waits in the WRITE lane and end all threads; jobs of other lanes that wait are dropped.

        Returns whether every write was done in time.
        """
        self._stopping.set()
        for lane, threads in self._threads.items():
            for _ in threads:
                self._jobs[lane].put(None)
        is_written = self._join(WRITE, write_stop_s)
        if not is_written:
            logger.error("the disk did not take what was to be written within %.0f s", write_stop_s)
        for lane in (READ, COMPACT):
            if not self._join(lane, other_stop_s):
                logger.warning("a %s is stuck and left behind", _LANES[lane][1])
        return is_written

    def _join(self, lane: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads[lane]:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any([thread.is_alive() for thread in self._threads[lane]])

    def _run(self, lane: int) -> None:
        jobs = self._jobs[lane]
        while (entry := jobs.get()) is not None:
            if lane != WRITE and self._stopping.is_set():
                continue
            runner, job = entry
            runner.run(job)
            if lane == WRITE or not self._stopping.is_set():
                self._notify(job)
