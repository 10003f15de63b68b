"""A node: the data directory, the broker in it, its listeners, and the turns of its event loop.

One event loop owns everything but the disk. In a turn, sockets deliver bytes to connections, which
fill outputs and the journal's batch. The end of the turn seals a due batch, hands it to the
flusher, and writes each touched connection once. Thus a thousand messages cost one send and one
sync, whoever sent them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from warrenmq.admin.clock import LoopClock
from warrenmq.admin.definitions.administration import Administration
from warrenmq.admin.node import AdminNode
from warrenmq.admin.peer_calls import PeerCalls
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import MetadataError
from warrenmq.broker.definitions.tickets import Tickets
from warrenmq.broker.event_listener import INTERNAL_USER
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.errors import ClusterError
from warrenmq.server.clock import Clock
from warrenmq.server.config.options.http_listeners import SiteOptions
from warrenmq.server.config.settings import Config, broker_settings
from warrenmq.server.config.sources import Sources
from warrenmq.server.listening.addresses import Ends
from warrenmq.server.listening.amqp_protocol import READ_BYTES, ClientProtocol
from warrenmq.server.listening.control_listener import ControlListener
from warrenmq.server.listening.listeners import ListenError, Listeners
from warrenmq.server.listening.steering import Handover, Steering
from warrenmq.server.listening.tls import TlsError, check_config
from warrenmq.server.log.life_lines import LifeLines
from warrenmq.server.log.ready_line import announce
from warrenmq.server.management_process import ManagementProcess
from warrenmq.server.node_process import NodeProcess
from warrenmq.server.node_vhosts import NodeVhosts
from warrenmq.server.online_backup import BackupRunner, BackupServices, NodeBackups
from warrenmq.server.reload import reload_node
from warrenmq.server.resources.code_release import release_code
from warrenmq.server.resources.disk_monitor import DiskMonitor, free_bytes
from warrenmq.server.resources.heap_release import find_heap_release
from warrenmq.server.resources.memory_watch import (
    MemoryWatch,
    ResidentMemory,
    find_malloc_trim,
    total_memory_bytes,
)
from warrenmq.server.service_manager import ServiceManager
from warrenmq.server.startup.definitions_file import DataDirectoryError, DefinitionsLostError
from warrenmq.server.startup.load_definitions import DefinitionsNotLoaded, load_definitions
from warrenmq.server.startup.startup import OpenedData, open_data_directory
from warrenmq.server.vhost_driver import VhostDriver, start_drivers, stop_drivers
from warrenmq.store.disk.flusher import Flusher, FlushJob, is_kept_up
from warrenmq.store.disk.kernel_syncs import KernelSyncs
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.workers import Workers
from warrenmq.store.jobs.job import StoreJob

if TYPE_CHECKING:
    from warrenmq.cluster.node import ClusterNode
    from warrenmq.server.cluster_setup import ClusterCertificates

logger = logging.getLogger("warren.node")

# Interval of the expiry of messages and queues (s).
_EXPIRY_TICK_S = 0.05
# Interval of heartbeats, deadlines and the space reserve (s).
_CONNECTION_TICK_S = 0.5
# Pause in reading a publisher that is ahead of its consumers (s).
_YIELD_S = 0.001
# Time for clients to answer connection.close when the node stops (s).
_STOP_GRACE_S = 2.0
_START_FAILED_EXIT = 1
# Exit status of a start that finds its definitions lost; a restart does not help. Status 2 means a
# wrong configuration.
_DEFINITIONS_LOST_EXIT = 3
# Faults that end a start, and that no restart helps against.
_START_FAULTS = (
    DataDirectoryError,
    DefinitionsNotLoaded,
    TlsError,
    ListenError,
    OSError,
    ClusterError,
    MetadataError,
)
# File descriptors that sockets may not take: they are for journals, definitions and short-lived
# files.
_RESERVED_DESCRIPTORS = 64


class Node:
    """A running node. All its methods run on `loop`, but for those named `..._in_thread`."""

    def __init__(
        self,
        config: Config,
        sources: Sources,
        loop: asyncio.AbstractEventLoop,
        steering: Steering | None = None,
    ) -> None:
        self.config = config
        self.sources = sources
        self.loop = loop
        self.steering = steering
        self._is_turn_scheduled = False
        self.broker = Broker(
            broker_settings(config, total_memory_bytes()),
            secrets.token_bytes,
            self.schedule_turn,
        )
        self.broker.access.tickets = Tickets(secrets.token_bytes, lambda: int(time.time()))
        self.clock = Clock(self.broker.latencies)
        # Time at which the next tick is due, by the monotonic clock.
        self._tick_due_ns = 0
        self.admin = AdminNode(self.broker)
        self.admin.name = config.node_name
        self.admin.now_ms = self.clock.now_ms
        self._backup_surroundings = self._backup_services()
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
        self.newcomers: set[ClientProtocol] = set()
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        # Sockets that used up their share of reading in this turn.
        self.read_on: list[ClientProtocol] = []
        self._is_full = False
        self.is_stopping = False
        self.takes_clients = True
        # None: the node runs alone.
        self._cluster: ClusterNode | None = _open_cluster(
            config, loop, self.broker, self.clock.now_ms, self.schedule_turn, self.read_buffer
        )
        self.cluster = None if self._cluster is None else self._cluster.control
        # None until the node has entered its cluster, and for a node that runs alone.
        self._cluster_certificates: ClusterCertificates | None = None
        self._watching: asyncio.Task[None] | None = None
        self.admin.cluster = self.cluster
        self._data: OpenedData | None = None
        self._flusher: Flusher | None = None
        self._workers: Workers | None = None
        self._vhosts: NodeVhosts | None = None
        self.lines = LineLimit()
        self.arriving: set[Ends] = set()
        self._listening: Listeners | None = None
        self._control_listener = ControlListener(
            loop, config.data_dir, lambda ends: ClientProtocol(self, ends, None, is_control=True)
        )
        self.admin.token = self._control_listener.token
        self.admin.control = NodeProcess(self)
        # Protocol ("amqp", "amqp/ssl"), interface and port of each listening socket.
        self.listeners: list[tuple[str, str, int]] = []
        self._stopped = asyncio.Event()
        self._life = LifeLines()
        self.service_manager = ServiceManager()

    def _backup_services(self) -> BackupServices:
        return BackupServices(
            self.loop.call_soon_threadsafe,
            self.config.data_dir,
            self.broker.vhosts.values,
            self.schedule_turn,
        )

    # -- start and stop ----------------------------------------------------------------------------

    async def start(self) -> str:
        """Recover the data directory and listen; returns the listeners as the ready line has them.

        Raises DataDirectoryError, DefinitionsNotLoaded, TlsError or ListenError when the directory,
        the definitions to import, the certificates or an address is not usable, OSError when the
        system refuses something else, and ClusterError when the node does not belong to its
        cluster.
        """
        self._listening = Listeners(self, partial(ClientProtocol, self))
        # Before the data directory is made: a node that cannot listen leaves nothing behind.
        self._listening.bind()
        self._life.starting(self.config, self._listening.all_text())
        enter = None if self._cluster is None else self._cluster.open
        self._data = open_data_directory(self.config, self.broker, self.clock.now_ms(), enter)
        self.admin.directories = self._data.directories
        self.admin.recover(
            self._data.definitions.reader_groups, self._data.definitions.group_members
        )
        self._flusher = Flusher(self._on_flushed_in_thread, _open_kernel_syncs())
        if self._flusher.syncs is not None:
            self.loop.add_reader(self._flusher.syncs.event, self._on_synced)
        self._workers = Workers(self._on_job_in_thread)
        self._vhosts = NodeVhosts(
            self,
            self.loop,
            self.broker,
            self.clock,
            self._data,
            self._flusher,
            self._workers,
            self.admin.forget,
        )
        administration = Administration(self.broker, self._vhosts)
        self.admin.administration = administration
        if self._cluster is not None:
            apply = administration.in_force.apply
            self._cluster.attach(
                lambda changes, done: apply(changes, INTERNAL_USER, done), self._vhosts.store
            )
            self._answer_nodes(self._cluster)
        self._backup_surroundings.copy_definitions = self._data.copy_definitions
        self._backup_surroundings.call_flusher = self._flusher.call
        self._backup_surroundings.submit = partial(self._workers.submit, BackupRunner().run)
        self._backup_surroundings.pause = self._workers.pause
        self.broker.set_limits(self.clock.now_ms())
        await self._disk_monitor.start()
        self.memory_watch.start()
        await self._run_steps(start_drivers(self._drivers(), self.clock.now_ms))
        # Recovered objects live as long as the node, so the collector need not scan them again and
        # again.
        gc.collect()
        gc.freeze()
        trim = find_malloc_trim()
        if trim is not None:
            # Give the memory that recovery needed for reading back to the system.
            trim()
        gc.set_threshold(50_000, 20, 100)
        self.admin.publish_events(LoopClock(self.loop, self.schedule_turn))
        nodes = "" if self._cluster is None else f" nodes={await self._cluster.begin()}"
        await self.import_definitions()
        self._listen(self._listening, self._data)
        self._expect_tick()
        self.loop.call_later(_CONNECTION_TICK_S, self._tick_connections)
        if self._cluster is not None:
            await self._cluster.announce(self.listeners)
        return self._listening.ready_text() + nodes

    def _listen(self, listening: Listeners, data: OpenedData) -> None:
        """Accept clients and commands, and take clients of other workers."""
        listening.start()
        if self.steering is not None:
            self.steering.start(self.loop, self._take_over)
        self._control_listener.start(self.config.node_name, os.getpid(), data.reserve)
        self.listeners = [
            ("amqp/ssl" if each.is_tls else "amqp", *each.address) for each in listening.all
        ]

    def _answer_nodes(self, cluster: ClusterNode) -> None:
        """Answer calls of other nodes."""
        # Only a node of a cluster loads this.
        from warrenmq.server.cluster_setup import ClusterCertificates, carry_staged

        calls = PeerCalls(self.admin, LoopClock(self.loop, self.schedule_turn))
        carry_staged(
            cluster, self.loop, self.broker, self.clock.now_ms, self.schedule_turn, calls.answer
        )
        self._cluster_certificates = ClusterCertificates(cluster, self.config.cluster)
        self._watching = self.loop.create_task(self._cluster_certificates.watch())

    async def import_definitions(self) -> None:
        """Import the definitions that the configuration names, if it names some.

        Raises DefinitionsNotLoaded.
        """
        assert self.admin.administration is not None
        clock = LoopClock(self.loop, self.schedule_turn)
        await load_definitions(self.config, self.broker, self.admin.administration, clock)

    def reload_tls(self) -> str:
        """Read the certificates again; returns why the listeners' old ones stay in use, or ""."""
        if self._cluster_certificates is not None:
            self._cluster_certificates.reload()
        return "" if self._listening is None else self._listening.reload_tls()

    def certificates(self) -> tuple[str, str]:
        """See `ProcessHost`."""
        return ("", "") if self._listening is None else self._listening.certificates()

    def request_stop(self, why: str) -> None:
        """Close connections, make everything durable, mark a clean stop.

        `why`: a signal or a command, for the log.
        """
        if not self.is_stopping:
            self.is_stopping = True
            self._life.stopping(why)
            self.service_manager.stopping(why)
            self._stop_task = self.loop.create_task(self._stop())

    async def wait_stopped(self) -> None:
        """Return once the node has stopped."""
        await self._stopped.wait()

    async def _stop(self) -> None:
        assert self._listening is not None and self._flusher is not None and self._data is not None
        assert self._workers is not None and self._vhosts is not None
        self._listening.close()
        self._control_listener.close()
        if self.steering is not None:
            self.steering.stop(self.loop)
        self.backups.stop()
        for vhost in self.broker.vhosts.values():
            vhost.staging.stop()
        self._disk_monitor.stop()
        self.memory_watch.stop()
        if self._watching is not None:
            self._watching.cancel()
        for protocol in list(self.protocols):
            protocol.shut_down()
        self._end_turn()
        deadline = self.loop.time() + _STOP_GRACE_S
        while self.protocols and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for protocol in list(self.protocols):
            protocol.abort()
        await asyncio.sleep(0)
        if self._cluster is not None:
            await self._cluster.stop()
        await self._run_steps(stop_drivers(self._drivers(), self.clock.now_ms))
        if self._flusher.syncs is not None:
            self.loop.remove_reader(self._flusher.syncs.event)
        self._flusher.stop()
        await self.loop.run_in_executor(None, self._workers.stop)
        for vhost in self.broker.vhosts.values():
            vhost.losses.report_all()
        self._vhosts.close()
        self._data.close()
        self._memory.close()
        self._life.stopped()
        self._stopped.set()

    async def _run_steps(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self._end_turn()
            await asyncio.sleep(0.001)

    def _take_over(self, ends: Ends, handover: Handover) -> ClientProtocol:
        return ClientProtocol(self, ends, None, handover=handover)

    # -- sockets -----------------------------------------------------------------------------------

    def has_room_for_socket(self) -> bool:
        """Whether one more client may connect.

        The disk needs file descriptors too: without one no journal file can be started.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        clients = len(self.protocols) + len(self.arriving)
        is_full = limit != resource.RLIM_INFINITY and clients + _RESERVED_DESCRIPTORS >= limit
        if is_full and not self._is_full:
            logger.error(
                "refusing connections: %d of at most %d open files are in use by clients",
                clients,
                limit,
            )
        self._is_full = is_full
        return not is_full

    # -- turns -------------------------------------------------------------------------------------

    def schedule_turn(self) -> None:
        """End the turn, with its commits and outputs, once this turn's events are handled."""
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_scheduled = False
        now_ms = self.clock.now_ms()
        for driver in self._drivers():
            driver.end_turn(now_ms)
        self.broker.end_turn(now_ms)
        if self._cluster is not None:
            self._cluster.end_turn()
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

    def _drivers(self) -> list[VhostDriver]:
        return [] if self._vhosts is None else list(self._vhosts.drivers.values())

    # -- the shell of the drivers ------------------------------------------------------------------

    def submit_flush(self, driver: VhostDriver, job: FlushJob) -> None:
        """Submit the job to the flusher."""
        assert self._flusher is not None
        self._flusher.submit(job)

    def submit_job(self, driver: VhostDriver, job: StoreJob) -> None:
        """Submit the job to the workers' threads."""
        assert self._vhosts is not None
        self._vhosts.submit_job(driver, job)

    def jobs_of(self, vhost: Vhost) -> list[StoreJob]:
        """The jobs of a vhost that the workers have."""
        return [] if self._vhosts is None else self._vhosts.jobs_of(vhost)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop in `delay_ms`."""
        self.loop.call_later(delay_ms / 1000, callback)

    def call_when_idle(self, driver: VhostDriver) -> None:
        """Call `driver.on_idle` after the next poll of sockets, unless that schedules a turn."""
        self.loop.call_soon(self._on_idle, driver)

    def _on_idle(self, driver: VhostDriver) -> None:
        if not self._is_turn_scheduled:
            driver.on_idle(self.clock.now_ms())

    def wake(self) -> None:
        """See `schedule_turn`."""
        self.schedule_turn()

    def _on_job_in_thread(self, job: StoreJob) -> None:
        self.loop.call_soon_threadsafe(self._on_job, job)

    def _on_job(self, job: StoreJob) -> None:
        assert self._vhosts is not None
        self._vhosts.on_job(job)
        self.schedule_turn()

    def _on_flushed_in_thread(self, job: FlushJob) -> None:
        self.loop.call_soon_threadsafe(self._on_flushed, job)

    def _on_synced(self) -> None:
        assert self._flusher is not None
        job = self._flusher.end_sync()
        if job is not None:
            self._on_flushed(job)

    def _on_flushed(self, job: FlushJob) -> None:
        assert self._vhosts is not None
        self._vhosts.drivers[job.journal].on_flushed(job, self.clock.now_ms())
        # A turn that is about to end serves for both, because each turn has a share of background
        # work.
        if is_kept_up(job.batch):
            # Sockets are read before the next batch is sealed: consumers may have acked some of it.
            self.schedule_turn()
        elif not self._is_turn_scheduled:
            self._end_turn()

    # -- timers ------------------------------------------------------------------------------------

    def _expect_tick(self) -> None:
        self._tick_due_ns = time.monotonic_ns() + round(_EXPIRY_TICK_S * 1e9)
        self.loop.call_later(_EXPIRY_TICK_S, self._tick_expiry)

    def _tick_expiry(self) -> None:
        # A loop that does too much at once reads no socket meanwhile: its timers are late.
        self.broker.latencies.loop_delays.add(time.monotonic_ns() - self._tick_due_ns)
        # Schedule the next tick first: an error must not stop the clock.
        self._expect_tick()
        self.broker.tick(self.clock.now_ms())
        if self._cluster is not None:
            self._cluster.tick()

    def _tick_connections(self) -> None:
        self.loop.call_later(_CONNECTION_TICK_S, self._tick_connections)
        now_ms = self.clock.now_ms()
        if self._data is not None:
            self._data.reserve.keep()
            self._control_listener.keep(self._data.reserve)
        # End a turn even when nothing else happens, so that space that waits for a checkpoint gets
        # one.
        self.schedule_turn()
        for connection in self.broker.tick_connections(now_ms):
            if isinstance(connection.shell, ClientProtocol):
                connection.shell.close_if_due(now_ms)
        for protocol in list(self.newcomers):
            protocol.close_if_due(now_ms)


def _open_cluster(
    config: Config,
    loop: asyncio.AbstractEventLoop,
    broker: Broker,
    now_ms: Callable[[], int],
    wake: Callable[[], None],
    read_buffer: memoryview,
) -> ClusterNode | None:
    """The node's place in its cluster, None if it runs alone. Raises ClusterError."""
    if not config.cluster.name:
        return None
    # Only a node of a cluster has the client of etcd, and takes the time to load all this.
    try:
        from warrenmq.server.cluster_setup import open_cluster
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"a node of a cluster needs pip install 'warrenmq[cluster]' ({error})"
        ) from None
    return open_cluster(config, loop, broker, now_ms, wake, read_buffer)


def _open_kernel_syncs() -> KernelSyncs | None:
    try:
        return KernelSyncs()
    except OSError as error:
        logger.info("the flusher's thread does all syncs: %s", error)
        return None


def _raise_descriptor_limit() -> None:
    # Raise the soft limit to what the administrator allows; its usual 1024 exists for programs that
    # use select.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _reload(node: Node) -> None:
    node.service_manager.reloading()
    reload_node(node)
    node.service_manager.ready()


async def _run(config: Config, sources: Sources, steering: Steering | None) -> int:
    loop = asyncio.get_running_loop()
    _raise_descriptor_limit()
    try:
        # Before the node starts: the management process would find faulty certificates later.
        if fault := check_config(config):
            raise TlsError(fault)
        node = Node(config, sources, loop, steering)
        listeners = await node.start()
    except DefinitionsLostError as error:
        logger.error("cannot start: %s", error)
        return _DEFINITIONS_LOST_EXIT
    except _START_FAULTS as error:
        logger.error("cannot start: %s", error)
        return _START_FAILED_EXIT
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, node.request_stop, signal_number.name)
    loop.add_signal_handler(signal.SIGHUP, _reload, node)
    sites = SiteOptions(config.management, config.prometheus)
    management = ManagementProcess(config.data_dir, sites)
    announce(f"warren is ready: {listeners} management={management.where}")
    node.service_manager.ready()
    management.start()
    release_code()
    await node.wait_stopped()
    management.stop()
    return 0


def run(config: Config, sources: Sources, steering: Steering | None = None) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit status.

    SIGHUP reloads the configuration from `sources`. `steering` hands clients over to other nodes
    that share the listeners.
    """
    with contextlib.suppress(KeyboardInterrupt):
        return uvloop.run(_run(config, sources, steering))
    return 0
