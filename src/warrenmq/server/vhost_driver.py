"""Drives one vhost from turn to turn: when to commit, which jobs to submit, how to start and stop.

The driver has no clock, threads or sockets. Callers pass the time, and flushes and jobs go out
through a `DriverHost`, which reports their end. A node (`server/node.py`) and the simulated one run
this very code.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.jobs.job import StoreJob
from warrenmq.store.journal.journal import FLUSH_INTERVAL_MS

logger = logging.getLogger("warren.node")

# Wait between a failed commit and the next one (ms).
FAILURE_PAUSE_MS: Final = 250
# Pause between two slices of background work that nobody waits for (ms).
_WORK_PAUSE_MS: Final = 1
# Longest wait of a start or a stop for a checkpoint (ms).
_CHECKPOINT_WAIT_MS: Final = 60_000
# The first checkpoint of a stop no longer lists the dead files, and the second one deletes them.
_STOP_CHECKPOINTS: Final = 2


class DriverHost(Protocol):
    """The threads and timers around a driver."""

    def submit_flush(self, driver: "VhostDriver", job: FlushJob) -> None:
        """Make the job's batch durable, in order of submission; then call `driver.on_flushed`."""

    def submit_job(self, driver: "VhostDriver", job: StoreJob) -> None:
        """Run the job in its lane; then call `finish_job`."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, in `delay_ms`."""

    def call_when_idle(self, driver: "VhostDriver") -> None:
        """Call `driver.on_idle` if the loop has nothing else to do.

        If it has, do nothing: the next `end_turn` asks again.
        """

    def wake(self) -> None:
        """End another turn soon."""


class VhostDriver:
    """Drives `vhost`: `flusher` writes its batches and `apply_changes` stores its definitions."""

    def __init__(
        self,
        vhost: Vhost,
        flusher: BatchFlusher,
        apply_changes: Callable[[list[object]], None],
        host: DriverHost,
        lines: LineLimit,
    ) -> None:
        self.vhost = vhost
        # Whether the last commit failed.
        self.is_failing = False
        # True for FAILURE_PAUSE_MS after a failed commit; only forced commits are tried meanwhile.
        self.is_pausing = False
        self._flusher = flusher
        self._apply_changes = apply_changes
        self._host = host
        self._lines = lines
        self._name = vhost.name.decode("utf-8", "replace")
        self._flushes = 0
        self._has_timer = False

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self, now_ms: int) -> bool:
        """End a turn: commit what is due, then `Vhost.advance`; True when there is more to do."""
        if self._flushes == 0 and not self.is_pausing:
            self._commit_if_due(now_ms)
        # Submit first: the disk reads for this turn's events while the turn's work is done.
        self._submit_jobs(now_ms)
        has_more = self.vhost.advance(now_ms)
        self._submit_jobs(now_ms)
        if self.vhost.store.jobs.lane.is_holding():
            self._expect_tick()
        if has_more:
            self._host.call_later(_WORK_PAUSE_MS, self._host.wake)
        return has_more

    def _commit_if_due(self, now_ms: int) -> None:
        journal = self.vhost.journal
        if journal.is_due(now_ms):
            self.commit(now_ms)
            return
        if journal.has_pending():
            self._expect_tick()
        if journal.is_due(now_ms, is_idle=True):
            self._host.call_when_idle(self)

    def on_idle(self, now_ms: int) -> None:
        """Commit publishes that nobody waits for as well, because the loop is idle (S19)."""
        if (
            self._flushes == 0
            and not self.is_pausing
            and self.vhost.journal.is_due(now_ms, is_idle=True)
        ):
            self.commit(now_ms)

    def _submit_jobs(self, now_ms: int) -> None:
        for job in self.vhost.store.take_jobs(now_ms):
            self._host.submit_job(self, job)

    def _expect_tick(self) -> None:
        """End another turn within FLUSH_INTERVAL_MS: what gathers goes to the disk then."""
        if not self._has_timer:
            self._has_timer = True
            self._host.call_later(FLUSH_INTERVAL_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._has_timer = False
        self._host.wake()

    def commit(self, now_ms: int) -> None:
        """Seal the gathering batch, due or not, and hand it to the flusher."""
        batch = self.vhost.journal.seal()
        if not batch.has_work():
            # Every record was settled before it was written: nothing can be lost, and nobody need
            # wait.
            self.vhost.store.on_batch_done(batch, True, now_ms)
            return
        self._flushes += 1
        job = FlushJob(self.vhost.journal, batch, self._flusher, self._apply_changes)
        self._host.submit_flush(self, job)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """Finish the oldest batch in flight: it is durable, or `job.error` says why not."""
        self._flushes -= 1
        self._log_definitions(job)
        if job.error is None:
            self.vhost.node.latencies.on_flush(job.flush_ns, job.sync_ns, job.batch.part_bytes)
            if self.is_failing:
                self.is_failing = False
                logger.info("vhost '%s': commits succeed again", self._name)
        else:
            if not self.is_failing:
                self.is_failing = True
                logger.error(
                    "vhost '%s': a commit failed; publishes are nacked until one succeeds: %s",
                    self._name,
                    job.error,
                )
            if not self.is_pausing:
                # Acks are retried, but not at full speed against a full disk.
                self.is_pausing = True
                self._host.call_later(FAILURE_PAUSE_MS, self._end_pause)
        self.vhost.store.on_batch_done(job.batch, job.error is None, now_ms)

    def _log_definitions(self, job: FlushJob) -> None:
        if job.definitions_error is not None and self._lines.allows("definitions"):
            logger.error(
                "vhost '%s': definitions could not be stored; new ones are refused and deletions are retried: %s",
                self._name,
                job.definitions_error,
            )

    def _end_pause(self) -> None:
        self.is_pausing = False
        self._host.wake()

    # -- start and stop ----------------------------------------------------------------------------

    def settle(self, now_ms: Callable[[], int], is_clean_stop: bool) -> Iterator[None]:
        """Commit everything and wait for a wanted checkpoint; after each step end a turn.

        The iterator ends even without success, because a node must start and stop on a full disk
        too.
        """
        vhost = self.vhost
        while vhost.journal.in_flight:
            yield
        if is_clean_stop:
            vhost.journal.request_clean_stop()
        self.commit(now_ms())
        while vhost.journal.in_flight:
            yield
        failures = vhost.store.checkpoints.failures
        deadline_ms = now_ms() + _CHECKPOINT_WAIT_MS
        while vhost.store.checkpoints.is_pending:
            if (
                self.is_failing
                or vhost.store.checkpoints.failures > failures
                or now_ms() > deadline_ms
            ):
                return
            yield


def finish_job(job: StoreJob, lines: LineLimit) -> None:
    """Report a job that has run to the engine; log `job.error` if it failed."""
    if job.error is not None:
        name = type(job).__name__.lstrip("_")
        if lines.allows(name):
            logger.warning("%s failed: %s", name, job.error)
    job.finished()


def start_drivers(drivers: list[VhostDriver], now_ms: Callable[[], int]) -> Iterator[None]:
    """Prepare the stores for the first client, in steps as `VhostDriver.settle` does.

    Before anything is delivered, each journal must begin a new file, so that the mark of the last
    clean stop does not count for this run. Records in an index count only after a checkpoint, so
    each store takes one.
    """
    for driver in drivers:
        driver.vhost.journal.request_file()
        driver.vhost.store.checkpoints.want()
    for driver in drivers:
        yield from driver.settle(now_ms, False)


def stop_drivers(drivers: list[VhostDriver], now_ms: Callable[[], int]) -> Iterator[None]:
    """Make everything durable after the last client and mark a clean stop, in steps as `settle`."""
    for driver in drivers:
        yield from driver.settle(now_ms, False)
    stores = [driver.vhost.store for driver in drivers]
    for _ in range(_STOP_CHECKPOINTS):
        for store in stores:
            store.checkpoints.want()
        for driver in drivers:
            yield from driver.settle(now_ms, True)
        if not any(store.checkpoints.has_dead_files() for store in stores):
            break
