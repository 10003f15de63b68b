"""A whole node on a simulated disk, in place of `server/node.py`.

The node uses `server/vhost_driver.py` and `server/startup/vhost.py`. Work that threads do in a
running node runs here when the simulation says so: each lane (the flusher and the lanes of
`store/jobs/job.py`) has jobs that wait for the disk, and jobs that have run while the loop has not
learned of their end yet.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from simulator.models.commit_token import CommitToken
from simulator.models.damage import STORE_ID
from simulator.models.messages import Violation
from simulator.simulated.client import SimulatedClient
from simulator.simulated.file_system import PLENTY, SimulatedFileSystem
from simulator.simulated.metadata import SimulatedMetadata
from simulator.simulated.node_parts import NodeParts
from warrenmq.admin.node import AdminNode
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Definitions, PutPermission, PutUser, PutVhost
from warrenmq.broker.definitions.passwords import SHA256, hash_password
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.flow.alarm_state import KEPT_BYTES_MAX
from warrenmq.broker.flow.alarms import RELEASE_BYTES
from warrenmq.broker.flow.disk_flow import STOP_BYTES, STORE_STOP_BYTES
from warrenmq.broker.vhost.sinks.stage import MOVE_SLICE_MESSAGES
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.memory.account import AHEAD_BYTES_MAX, DEEP_BYTES_MAX
from warrenmq.queues.queue_host import AHEAD_BYTES, LOAD_BYTES
from warrenmq.server.startup.vhost import open_vhost
from warrenmq.server.vhost_driver import VhostDriver, finish_job, start_drivers, stop_drivers
from warrenmq.store.disk.files import JOURNAL_DIRECTORY
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.disk.store_reader import StoreReport
from warrenmq.store.jobs.job import COMPACT, READ, WRITE, StoreJob
from warrenmq.store.journal.change_sets import RETRY_MS
from warrenmq.store.journal.journal import BUFFER_BYTES
from warrenmq.store.settings import BEHIND_BYTES, DEAD_BYTES, GROUP_BYTES, StoreSettings
from warrenmq.store.vhost_store import VhostStore

VHOST: Final = b"/"
# File of the space reserve, which the node frees when the disk is full.
RESERVE_PATH: Final = "reserve"
RESERVE_BYTES: Final = 512
USER: Final = PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"])
FLUSH: Final = "flush"
READ_LANE: Final = "read"
# Threads of the read lane, as in `store/disk/workers.py`; each other lane has one thread.
READERS: Final = 2
# The flusher's lane, and the lanes of `store/jobs/job.py` by name.
LANES: Final = (FLUSH, "write", "read", "compact")
_LANE_NAMES: Final = {WRITE: "write", READ: "read", COMPACT: "compact"}
# Time (ms) that one step of a start or a stop takes.
_STEP_MS: Final = 10_000


@dataclass(frozen=True)
class Limits:
    """Sizes of the store (bytes unless named otherwise), small to cross every boundary often."""

    journal_file_bytes: int = 4096
    content_file_bytes: int = 8192
    embed_below: int = 256
    segment_entries: int = 8
    page_batch: int = 4
    rewrite_min_bytes: int = 2048
    dead_tail_bytes: int = 512
    # Less than the journal's window, so that stores are often in debt.
    garbage_allowance_bytes: int = 2048
    # Staged messages that one turn publishes.
    move_slice: int = MOVE_SLICE_MESSAGES
    # Bytes that seal a batch of the journal.
    buffer_bytes: int = BUFFER_BYTES
    # Bytes of a group of appends.
    group_bytes: int = GROUP_BYTES
    # Waiting appends (bytes) at which queues stop paging.
    behind_bytes: int = BEHIND_BYTES
    # Dead bytes that make a checkpoint due.
    dead_bytes: int = DEAD_BYTES
    refer_entries: int = 2
    refer_bytes: int = 1
    empty_files_min: int = 1
    empty_garbage_percent: int = 10
    # Bytes up to which appends gather.
    hold_bytes: int = 300
    # Bytes waiting for the journal at which publishers are stopped.
    stop_bytes: int = STOP_BYTES
    # Bytes waiting for the store's files at which publishers are stopped.
    store_stop_bytes: int = STORE_STOP_BYTES
    # Bytes of one load for a reader group.
    load_bytes: int = LOAD_BYTES
    # Bytes of one load that is read ahead for consumers.
    ahead_bytes: int = AHEAD_BYTES
    # Bytes of content that a queue may have in memory for its consumers while memory is plenty.
    ahead_bytes_max: int = AHEAD_BYTES_MAX
    # Bytes of content that a default queue has in memory before it pages like a lazy one.
    deep_bytes_max: int = DEEP_BYTES_MAX
    # Bytes of deferred frames of all connections above which a blocked connection is not read.
    kept_bytes_max: int = KEPT_BYTES_MAX
    # Bytes of deferred frames that one turn handles after the alarm.
    release_bytes: int = RELEASE_BYTES
    # Memory limit (bytes), at half of which the monitor begins to page; 0: none.
    memory_bytes: int = 0


class Commits(Protocol):
    """Gets every group commit: sealed, then durable or failed. The oracle is one."""

    def seal(self) -> CommitToken: ...
    def committed(self, token: CommitToken, has_definitions: bool) -> None: ...
    def commit_failed(self, token: CommitToken) -> None: ...


class Watch(Protocol):
    """Runs around each end of a turn of the vhost, which may publish staged messages."""

    def begin(self, node: SimulatedNode) -> None: ...
    def end(self, node: SimulatedNode) -> None: ...


class Releases(Protocol):
    """Runs around the moment at which the node handles publishes that an alarm deferred."""

    def begin(self) -> None: ...
    def end(self) -> None: ...


class SimulatedDisk:
    """The files and definitions that a node leaves behind."""

    def __init__(self, files: SimulatedFileSystem, metadata: SimulatedMetadata) -> None:
        self.files = files
        self.metadata = metadata

    def crash(self, rng: Random, rule: str) -> None:
        """End the process or lose power, by `rule`; afterwards all that remains is durable."""
        self.files.crash(rng, rule)
        self.metadata.crash(rng, rule)

    def fork(self) -> SimulatedDisk:
        """An equal disk; only directly after a crash, while nothing is unsynced."""
        files = self.files.fork()
        return SimulatedDisk(files, self.metadata.fork(files))


class Job:
    """One job of a lane: `run` works on the disk and may crash; `finish` runs on the loop."""

    def __init__(self, text: str, run: Callable[[], None], finish: Callable[[], None]) -> None:
        self.text = text
        self.run = run
        self.finish = finish


class Lane:
    """Jobs that `threads` take in order; the jobs of one thread end in the order it took them."""

    def __init__(self, threads: int) -> None:
        self.waiting: deque[Job] = deque()
        # Per thread: jobs that have run, while the loop has not learned of their end.
        self.ran: list[deque[Job]] = [deque() for _ in range(threads)]
        # The job that one thread has taken and not run yet, while another thread overtakes it.
        self._late: Job | None = None

    def has_work(self) -> bool:
        """True while the loop waits for a job of this lane."""
        return bool(self.waiting or self._late or any(self.ran))

    def take(self, rng: Random) -> tuple[int, Job] | None:
        """The next job to run and the thread that runs it; None when there is none."""
        if len(self.ran) == 1:
            return (0, self.waiting.popleft()) if self.waiting else None
        if self._late is None and len(self.waiting) > 1 and rng.random() < 0.5:
            self._late = self.waiting.popleft()
        if self._late is not None and (not self.waiting or rng.random() < 0.5):
            late, self._late = self._late, None
            return 0, late
        if not self.waiting:
            return None
        thread = 1 if self._late is not None else rng.randrange(2)
        return thread, self.waiting.popleft()

    def end(self, rng: Random) -> Job | None:
        """The job whose end the loop learns of next; None when no job has run."""
        done = [ran for ran in self.ran if ran]
        if not done:
            return None
        return (done[0] if len(done) == 1 else rng.choice(done)).popleft()


class SimulatedTimer:
    """One delayed call."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Drop the call."""
        self.callback = None


class SimulatedClock:
    """Timers of a node; they fire in its turns, by the node's time."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._order = 0
        self._timers: list[tuple[int, int, SimulatedTimer]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> SimulatedTimer:
        """Call `callback` once, in `delay_s` seconds."""
        timer = SimulatedTimer(callback)
        self._order += 1
        heapq.heappush(self._timers, (self._node.now_ms + int(delay_s * 1000), self._order, timer))
        return timer

    def call_soon(self, callback: Callable[[], object], /) -> SimulatedTimer:
        """Call `callback` once, in the next turn."""
        return self.call_later(0, callback)

    def now_ms(self) -> int:
        """The node's time: milliseconds since 1970."""
        return self._node.now_ms

    def run(self) -> None:
        """Make the calls that are due."""
        while self._timers and self._timers[0][0] <= self._node.now_ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()


class SimulatedNode:
    """A node with vhost / and user guest; the simulation sets `now_ms`."""

    def __init__(
        self,
        disk: SimulatedDisk,
        limits: Limits,
        commits: Commits,
        now_ms: int,
        node_parts: NodeParts,
    ) -> None:
        self.disk = disk
        self.files = node_parts.files(disk.files)
        self.limits = limits
        self.node_parts = node_parts
        self.commits = commits
        self.now_ms = now_ms
        self.lanes = {name: Lane(READERS if name == READ_LANE else 1) for name in LANES}
        self._report = StoreReport()
        self._store: VhostStore | None = None
        self._lines = LineLimit()
        # Time (ms) of the retry of change sets that could not be stored.
        self._definitions_due_ms = 0
        # Time (ms) that starts and stops see in addition, so that their wait for a checkpoint on a
        # full disk ends. The rest of the node does not see this time pass.
        self._waited_ms = 0
        # Calls of the disk that had failed before this node began.
        self._failed_calls = disk.files.failed_calls
        self._reserve = SpaceReserve(self.files, RESERVE_PATH, RESERVE_BYTES)
        disk.files.locked_path = RESERVE_PATH
        self._flusher: BatchFlusher = node_parts.flusher(self.files, self._reserve)
        self._random_calls = 0
        self.clock = SimulatedClock(self)
        # Commits in which anything failed.
        self.failed_commits = 0
        # Commits in which records or contents failed.
        self.failed_batches = 0
        # The broker has asked for another turn.
        self._is_woken = False
        # The store has work that only the passing of time makes due.
        self.has_more = False
        # Sees the end of each turn of the vhost, when there are sinks.
        self.watch: Watch | None = None
        # Called in each turn before clients get output.
        self.before_output: Callable[[], None] | None = None
        # Sees when the node handles publishes that an alarm deferred.
        self.releases: Releases | None = None

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the disk; raises Crash or OSError when a call of the disk does."""
        self.broker = Broker(self.settings(), self._random_bytes, self.wake)
        self._scale_down()
        self.broker.set_limits(self.now_ms)
        definitions = self.definitions()
        definitions.users = [USER]
        definitions.permissions = [PutPermission(VHOST, USER.name, ".*", ".*", ".*")]
        self.broker.load_users(definitions)
        limits = self.limits
        store_settings = StoreSettings(
            limits.journal_file_bytes,
            limits.content_file_bytes,
            limits.embed_below,
            limits.segment_entries,
            limits.rewrite_min_bytes,
            limits.dead_tail_bytes,
            limits.garbage_allowance_bytes,
            limits.buffer_bytes,
            limits.group_bytes,
            limits.behind_bytes,
            limits.dead_bytes,
            limits.refer_entries,
            limits.refer_bytes,
            limits.empty_files_min,
            limits.empty_garbage_percent,
            # Less gathers than stops queues or publishers, as in a real node.
            min(limits.hold_bytes, limits.behind_bytes, limits.store_stop_bytes // 2),
        )
        self.vhost, self._report = open_vhost(
            self.broker,
            PutVhost(VHOST, 1),
            self.files,
            definitions,
            store_settings,
            self.now_ms,
            lambda size: STORE_ID[:size],
        )
        self.vhost.host.load_bytes = limits.load_bytes
        self.vhost.host.ahead_bytes = limits.ahead_bytes
        self.node_parts.change_vhost(self.vhost)
        self._reserve.keep()
        self.store = self._store = self.vhost.store
        self.journal = self.store.journal
        self.vhost.staging.mover.slice_messages = limits.move_slice
        self._runner = self.node_parts.runner(self.files, self.store.store_id, self._reserve)
        self.admin = AdminNode(self.broker)
        self.admin.recover(definitions.reader_groups, definitions.group_members)
        self.driver = VhostDriver(
            self.vhost, self._flusher, self.disk.metadata.apply, self, self._lines
        )
        self.attach()
        self._run_steps(start_drivers)

    def send(self) -> None:
        """Called in each turn before clients get output; a node of a cluster sends to others."""

    def settings(self) -> Settings:
        """The settings of the broker."""
        memory = self.limits.memory_bytes or PLENTY
        return Settings(
            msg_store_io_batch_size=self.limits.page_batch, vm_memory_high_watermark_absolute=memory
        )

    def definitions(self) -> Definitions:
        """The definitions that the vhost opens with."""
        return self.disk.metadata.load()

    def attach(self) -> None:
        """Called when the vhost is open; a node of a cluster learns what else the cluster has."""

    def _scale_down(self) -> None:
        limits, broker = self.limits, self.broker
        broker.disk_flow.stop_bytes = limits.stop_bytes
        broker.disk_flow.store_stop_bytes = limits.store_stop_bytes
        broker.memory_account.ahead_bytes_max = limits.ahead_bytes_max
        broker.memory_account.deep_bytes_max = limits.deep_bytes_max
        broker.alarms.kept_bytes_max = limits.kept_bytes_max
        broker.alarms.release_bytes = limits.release_bytes

    def stop(self) -> bool:
        """Stop in order, after the clients have left; True when everything reached the disk."""
        self.vhost.staging.stop()
        self.drain()
        self._run_steps(stop_drivers)
        failed = self.journal.has_pending()
        self._flusher.close()
        self._runner.close()
        return not failed

    def _run_steps(
        self, steps: Callable[[list[VhostDriver], Callable[[], int]], Iterator[None]]
    ) -> None:
        for _ in steps([self.driver], lambda: self.now_ms + self._waited_ms):
            self._waited_ms += _STEP_MS
            self.drain()

    @property
    def damage_count(self) -> int:
        """Damaged or missing things that the start and the running node have reported."""
        found = _count(self._report)
        if self._store is not None:
            found += self._store.files.losses.damaged_count + self._store.files.losses.lost_count
        return found

    def call_when_idle(self, driver: VhostDriver) -> None:
        """Call `on_idle` in the next turn: before that turn this node is idle."""
        self.clock.call_later(0, lambda: driver.on_idle(self.now_ms))

    def wake(self) -> None:
        """Request another turn."""
        self._is_woken = True

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` in the first turn after `delay_ms`."""
        self.clock.call_later(delay_ms / 1000, callback)

    def _random_bytes(self, size: int) -> bytes:
        self._random_calls += 1
        return self._random_calls.to_bytes(size, "big")

    # -- turns -------------------------------------------------------------------------------------

    def turn(self) -> None:
        """End a turn as a node does after its events: commit what is due, then write all output."""
        while True:
            self._is_woken = False
            self.clock.run()
            if self.before_output is not None:
                self.before_output()
            self._end_turn()
            if self.releases is not None:
                self.releases.begin()
            self.node_parts.end_turn(self.broker)
            self.broker.end_turn(self.now_ms)
            if self.releases is not None:
                self.releases.end()
            self.send()
            dirty = self.broker.take_dirty()
            if not dirty:
                return
            if self.before_output is not None:
                self.before_output()
            for connection in dirty:
                parts = connection.take_output()
                client = connection.shell
                if isinstance(client, SimulatedClient):
                    client.take(b"".join(parts))
                connection.out.set_unsent(0)
                connection.on_written(self.now_ms)

    def tick(self) -> None:
        """Run the node's periodic tick, then a turn."""
        self._reserve.keep()
        self.broker.tick(self.now_ms)
        self.turn()

    def _end_turn(self) -> None:
        """End the vhost's turn; the watch compares its staging before and after."""
        watch = self.watch if self.vhost.staging.sinks else None
        if watch is not None:
            watch.begin(self)
        self.has_more = self.driver.end_turn(self.now_ms)
        if watch is not None:
            watch.end(self)

    def submit_flush(self, driver: VhostDriver, job: FlushJob) -> None:
        """Put a batch into the lane of the flusher."""
        token = self.commits.seal()
        files = self.disk.files

        def run() -> None:
            failed_calls = files.failed_calls
            self._flusher.flush(job)
            if files.failed_calls == failed_calls and (job.error or job.definitions_error):
                error = job.error or job.definitions_error
                raise Violation("fault", f"a commit failed, and no call of the disk did: {error}")
            if job.error is None:
                self.commits.committed(token, files.failed_calls == self._failed_calls)

        def finish() -> None:
            if job.error is not None or job.definitions_error is not None:
                self.failed_commits += 1
                self._definitions_due_ms = self.now_ms + RETRY_MS
            if job.error is not None:
                self.failed_batches += 1
                self.commits.commit_failed(token)
            driver.on_flushed(job, self.now_ms)

        text = f"flush batch {job.batch.number}"
        lane = self.lanes[FLUSH]
        if self.node_parts.confirms_early:
            for change_set in job.batch.change_sets:
                change_set.is_stored = True
            lane.ran[0].append(Job("", run, finish))
            lane.waiting.append(Job(text, run, lambda: None))
        else:
            lane.waiting.append(Job(text, run, finish))

    def submit_job(self, driver: VhostDriver, job: StoreJob) -> None:
        """Put a job into its lane."""

        def run() -> None:
            self._runner.run(job)

        def finish() -> None:
            finish_job(job, self._lines)

        self.lanes[_LANE_NAMES[job.lane]].waiting.append(Job(_text_of(job), run, finish))

    # -- the disk ----------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """True while any lane has a job that the loop waits for."""
        return any(lane.has_work() for lane in self.lanes.values())

    def run(self, name: str) -> bool:
        """Run the next job of a lane; False when it has none. May raise Crash."""
        lane = self.lanes[name]
        taken = lane.take(self.disk.files.rng)
        if taken is None:
            return False
        thread, job = taken
        job.run()
        lane.ran[thread].append(job)
        return True

    def finish(self, name: str) -> bool:
        """Let the loop learn that a job has run; False when there is none."""
        job = self.lanes[name].end(self.disk.files.rng)
        if job is None:
            return False
        job.finish()
        self.turn()
        return True

    def drain(self) -> None:
        """Run all disk jobs and the work that follows from them, lanes in random order."""
        rng = self.disk.files.rng
        for _ in range(10_000):
            self.turn()
            # A load that ends at once and empty continues in the next turn, without a disk job.
            is_busy = self._is_woken
            for name in rng.sample(LANES, len(LANES)):
                is_busy |= self.run(name)
                # In 1 of 5 rounds the completion of a job waits, so that jobs of other lanes
                # overtake it.
                if rng.random() < 0.8:
                    is_busy |= self.finish(name)
            if not is_busy and not self.has_work():
                return
        raise AssertionError("the disk never comes to rest")

    def is_pausing(self) -> bool:
        """True while the node waits for a retry after a failed commit."""
        return self.driver.is_pausing or self.now_ms < self._definitions_due_ms

    def file_sizes(self) -> dict[str, int]:
        """Files that the store knows, by path, each with the bytes that the store expects in it."""
        store = self.store
        found = {RESERVE_PATH: 0}
        found |= {
            f"{JOURNAL_DIRECTORY}/{file.number}.wal": int(file.size_bytes)
            for file in self.journal.files
        }
        for contents in (store.contents.persistent, store.contents.transient):
            found.update({file.path: int(file.size_bytes) for file in contents.files})
        owners: list[LeveledQueue] = list(self.vhost.queues.values())
        owners += self.vhost.delayed.buckets.values()
        for owner in owners:
            for backing in owner.backings():
                index = backing.ledger.index
                if index is not None:
                    found.update(
                        {
                            index.path_of(segment): int(segment.size_bytes)
                            for segment in index.segments
                        }
                    )
        return found


def _text_of(job: StoreJob) -> str:
    path = getattr(job, "path", None) or getattr(job, "target_path", "")
    return f"{type(job).__name__.lstrip('_')} {path}".rstrip()


def _count(report: StoreReport) -> int:
    return (
        len(report.quarantined)
        + len(report.unfinished)
        + len(report.damage)
        + len(report.torn)
        + len(report.missing)
        + len(report.missing_journal)
        + report.missing_contents
        + report.index_damage
        + report.is_rebuilt
    )
