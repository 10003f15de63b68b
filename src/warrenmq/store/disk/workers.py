"""The threads that run the store's jobs.

One thread runs the WRITE lane of the whole node, its jobs in order. Two threads read. One thread
runs the long copies, which must delay neither reads nor writes. The flusher has a thread of its own
(`flusher.py`), since clients see its latency.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from warrenmq.store.jobs.job import COMPACT, READ, WRITE, StoreJob

logger = logging.getLogger("warren.workers")

# Number of threads and name of each lane.
_LANES: Final = {WRITE: (1, "write"), READ: (2, "read"), COMPACT: (1, "compact")}
# `stop` waits this long for the queued writes.
WRITE_STOP_S: Final = 60.0
# `stop` waits this long for a read, or a copy, that is under way.
OTHER_STOP_S: Final = 2.0


# Runs a job, and sets its `error` when it fails.
Run = Callable[[StoreJob], None]
_Jobs = queue.SimpleQueue[tuple[Run, StoreJob] | None]


class Stopped(Exception):
    """Aborts the copy under way, since the node stops."""


class Workers:
    """The threads of all lanes; they call `notify(job)` when a job has run."""

    def __init__(self, notify: Callable[[StoreJob], None]) -> None:
        self._notify = notify
        self._stopping = threading.Event()
        self._jobs: dict[int, _Jobs] = {lane: queue.SimpleQueue() for lane in _LANES}
        # Daemon threads: a disk that does not answer must not keep the node from stopping (T67).
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

    def submit(self, run: Run, job: StoreJob) -> None:
        """Queue the job in its lane, where `run` runs it."""
        self._jobs[job.lane].put((run, job))

    def pause(self, seconds: float) -> None:
        """Slow down a copy: wait `seconds`. Raises Stopped when the node stops."""
        if self._stopping.wait(seconds):
            raise Stopped("the node stops")

    def stop(self, write_stop_s: float = WRITE_STOP_S, other_stop_s: float = OTHER_STOP_S) -> bool:
        """Run the queued writes, drop the queued jobs of the other lanes, and end all threads.

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
            run, job = entry
            began_ns = time.monotonic_ns()
            run(job)
            job.run_ns = time.monotonic_ns() - began_ns
            if lane == WRITE or not self._stopping.is_set():
                self._notify(job)
