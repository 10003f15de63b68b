"""The vhosts of a running node: their drivers and jobs, and how a vhost comes and goes.

A vhost that is deleted first loses its definitions, then its clients, its queues and at last its
directory. The directory is renamed before it is removed: a start after a crash removes the rest of
a directory with that name and never takes it for a store.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change, MetadataError, PutVhost
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.server.clock import Clock
from warrenmq.server.startup.startup import OpenedData
from warrenmq.server.vhost_driver import DriverHost, VhostDriver, finish_job, start_drivers
from warrenmq.store.contents.store import Compaction
from warrenmq.store.disk.flusher import Flusher, FlusherCall
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.workers import Workers
from warrenmq.store.jobs.job import CompactContents, ReadRanges, StoreJob, WriteCheckpoint
from warrenmq.store.journal.journal import Journal

logger = logging.getLogger("warren.node")

# Most bytes that the event loop itself reads from the page cache in one turn. To copy more would
# hold up other clients for longer than a millisecond.
_CACHED_BYTES: Final = 4194304
# Queues of a deleted vhost that one turn deletes.
_DELETE_SLICE: Final = 100
# Pause between two turns of such work (s).
_PAUSE_S: Final = 0.001


class NodeVhosts:
    """Runs the vhosts of `broker`, whose files `data` has open; `host` is the node.

    `closed` is called for each vhost that is deleted.
    """

    def __init__(
        self,
        host: DriverHost,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        clock: Clock,
        data: OpenedData,
        flusher: Flusher,
        workers: Workers,
        closed: Callable[[Vhost], None],
    ) -> None:
        self.drivers: dict[Journal, VhostDriver] = {}
        self.lines = LineLimit()
        self._host = host
        self._loop = loop
        self._broker = broker
        self._clock = clock
        self._data = data
        self._flusher = flusher
        self._workers = workers
        self._closed = closed
        self._runners: dict[int, JobRunner] = {}
        # Bytes that the event loop has read from the page cache in this turn.
        self._cached_bytes = 0
        # Jobs that the workers have, with the driver that handed them out.
        self._jobs: dict[StoreJob, VhostDriver] = {}
        # Openings and closings under way; the loop itself keeps no reference to a task.
        self._tasks: set[asyncio.Task[None]] = set()
        for vhost in broker.vhosts.values():
            self._attach(vhost)

    # -- jobs --------------------------------------------------------------------------------------

    def submit_job(self, driver: VhostDriver, job: StoreJob) -> None:
        """Run a short read that needs no disk at once; give other jobs to the workers' threads.

        A thread must be woken, and must wake the loop, which takes longer than the read.
        """
        runner = self._runners[driver.vhost.id]
        self._jobs[job] = driver
        if isinstance(job, ReadRanges):
            size = sum([int(length) for _, _, length in job.ranges])
            if self._cached_bytes + size <= _CACHED_BYTES:
                began_ns = time.monotonic_ns()
                if runner.run_cached(job):
                    job.run_ns = time.monotonic_ns() - began_ns
                    self._cached_bytes += size
                    self._loop.call_soon(self._on_cached, job, size)
                    return
        self._workers.submit(runner.run, job)

    def _on_cached(self, job: StoreJob, size: int) -> None:
        self._cached_bytes -= size
        self.on_job(job)
        self._host.wake()

    def on_job(self, job: StoreJob) -> None:
        """Take over a job that has run."""
        driver = self._jobs.pop(job, None)
        self._measure(job)
        finish_job(job, self.lines)
        if driver is not None and isinstance(job, Compaction):
            driver.vhost.store.compaction_log.add(job, self._clock.now_ms())

    def jobs_of(self, vhost: Vhost) -> list[StoreJob]:
        """The jobs of a vhost that the workers have."""
        return [job for job, driver in self._jobs.items() if driver.vhost is vhost]

    def _measure(self, job: StoreJob) -> None:
        latencies = self._broker.latencies
        if job.error is not None:
            return
        if isinstance(job, ReadRanges):
            latencies.reads.add(job.run_ns)
        elif isinstance(job, WriteCheckpoint):
            latencies.checkpoints.add(job.run_ns)
        elif isinstance(job, CompactContents):
            latencies.compactions.add(job.run_ns)

    def close(self) -> None:
        """Close the files of all jobs; called when the workers' threads have ended."""
        for runner in self._runners.values():
            runner.close()

    # -- the host of the administration -----------------------------------------------------------

    def store(self, changes: list[Change], done: Callable[[str], None]) -> None:
        """Store `changes` between two batches of the flusher; see AdministrationShell."""

        def apply() -> None:
            try:
                self._data.metadata.apply(changes)
            except MetadataError as error:
                if not error.may_be_full:
                    raise
                # Operations of an administrator may free space, as deletions do.
                self._data.reserve.on_error(error)
                self._data.metadata.apply(changes)

        def stored(error: Exception | None) -> None:
            text = "" if error is None else str(error) or type(error).__name__
            self._loop.call_soon_threadsafe(self._then, done, text)

        self._flusher.call(FlusherCall(apply, stored))

    def open_vhost(self, definition: PutVhost, done: Callable[[str], None]) -> None:
        """Open a vhost that was just defined; see AdministrationShell."""
        self._start(self._open(definition, done))

    def close_vhost(self, vhost: Vhost, done: Callable[[], None]) -> None:
        """Close a vhost and remove its files; see AdministrationShell."""
        self._start(self._close(vhost, done))

    # -- inside ------------------------------------------------------------------------------------

    def _then(self, done: Callable[[str], None], text: str) -> None:
        done(text)
        self._host.wake()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _attach(self, vhost: Vhost) -> VhostDriver:
        data = self._data
        self._runners[vhost.id] = JobRunner(
            data.file_systems[vhost.id], vhost.store.store_id, self._workers.pause, data.reserve
        )
        driver = VhostDriver(
            vhost, data.flushers[vhost.id], data.apply_changes, self._host, self.lines
        )
        self.drivers[vhost.journal] = driver
        return driver

    async def _open(self, definition: PutVhost, done: Callable[[str], None]) -> None:
        try:
            vhost = self._data.open_vhost(self._broker, definition, self._clock.now_ms())
        except OSError as error:
            done(f"{error.strerror}: {error.filename}" if error.filename else str(error))
            return
        # Clients find the vhost when its store is ready.
        del self._broker.vhosts[vhost.name]
        driver = self._attach(vhost)
        for _ in start_drivers([driver], self._clock.now_ms):
            self._host.wake()
            await asyncio.sleep(_PAUSE_S)
        self._broker.vhosts[vhost.name] = vhost
        logger.info("vhost '%s' is created", vhost.name.decode("utf-8", "replace"))
        self._then(done, "")

    async def _close(self, vhost: Vhost, done: Callable[[], None]) -> None:
        vhost.staging.stop()
        self._closed(vhost)
        driver = self.drivers[vhost.journal]
        vhost.staging.drop(list(vhost.staging.stages.values()), self._clock.now_ms())
        while vhost.queues:
            now_ms = self._clock.now_ms()
            for queue in list(vhost.queues.values())[:_DELETE_SLICE]:
                vhost.delete_queue(queue, now_ms)
            self._host.wake()
            await asyncio.sleep(_PAUSE_S)
        # Purges, commits and jobs end before their files go.
        is_working = True
        while is_working or vhost.journal.in_flight or driver in self._jobs.values():
            await asyncio.sleep(_PAUSE_S)
            is_working = driver.end_turn(self._clock.now_ms()) and not driver.is_failing
        del self.drivers[vhost.journal]
        self._runners.pop(vhost.id).close()
        await self._loop.run_in_executor(None, self._data.remove_vhost, vhost.id)
        logger.info("vhost '%s' is deleted", vhost.name.decode("utf-8", "replace"))
        done()
        self._host.wake()
