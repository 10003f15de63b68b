"""A node without sockets, threads and clock, for the trace: its caller decides what happens when.

The node's code between its sockets and its files is the real one, `VhostDriver` and `BatchFlusher`
included. Files are real as well, but nothing is synced: a sync takes time and no instructions.
Disk jobs run on the caller's thread when the caller calls `settle`, so every run does the same.
"""

import heapq
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.simulated.client import handshake, method_frame
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.definitions.metadata import Definitions, PutPermission, PutUser, PutVhost
from warrenmq.broker.definitions.passwords import SHA256, hash_password
from warrenmq.broker.definitions.settings import Settings
from warrenmq.server.startup.vhost import open_vhost
from warrenmq.server.vhost_driver import VhostDriver, finish_job, start_drivers
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.local_file_system import LocalFileHandle, LocalFileSystem
from warrenmq.store.jobs.job import StoreJob
from warrenmq.store.settings import HOLD_BYTES, StoreSettings
from warrenmq.wire.method import Method
from warrenmq.wire.methods import ChannelOpen

CHANNEL: Final = 1
VHOST: Final = b"/"
# Small, so that the trace pays for new files and for checkpoints as a long run does.
JOURNAL_FILE_BYTES: Final = 524288
# Ticks come every 50 ms of the engine's time, of which a turn takes one.
TICK_TURNS: Final = 50
STORE_ID: Final = bytes(range(1, 17))


class UnsyncedHandle(LocalFileHandle):
    """An open file whose bytes stay in the page cache."""

    __slots__ = ()

    def write_synced(self, offset: int, parts: list[bytes]) -> None:
        """Write `parts`, and sync nothing."""
        self.write(offset, parts)

    def sync(self) -> None:
        """Do nothing."""

    def write_back(self, offset: int, length: int) -> None:
        """Do nothing."""


class UnsyncedFiles(LocalFileSystem):
    """The real file system without its syncs."""

    def create(self, path: str) -> UnsyncedHandle:
        """See FileSystem."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return UnsyncedHandle(os.open(self._resolve(path), flags, 0o640))

    def open(self, path: str) -> UnsyncedHandle:
        """See FileSystem."""
        return UnsyncedHandle(os.open(self._resolve(path), os.O_WRONLY | os.O_CLOEXEC))

    def sync_directory(self, path: str) -> None:
        """Do nothing."""

    def sync_all(self) -> bool:
        """Do nothing, with success."""
        return True


class Engine:
    """A node with vhost / and user guest, whose files are below `directory`.

    `memory_bytes`: its memory limit, at half of which queues page; 0: no limit.
    """

    def __init__(self, directory: Path, memory_bytes: int = 0) -> None:
        directory.mkdir()
        self.now_ms = 1_700_000_000_000
        self._random_calls = 0
        self._turns = 0
        self._is_woken = False
        self._flushes: deque[FlushJob] = deque()
        self._jobs: deque[StoreJob] = deque()
        self._is_asked_when_idle = False
        # Calls that are due later: time, order of the request, callback.
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._lines = LineLimit()
        memory = memory_bytes or 1 << 40
        self.broker = Broker(
            Settings(vm_memory_high_watermark_absolute=memory), self._random_bytes, self.wake
        )
        self.broker.set_limits(self.now_ms)
        user = PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"])
        definitions = Definitions()
        definitions.users = [user]
        definitions.permissions = [PutPermission(VHOST, user.name, ".*", ".*", ".*")]
        self.broker.load_users(definitions)
        files = UnsyncedFiles(directory)
        settings = StoreSettings(JOURNAL_FILE_BYTES, hold_bytes=HOLD_BYTES)
        vhost, _ = open_vhost(
            self.broker, PutVhost(VHOST, 1), files, definitions, settings, self.now_ms,
            lambda size: STORE_ID[:size],
        )  # fmt: skip
        self.vhost = vhost
        self._flusher = BatchFlusher(files)
        self._runner = JobRunner(files, vhost.store.store_id, lambda seconds: None)
        self._driver = VhostDriver(vhost, self._flusher, _keep_nothing, self, self._lines)
        for _ in start_drivers([self._driver], lambda: self.now_ms):
            self.settle()

    def connect(self, *methods: Method) -> Connection:
        """A client with one open channel, on which it has sent `methods`."""
        connection = self.broker.connect("trace", True, self.now_ms)
        connection.receive(handshake(), self.now_ms)
        for method in (ChannelOpen(), *methods):
            connection.receive(method_frame(CHANNEL, method), self.now_ms)
        self.settle()
        return connection

    def turn(self) -> None:
        """End a turn as a node does after its events, and take the output of all connections."""
        self._turns += 1
        self.now_ms += 1
        now_ms = self.now_ms
        if self._turns % TICK_TURNS == 0:
            self.broker.tick(now_ms)
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            heapq.heappop(timers)[2]()
        self._is_woken = False
        self._driver.end_turn(now_ms)
        self.broker.end_turn(now_ms)
        for connection in self.broker.take_dirty():
            connection.take_output()
            connection.out.set_unsent(0)
            connection.on_written(now_ms)

    def settle(self) -> None:
        """End turns and run all disk jobs, until nothing is left to do but by time."""
        self.turn()
        while self._run_jobs() or self._is_woken or self.broker.dirty_connections:
            self.turn()

    def _run_jobs(self) -> bool:
        """Run the jobs of the disk; False when there was none."""
        if not self._flushes and not self._jobs and self._is_asked_when_idle:
            self._is_asked_when_idle = False
            self._driver.on_idle(self.now_ms)
        if not self._flushes and not self._jobs:
            return False
        while self._flushes:
            flush = self._flushes.popleft()
            self._flusher.flush(flush)
            self._driver.on_flushed(flush, self.now_ms)
        while self._jobs:
            job = self._jobs.popleft()
            self._runner.run(job)
            finish_job(job, self._lines)
        return True

    def _random_bytes(self, size: int) -> bytes:
        self._random_calls += 1
        return self._random_calls.to_bytes(size, "big")

    # -- the shell of the driver -------------------------------------------------------------------

    def submit_flush(self, driver: VhostDriver, job: FlushJob) -> None:
        """Keep the batch for `settle`."""
        self._flushes.append(job)

    def submit_job(self, driver: VhostDriver, job: StoreJob) -> None:
        """Keep the job for `settle`."""
        self._jobs.append(job)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` in the first turn after `delay_ms` of the engine's time."""
        self._order += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._order, callback))

    def call_when_idle(self, driver: VhostDriver) -> None:
        """Ask the driver in `settle`, once no job is left."""
        self._is_asked_when_idle = True

    def wake(self) -> None:
        """Request another turn."""
        self._is_woken = True


def _keep_nothing(changes: list[object]) -> None:
    """The trace never restarts, so definitions need not be stored."""
