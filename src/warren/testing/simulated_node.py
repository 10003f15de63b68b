"""A whole node on a simulated disk: `start` puts it together as `server/startup.py` and `server/node.py` do.

What threads do in a running node is done here when the simulation says so: each lane (the flusher and those of
`store/jobs.py`) has jobs that wait for the disk and jobs that have run and whose completion has not reached the loop yet.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from warren.admin.node import AdminNode
from warren.broker.broker import Broker
from warren.broker.metadata import PutPermission, PutUser
from warren.broker.passwords import SHA256, hash_password
from warren.broker.settings import Settings
from warren.broker.stage import SLICE_MESSAGES
from warren.broker.vhost import Vhost
from warren.server.startup import restore_definitions
from warren.store.disk.files import JOURNAL_DIRECTORY, keep_orphans, load_store_id
from warren.store.disk.flusher import BatchFlusher, FlushJob
from warren.store.disk.store_reader import StoreReport, clear_queues, read_store
from warren.store.jobs import COMPACT, READ, WRITE, StoreJob
from warren.store.store_settings import StoreSettings
from warren.store.vhost_store import VhostStore
from warren.testing.message_models import Violation
from warren.testing.oracle import CommitToken
from warren.testing.seams import Seams
from warren.testing.simulated_client import SimulatedClient
from warren.testing.simulated_file_system import SimulatedFileSystem
from warren.testing.simulated_metadata import SimulatedMetadata

VHOST: Final = b"/"
STORE_ID: Final = bytes(range(1, 17))
USER: Final = PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"])
# As long as a real node waits after a failed commit.
FAILURE_PAUSE_MS: Final = 250

FLUSH: Final = "flush"
# The flusher, and the lanes of `store/jobs.py` by their names.
LANES: Final = (FLUSH, "write", "read", "compact")
_LANE_NAMES: Final = {WRITE: "write", READ: "read", COMPACT: "compact"}
# How long an orderly stop, or a start, waits for a checkpoint that fails, in turns.
_CHECKPOINT_TURNS: Final = 20


@dataclass(frozen=True)
class Limits:
    """Sizes of the store, in bytes unless named otherwise: small, so that every boundary is crossed often."""

    journal_file_bytes: int = 4096
    content_file_bytes: int = 8192
    embed_below: int = 256
    segment_entries: int = 8
    page_batch: int = 4
    rewrite_min_bytes: int = 2048
    dead_tail_bytes: int = 512
    # Less than the journal's window, so that stores are often in debt.
    garbage_allowance_bytes: int = 2048
    # Staged messages that are published in one turn.
    move_slice: int = SLICE_MESSAGES


class Commits(Protocol):
    """Who is told of group commits: the oracle."""

    def seal(self) -> CommitToken: ...
    def committed(self, token: CommitToken) -> None: ...
    def commit_failed(self, token: CommitToken) -> None: ...


class Watch(Protocol):
    """Who is told when the vhost works: it may publish staged messages then."""

    def begin(self, node: SimulatedNode) -> None: ...
    def end(self, node: SimulatedNode) -> None: ...


class SimulatedDisk:
    """What a node leaves behind."""

    def __init__(self, files: SimulatedFileSystem, metadata: SimulatedMetadata) -> None:
        self.files = files
        self.metadata = metadata

    def fork(self) -> SimulatedDisk:
        """An equal disk; only after a crash, when nothing is unsynced."""
        files = self.files.fork()
        return SimulatedDisk(files, self.metadata.fork(files))


class Job:
    """One piece of disk work: `run` on the disk, which may take the process with it, then `finish` on the loop."""

    def __init__(self, text: str, run: Callable[[], None], finish: Callable[[], None]) -> None:
        self.text = text
        self.run = run
        self.finish = finish


class Lane:
    """Jobs that run one after another."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.ran: deque[Job] = deque()


class SimulatedTimer:
    """One call that is due later."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Forget it."""
        self.callback = None


class SimulatedClock:
    """Timers of a node; they fire in its turns, by the node's time."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._order = 0
        self._timers: list[tuple[int, int, SimulatedTimer]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> SimulatedTimer:
        """Once, after `delay_s` seconds."""
        timer = SimulatedTimer(callback)
        self._order += 1
        heapq.heappush(self._timers, (self._node.now_ms + int(delay_s * 1000), self._order, timer))
        return timer

    def call_soon(self, callback: Callable[[], object], /) -> SimulatedTimer:
        """Once, in the next turn."""
        return self.call_later(0, callback)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._node.now_ms

    def run(self) -> None:
        """Make the calls that are due."""
        while self._timers and self._timers[0][0] <= self._node.now_ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()


class SimulatedNode:
    """A node with vhost / and user guest. `now_ms` is moved by the simulation."""

    def __init__(
        self, disk: SimulatedDisk, limits: Limits, commits: Commits, now_ms: int, seams: Seams
    ) -> None:
        self.disk = disk
        self.files = seams.files(disk.files)
        self.limits = limits
        self.seams = seams
        self.commits = commits
        self.now_ms = now_ms
        self.lanes = {name: Lane() for name in LANES}
        self._report = StoreReport()
        self._store: VhostStore | None = None
        self._is_flushing = False
        self._flush_again_ms = 0
        self._flusher: BatchFlusher = seams.flusher(self.files)
        self._random_calls = 0
        self.clock = SimulatedClock(self)
        self.failed_commits = 0
        # The broker has asked for another turn.
        self._is_woken = False
        # Has the store something to do that only time brings on?
        self.has_more = False
        # Told of what the vhost does between clients, when there are sinks.
        self.watch: Watch | None = None
        # Called in each turn before clients are given output.
        self.before_output: Callable[[], None] | None = None

    # -- start and stop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the disk. Crash or OSError when the disk says so."""
        self.broker = Broker(
            Settings(msg_store_io_batch_size=self.limits.page_batch), self._random_bytes, self._wake
        )
        definitions = self.disk.metadata.load()
        definitions.users = [USER]
        definitions.permissions = [PutPermission(VHOST, USER.name, ".*", ".*", ".*")]
        self.broker.load_users(definitions)
        self.files.make_directories(JOURNAL_DIRECTORY)
        store_id = load_store_id(self.files, lambda size: STORE_ID[:size])
        limits = self.limits
        settings = StoreSettings(
            limits.journal_file_bytes,
            limits.content_file_bytes,
            limits.embed_below,
            limits.segment_entries,
            limits.rewrite_min_bytes,
            limits.dead_tail_bytes,
            limits.garbage_allowance_bytes,
        )
        store, replay, report = read_store(self.files, store_id, settings)
        self.store = self._store = store
        self._report = report
        self.journal = store.journal
        self.vhost = Vhost(self.broker, VHOST, 1, store)
        self.vhost.staging.slice_messages = limits.move_slice
        self.broker.vhosts[VHOST] = self.vhost
        unusable_ids = restore_definitions(self.vhost, definitions, self.now_ms)
        self.seams.change_vhost(self.vhost)
        self.broker.reserve_queue_ids(max(replay.queues, default=0))
        orphans = self.vhost.restore_messages(replay, definitions.next_queue_id, unusable_ids, self.now_ms)
        clear_queues(self.files, store, definitions.next_queue_id, report)
        for orphan in orphans:
            keep_orphans(self.files, orphan, store_id)
        self._runner = self.seams.runner(self.files, store_id)
        self.admin = AdminNode(self.broker)
        self.admin.recover(definitions.reader_groups, definitions.group_members)
        self.journal.request_file()
        store.is_checkpoint_wanted = True
        self._commit(is_forced=True)
        self._await_checkpoint()

    def stop(self) -> bool:
        """An orderly stop, clients closed before; True when everything reached the disk."""
        self.vhost.staging.stop()
        self.drain()
        self._commit(is_forced=True)
        self.drain()
        self.store.is_checkpoint_wanted = True
        self.journal.request_clean_stop()
        self._commit(is_forced=True)
        self._await_checkpoint()
        failed = self.journal.has_pending()
        self._flusher.close()
        self._runner.close()
        return not failed

    def _await_checkpoint(self) -> None:
        # Not for its success: a node must start, and stop, on a full disk too.
        failures = self.store.checkpoint_failures
        for _ in range(_CHECKPOINT_TURNS):
            self.drain()
            if self.store.checkpoint_failures > failures:
                return
            if not self.store.is_checkpoint_wanted and not self.store.is_checkpointing:
                return

    @property
    def damage_count(self) -> int:
        """Everything that was noticed to be damaged or missing, by the start and since."""
        found = _count(self._report)
        if self._store is not None:
            found += self._store.damaged_count + self._store.lost_count
        return found

    def _wake(self) -> None:
        self._is_woken = True

    def _random_bytes(self, size: int) -> bytes:
        self._random_calls += 1
        return self._random_calls.to_bytes(size, "big")

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """What a node does when the events of a turn are handled: a commit that is due, then all output."""
        while True:
            self._is_woken = False
            self.clock.run()
            if not self._is_flushing and self.now_ms >= self._flush_again_ms:
                self._commit(is_forced=False)
            self._work()
            self.broker.end_turn(self.now_ms)
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
                connection.on_written(self.now_ms)

    def tick(self) -> None:
        """Time has passed."""
        self.broker.tick(self.now_ms)
        self.turn()

    def _commit(self, is_forced: bool) -> None:
        journal = self.journal
        if not is_forced and not journal.is_due(self.now_ms):
            return
        batch = journal.seal()
        token = self.commits.seal()
        if not batch.has_work():
            self.store.on_batch_done(batch, True, self.now_ms)
            self.commits.committed(token)
            return
        self._is_flushing = True
        job = FlushJob(journal, batch, self._flusher, self.disk.metadata.apply)
        files = self.disk.files

        def run() -> None:
            failed_calls = files.failed_calls
            self._flusher.flush(job)
            if job.error is None:
                self.commits.committed(token)
            elif files.failed_calls == failed_calls:
                raise Violation("fault", f"a commit failed, and no call of the disk did: {job.error}")

        def finish() -> None:
            self._is_flushing = False
            if job.error is not None:
                self._flush_again_ms = self.now_ms + FAILURE_PAUSE_MS
                self.failed_commits += 1
                self.commits.commit_failed(token)
            self.store.on_batch_done(batch, job.error is None, self.now_ms)

        lane = self.lanes[FLUSH]
        if self.seams.confirms_early:
            lane.ran.append(Job("", run, finish))
            lane.waiting.append(Job(f"flush batch {batch.number}", run, lambda: None))
        else:
            lane.waiting.append(Job(f"flush batch {batch.number}", run, finish))

    def _work(self) -> None:
        """Behind a commit, or where none was due: move messages between memory and disk, and hand out jobs."""
        watch = self.watch if self.vhost.staging.sinks else None
        if watch is not None:
            watch.begin(self)
        self.has_more = self.vhost.advance(self.now_ms)
        if watch is not None:
            watch.end(self)
        for job in self.store.take_jobs(self.now_ms):
            self.lanes[_LANE_NAMES[job.lane]].waiting.append(self._store_job(job))

    def _store_job(self, job: StoreJob) -> Job:
        return Job(_text_of(job), lambda: self._runner.run(job), job.finished)

    # -- the disk --------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Has any lane something to do?"""
        return any(lane.waiting or lane.ran for lane in self.lanes.values())

    def run(self, name: str) -> bool:
        """Let a lane do its next job; False when it has none. May raise Crash."""
        lane = self.lanes[name]
        if not lane.waiting:
            return False
        job = lane.waiting.popleft()
        job.run()
        lane.ran.append(job)
        return True

    def finish(self, name: str) -> bool:
        """Let the loop learn of a job that has run; False when there is none."""
        lane = self.lanes[name]
        if not lane.ran:
            return False
        lane.ran.popleft().finish()
        self.turn()
        return True

    def drain(self) -> None:
        """Run everything that the disk has to do, and what follows from it."""
        for _ in range(10_000):
            self.turn()
            # A queue whose load was answered at once, with nothing, goes on in the next turn without the disk's help.
            is_busy = self._is_woken
            for name in LANES:
                is_busy |= self.run(name)
                is_busy |= self.finish(name)
            if not is_busy:
                return
        raise AssertionError("the disk never comes to rest")

    def is_pausing(self) -> bool:
        """Does the node wait for a better time after a failed commit?"""
        return self.now_ms < self._flush_again_ms

    def file_sizes(self) -> dict[str, int]:
        """The files that the store knows, with the bytes that it knows to be in them; by path."""
        store = self.store
        found = {
            f"{JOURNAL_DIRECTORY}/{file.number}.wal": int(file.size_bytes) for file in self.journal.files
        }
        for contents in (store.contents, store.transient_contents):
            found.update({file.path: int(file.size_bytes) for file in contents.files})
        for queue in self.vhost.queues.values():
            index = queue.log.index
            if index is not None:
                found.update({index.path_of(segment): int(segment.size_bytes) for segment in index.segments})
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
