"""A node: the data directory, the broker in it, the listener before it, and the loop's turns between them.

One event loop owns everything but the disk. A turn: sockets deliver bytes to connections, which fill outputs and the
journal's batch; at the end of the turn a due batch is sealed and handed to the flusher, then every touched connection
is written once. So a thousand messages cost one send and one sync, whoever sent them.
"""

import asyncio
import contextlib
import gc
import logging
import resource
import secrets
import signal
import socket
import time
from functools import partial

import uvloop

from warren.admin.node import AdminNode
from warren.broker.broker import Broker
from warren.broker.settings import Settings
from warren.broker.vhost import Vhost
from warren.server.amqp_protocol import READ_BYTES, ClientProtocol
from warren.server.config import Config
from warren.server.disk_monitor import DiskMonitor, free_bytes
from warren.server.heap_release import find_heap_release
from warren.server.memory_watch import MemoryWatch, ResidentMemory, find_malloc_trim, total_memory_bytes
from warren.server.online_backup import BackupRunner, NodeBackups, Surroundings
from warren.server.startup import DataDirectoryError, OpenedData, open_data_directory
from warren.store.disk.flusher import Flusher, FlushJob
from warren.store.disk.job_runner import JobRunner
from warren.store.disk.line_limit import LineLimit
from warren.store.disk.workers import Workers
from warren.store.jobs import StoreJob
from warren.store.journal import FLUSH_INTERVAL_MS

logger = logging.getLogger("warren.node")

_EXPIRY_TICK_S = 0.05
_CONNECTION_TICK_S = 0.5
# For how long a publisher that is ahead of its consumers is not read.
_YIELD_S = 0.001
# How long a start and a stop wait for a checkpoint.
_CHECKPOINT_WAIT_S = 60.0
# One says so without the dead files, the next one deletes them.
_STOP_CHECKPOINTS = 2
# After a failed commit, the next one waits this long.
_FAILURE_PAUSE_S = 0.25
_LISTEN_BACKLOG = 4096
# Between two slices of work that nobody waits for.
_WORK_PAUSE_S = 0.001
# How long a stopping node waits for clients to answer connection.close.
_STOP_GRACE_S = 2.0
_START_FAILED_EXIT = 1
# File descriptors that sockets may not take: journals, definitions and what is opened for a moment.
_RESERVED_DESCRIPTORS = 64


class Clock:
    """Milliseconds since 1970 that never jump: wall clock at the start, monotonic from there (T11)."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000


class Node:
    """A running node. Everything happens on `loop`, except the flusher's thread."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.clock = Clock()
        self._is_turn_scheduled = False
        self.broker = Broker(
            _settings(config),
            secrets.token_bytes,
            self.schedule_turn,
        )
        self.admin = AdminNode(self.broker)
        self.admin.name = config.node_name
        self._backup_surroundings = Surroundings(
            loop, config.data_dir, self.broker.vhosts.values, self.schedule_turn
        )
        self.backups = NodeBackups(self._backup_surroundings)
        self.admin.backups = self.backups
        self._memory = ResidentMemory()
        self.memory_watch = MemoryWatch(
            loop,
            self.broker,
            self.clock.now_ms,
            self._memory.used_bytes,
            find_malloc_trim(),
            find_heap_release(),
        )
        self._disk_monitor = DiskMonitor(
            loop, self.broker, self.clock.now_ms, lambda: free_bytes(config.data_dir)
        )
        self.protocols: set[ClientProtocol] = set()
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        # Sockets that had their share of reading in this turn.
        self.read_on: list[ClientProtocol] = []
        self._is_full = False
        self.is_stopping = False
        self._data: OpenedData | None = None
        self._flusher: Flusher | None = None
        self._workers: Workers | None = None
        self._runners: dict[int, JobRunner] = {}
        self._flushing: set[Vhost] = set()
        # Their last commit failed.
        self._failing: set[Vhost] = set()
        self._lines = LineLimit()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._stopped = asyncio.Event()

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Recover the data directory and listen; returns `HOST:PORT` of the AMQP listener.

        Raises DataDirectoryError or OSError when the directory or the address cannot be had.
        """
        self._data = open_data_directory(self.config, self.broker, self.clock.now_ms())
        self.admin.directories = self._data.directories
        self.admin.recover(self._data.definitions.reader_groups, self._data.definitions.group_members)
        self._flusher = Flusher(self._on_flushed_in_thread)
        self._workers = Workers(self._on_job_in_thread)
        for vhost in self.broker.vhosts.values():
            files = self._data.file_systems[vhost.id]
            self._runners[vhost.id] = JobRunner(
                files, vhost.store.store_id, self._workers.pause, self._data.reserve
            )
        self._backup_surroundings.copy_definitions = self._data.copy_definitions
        self._backup_surroundings.call_flusher = self._flusher.call
        self._backup_surroundings.submit = partial(self._workers.submit, BackupRunner())
        self._backup_surroundings.pause = self._workers.pause
        self.broker.set_limits(self.clock.now_ms())
        await self._disk_monitor.start()
        self.memory_watch.start()
        # Before anything is delivered, the mark of the last clean stop must not be the journal's last word any more.
        # And what is in an index counts only behind a checkpoint, so there must be one.
        for vhost in self.broker.vhosts.values():
            vhost.journal.request_file()
            vhost.store.is_checkpoint_wanted = True
        await self._drain_journals(clean_stop=False)
        # What recovery built lives as long as the node: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        trim = find_malloc_trim()
        if trim is not None:
            # What reading the journal took is given back.
            trim()
        gc.set_threshold(50_000, 20, 100)
        listener = _listen(self.config.listen_host, self.config.listen_port)
        self._server = await self.loop.create_server(
            lambda: ClientProtocol(self), sock=listener, backlog=_LISTEN_BACKLOG
        )
        self.loop.call_later(_EXPIRY_TICK_S, self._tick_expiry)
        self.loop.call_later(_CONNECTION_TICK_S, self._tick_connections)
        return _address(listener)

    def request_stop(self) -> None:
        """SIGTERM: close connections, make everything durable, leave the mark of a clean stop."""
        if not self.is_stopping:
            self.is_stopping = True
            self._stop_task = self.loop.create_task(self._stop())

    async def wait_stopped(self) -> None:
        """Returns when the node has stopped."""
        await self._stopped.wait()

    async def _stop(self) -> None:
        logger.info("stopping")
        assert self._server is not None and self._flusher is not None and self._data is not None
        assert self._workers is not None
        self._server.close()
        self.backups.stop()
        for vhost in self.broker.vhosts.values():
            vhost.staging.stop()
        self._disk_monitor.stop()
        self.memory_watch.stop()
        for protocol in list(self.protocols):
            protocol.shut_down()
        self._end_turn()
        deadline = self.loop.time() + _STOP_GRACE_S
        while self.protocols and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for protocol in list(self.protocols):
            protocol.abort()
        await asyncio.sleep(0)
        await self._drain_journals(clean_stop=False)
        stores = [vhost.store for vhost in self.broker.vhosts.values()]
        for _ in range(_STOP_CHECKPOINTS):
            for store in stores:
                store.is_checkpoint_wanted = True
            await self._drain_journals(clean_stop=True)
            if not any(store.has_dead_files() for store in stores):
                break
        self._flusher.stop()
        await self.loop.run_in_executor(None, self._workers.stop)
        for vhost in self.broker.vhosts.values():
            vhost.losses.report_all()
        for runner in self._runners.values():
            runner.close()
        self._data.close()
        self._memory.close()
        self._stopped.set()

    async def _drain_journals(self, clean_stop: bool) -> None:
        for vhost in self.broker.vhosts.values():
            await self._wait_for_flusher(vhost)
            if clean_stop:
                vhost.journal.request_clean_stop()
            self._commit(vhost, is_forced=True)
            await self._wait_for_flusher(vhost)
            await self._wait_for_checkpoint(vhost)

    async def _wait_for_checkpoint(self, vhost: Vhost) -> None:
        # Nor for its success.
        failures = vhost.store.checkpoint_failures
        deadline = self.loop.time() + _CHECKPOINT_WAIT_S
        while vhost.store.is_checkpoint_wanted or vhost.store.is_checkpointing:
            if vhost in self._failing or vhost.store.checkpoint_failures > failures:
                return
            if self.loop.time() > deadline:
                return
            self._end_turn()
            await asyncio.sleep(0.001)

    async def _wait_for_flusher(self, vhost: Vhost) -> None:
        # Not for the success of what failed: a node must stop, and start, on a full disk too.
        while vhost.journal.in_flight:
            await asyncio.sleep(0.001)

    # -- sockets ---------------------------------------------------------------------------------------------------

    def has_room_for_socket(self) -> bool:
        """May one more client come in? The disk needs descriptors too: without one no journal file can be started."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        is_full = limit != resource.RLIM_INFINITY and len(self.protocols) + _RESERVED_DESCRIPTORS >= limit
        if is_full and not self._is_full:
            logger.error(
                "refusing connections: %d of at most %d open files are in use by clients",
                len(self.protocols),
                limit,
            )
        self._is_full = is_full
        return not is_full

    # -- turns -----------------------------------------------------------------------------------------------------

    def schedule_turn(self) -> None:
        """Something happened: look after commits and outputs when this turn's events are handled."""
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_scheduled = False
        for vhost in self.broker.vhosts.values():
            if vhost not in self._flushing:
                self._commit(vhost, is_forced=False)
            self._work(vhost)
        self.broker.end_turn(self.clock.now_ms())
        for connection in self.broker.take_dirty():
            protocol = connection.shell
            if isinstance(protocol, ClientProtocol):
                protocol.write_out()
        if self.read_on:
            read_on = self.read_on
            self.read_on = []
            for reader in read_on:
                if reader.is_ahead():
                    self.loop.call_later(_YIELD_S, reader.read_on)
                else:
                    reader.read_on()

    def _commit(self, vhost: Vhost, is_forced: bool) -> None:
        journal = vhost.journal
        now_ms = self.clock.now_ms()
        if not is_forced and not journal.is_due(now_ms):
            if journal.has_pending() and self._flush_timer is None:
                self._flush_timer = self.loop.call_later(FLUSH_INTERVAL_MS / 1000, self._on_flush_timer)
            return
        batch = journal.seal()
        if not batch.has_work():
            # Everything in it was settled before it was written: nothing to lose, nothing to wait for.
            vhost.store.on_batch_done(batch, True, now_ms)
            return
        assert self._flusher is not None and self._data is not None
        job = FlushJob(journal, batch, self._data.flushers[vhost.id], self._data.apply_changes)
        self._flushing.add(vhost)
        self._flusher.submit(job)

    def _work(self, vhost: Vhost) -> None:
        """Behind a commit, or where none was due: move messages between memory and disk, and hand out jobs."""
        now_ms = self.clock.now_ms()
        has_more = vhost.advance(now_ms)
        assert self._workers is not None
        runner = self._runners[vhost.id]
        for job in vhost.store.take_jobs(now_ms):
            self._workers.submit(runner, job)
        if has_more:
            self.loop.call_later(_WORK_PAUSE_S, self.schedule_turn)

    def _on_job_in_thread(self, job: StoreJob) -> None:
        self.loop.call_soon_threadsafe(self._on_job, job)

    def _on_job(self, job: StoreJob) -> None:
        if job.error is not None:
            name = type(job).__name__.lstrip("_")
            if self._lines.allows(name):
                logger.warning("%s failed: %s", name, job.error)
        job.finished()
        self.schedule_turn()

    def _on_flush_timer(self) -> None:
        self._flush_timer = None
        self._end_turn()

    def _on_flushed_in_thread(self, job: FlushJob) -> None:
        self.loop.call_soon_threadsafe(self._on_flushed, job)

    def _on_flushed(self, job: FlushJob) -> None:
        self._finish(job)
        # Should a turn be about to end, that one does for both: each has its share of background work.
        if not self._is_turn_scheduled:
            self._end_turn()

    def _finish(self, job: FlushJob) -> None:
        for vhost in self.broker.vhosts.values():
            if vhost.journal is job.journal:
                name = vhost.name.decode("utf-8", "replace")
                self._log_definitions(name, job)
                if job.error is None:
                    self._flushing.discard(vhost)
                    if vhost in self._failing:
                        self._failing.discard(vhost)
                        logger.info("vhost '%s': commits succeed again", name)
                else:
                    if vhost not in self._failing:
                        self._failing.add(vhost)
                        logger.error(
                            "vhost '%s': a commit failed; publishes are nacked until one succeeds: %s",
                            name,
                            job.error,
                        )
                    # Acks are tried again; not at full speed against a full disk.
                    self.loop.call_later(_FAILURE_PAUSE_S, self._commit_again, vhost)
                vhost.store.on_batch_done(job.batch, job.error is None, self.clock.now_ms())

    def _log_definitions(self, name: str, job: FlushJob) -> None:
        error = job.definitions_error
        if error is not None and self._lines.allows("definitions"):
            logger.error(
                "vhost '%s': definitions could not be stored: new ones are refused, deletions are tried again: %s",
                name,
                error,
            )

    def _commit_again(self, vhost: Vhost) -> None:
        self._flushing.discard(vhost)
        self._end_turn()

    # -- timers ----------------------------------------------------------------------------------------------------

    def _tick_expiry(self) -> None:
        # First of all the next one: an error must not stop the clock.
        self.loop.call_later(_EXPIRY_TICK_S, self._tick_expiry)
        self.broker.tick(self.clock.now_ms())

    def _tick_connections(self) -> None:
        self.loop.call_later(_CONNECTION_TICK_S, self._tick_connections)
        now_ms = self.clock.now_ms()
        if self._data is not None:
            self._data.reserve.keep()
        # Space that waits for a checkpoint gets one although nothing else happens.
        self.schedule_turn()
        self.broker.tick_connections(now_ms)
        for protocol in list(self.protocols):
            protocol.close_if_due(now_ms)


def _settings(config: Config) -> Settings:
    return Settings(
        channel_max=config.channel_max,
        frame_max=config.frame_max,
        heartbeat=config.heartbeat,
        max_message_size=config.max_message_size,
        max_unfinished_size=config.max_unfinished_size,
        unfinished_message_timeout=config.unfinished_message_timeout,
        cluster_name=config.node_name,
        loopback_users=frozenset(name.encode() for name in config.loopback_users),
        total_memory_bytes=config.total_memory_available_override_value or total_memory_bytes(),
        vm_memory_high_watermark_absolute=config.vm_memory_high_watermark_absolute,
        vm_memory_high_watermark_relative=config.vm_memory_high_watermark_relative,
        vm_memory_high_watermark_paging_ratio=config.vm_memory_high_watermark_paging_ratio,
        memory_monitor_interval_ms=config.memory_monitor_interval_ms,
        disk_free_limit_absolute=config.disk_free_limit_absolute,
        disk_free_limit_relative=config.disk_free_limit_relative,
        queue_index_embed_msgs_below=config.queue_index_embed_msgs_below,
        msg_store_file_size_limit=config.msg_store_file_size_limit,
        msg_store_io_batch_size=config.msg_store_io_batch_size,
    )


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; an empty host is every address, IPv4 and IPv6, on one port."""
    if host:
        # Python encodes a text as IDNA, whose tables take milliseconds to load.
        name = host.encode() if host.isascii() else host
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_LISTEN_BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_LISTEN_BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=_LISTEN_BACKLOG)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _raise_descriptor_limit() -> None:
    # As many as the administrator allows; the usual soft limit of 1024 is there for programs that use select.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(config: Config) -> int:
    loop = asyncio.get_running_loop()
    _raise_descriptor_limit()
    node = Node(config, loop)
    try:
        address = await node.start()
    except (DataDirectoryError, OSError) as error:
        logger.error("cannot start: %s", error)
        return _START_FAILED_EXIT
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, node.request_stop)
    print(f"warren is ready: amqp={address} management=off", flush=True)
    await node.wait_stopped()
    return 0


def run(config: Config) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit status."""
    with contextlib.suppress(KeyboardInterrupt):
        return uvloop.run(_run(config))
    return 0
