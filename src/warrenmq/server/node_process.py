"""The process of a node, as control operations see and change it."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import resource
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import warrenmq
from warrenmq.admin.protocol.cluster import ListenerStatus
from warrenmq.admin.protocol.configuration import Configuration
from warrenmq.admin.protocol.control import ControlStatus
from warrenmq.admin.protocol.log import LogEntries, LogEntry, ReadLog
from warrenmq.admin.protocol.watching import ListenerCertificates
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.server.config.changes import field_value
from warrenmq.server.config.keys import ALL
from warrenmq.server.config.options.log import LEVELS
from warrenmq.server.config.settings import Config
from warrenmq.server.config.sources import Sources
from warrenmq.server.listening.amqp_protocol import ClientProtocol
from warrenmq.server.listening.tls import certificate_texts
from warrenmq.server.log.output import find_ring, log_files, rotate_log, set_log_level, stamp
from warrenmq.server.log.ring import Entry
from warrenmq.server.startup.load_definitions import DefinitionsNotLoaded
from warrenmq.server.startup.startup import first_definitions
from warrenmq.store.jobs.job import StoreJob
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

# How long a stop of the broker waits for clients to leave (s).
_CLIENTS_GONE_S: Final = 2.0
_PAUSE_S: Final = 0.01
# Samples of the node's figures are no closer to each other than this (ms).
SAMPLE_INTERVAL_MIN_MS: Final = 100


class ProcessHost(Protocol):
    """The node of the process."""

    config: Config
    sources: Sources
    broker: Broker
    takes_clients: bool
    protocols: set[ClientProtocol]
    # Protocol ("amqp", "amqp/ssl"), interface and port of each listening socket.
    listeners: list[tuple[str, str, int]]
    # None: the node runs alone.
    cluster: ClusterControl | None

    loop: asyncio.AbstractEventLoop

    def certificates(self) -> tuple[str, str]:
        """The node's own certificates and the trusted ones, in use by TLS listeners, as PEM."""

    def request_stop(self, why: str) -> None:
        """Stop the node cleanly, for the reason `why`."""

    def jobs_of(self, vhost: Vhost) -> list[StoreJob]:
        """The jobs of a vhost's store that run, or wait for a thread."""

    async def import_definitions(self) -> None:
        """Import the definitions that the configuration names. Raises DefinitionsNotLoaded."""


class NodeProcess:
    """Controls the process of `host`."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._started_s = time.monotonic()
        # In ms since 1970.
        self.started_ms = time.time_ns() // 1_000_000
        # Whether the broker runs, and whether its listeners are not suspended.
        self._is_running = True
        self._is_listening = True
        # Whether the node is in maintenance mode, which ends when the broker starts.
        self._is_draining = False
        # The last start or stop of the broker.
        self._starting: asyncio.Task[None] | None = None

    @property
    def sample_interval_ms(self) -> int:
        """Time between two samples of the node's figures (ms)."""
        return max(SAMPLE_INTERVAL_MIN_MS, self._host.config.management.statistics_interval_ms)

    def set_log_level(self, level: str) -> None:
        """Log from `level` on, until the next start or reload."""
        set_log_level(level)

    def rotate_logs(self) -> None:
        """Begin a new log file."""
        rotate_log()

    def set_listening(self, is_on: bool) -> None:
        """Take new clients, or refuse them; those that are connected stay."""
        self._is_listening = is_on
        self._set_clients()

    def set_draining(self, is_on: bool) -> None:
        """Begin maintenance, without clients, or end it."""
        self._is_draining = is_on
        self.set_listening(not is_on)
        if is_on:
            self._close_clients("Node was put into maintenance mode")

    def set_running(self, is_on: bool, done: Callable[[str], None]) -> None:
        """Start the broker, or stop it; then call `done` with "" or why it does not start.

        In a cluster, a node without its broker is none of those that run.
        """
        cluster = self._host.cluster
        if is_on == self._is_running:
            done("")
        elif not is_on:
            self._stop_broker()
            if cluster is None:
                done("")
            else:
                self._starting = self._host.loop.create_task(self._leave(cluster, done))
        elif cluster is None:
            self._starting = self._host.loop.create_task(self._start(done))
        else:
            cluster.resume(lambda _code, text: self._on_resumed(text, done))

    def _on_resumed(self, failure: str, done: Callable[[str], None]) -> None:
        if failure:
            done(failure)
        else:
            self._starting = self._host.loop.create_task(self._start(done))

    async def _leave(self, cluster: ClusterControl, done: Callable[[str], None]) -> None:
        """Let the others know that the node does not run, once its clients are gone."""
        host = self._host
        deadline = host.loop.time() + _CLIENTS_GONE_S
        while host.broker.connections and host.loop.time() < deadline:
            await asyncio.sleep(_PAUSE_S)
        cluster.suspend(lambda _code, text: done(text))

    async def _start(self, done: Callable[[str], None]) -> None:
        # As in RabbitMQ, each start of the broker imports the definitions.
        try:
            await self._host.import_definitions()
        except DefinitionsNotLoaded as error:
            done(str(error))
            return
        self._is_running = True
        if self._is_draining:
            self.set_draining(False)
        self._set_clients()
        done("")

    def _stop_broker(self) -> None:
        self._is_running = False
        self._set_clients()
        self._close_clients("broker forced connection closure with reason 'shutdown'")

    def _close_clients(self, text: str) -> None:
        for connection in list(self._host.broker.connections):
            connection.fail(ConnectionException(CONNECTION_FORCED, text))
            connection.touch()

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._is_running

    def stop(self) -> None:
        """Stop the node."""
        self._host.request_stop("warrenctl stop")

    def first_definitions(self) -> list[Change]:
        """The definitions of an empty node."""
        return first_definitions(self._host.config, self._host.broker.next_vhost_id())

    def open_files(self) -> int:
        """The number of open files of the process, sockets included."""
        # The size of the directory is their number, which older kernels do not tell: they say 0.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))

    def open_sockets(self) -> int:
        """The number of open sockets of clients."""
        return len(self._host.protocols)

    def jobs_of(self, vhost: Vhost) -> list[StoreJob]:
        """The jobs of a vhost's store that run, or wait for a thread."""
        return self._host.jobs_of(vhost)

    def describe(self) -> ControlStatus:
        """The state of the process."""
        host, broker, config = self._host, self._host.broker, self._host.config
        alarms = broker.alarms
        share = alarms.memory_limit_share
        return ControlStatus(
            node=config.node_name,
            version=warrenmq.__version__,
            python=platform.python_version(),
            os=f"{platform.system()} {platform.release()}",
            pid=os.getpid(),
            uptime_ms=round((time.monotonic() - self._started_s) * 1000),
            data_directory=str(config.data_dir.absolute()),
            config_files=[str(path) for path in config.config_files],
            log_files=log_files(),
            is_running=self._is_running,
            is_listening=self._is_running and self._is_listening,
            is_draining=self._is_draining,
            listeners=[ListenerStatus(*listener) for listener in host.listeners],
            alarms=[
                name
                for name, since in (
                    ("memory", alarms.memory_since_ms),
                    ("disk", alarms.disk_since_ms),
                )
                if since != OFF
            ],
            memory_used_bytes=_measured(alarms.memory_used_bytes),
            memory_limit_bytes=alarms.memory_limit_bytes,
            memory_limit_share=share if share >= 0 else None,
            memory={
                "messages": broker.memory_account.ram_bytes,
                "unfinished": broker.memory_account.unfinished_bytes,
            },
            disk_free_bytes=_measured(alarms.disk_free_bytes),
            disk_limit_bytes=alarms.disk_limit_bytes,
            open_files=self.open_files(),
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            sockets=self.open_sockets(),
            vhosts=len(broker.vhosts),
            connections=len(broker.connections),
            queues=sum(
                len(vhost.queues) + len(vhost.remote_queues) for vhost in broker.vhosts.values()
            ),
            environment=_environment(config),
        )

    def certificates(self) -> list[ListenerCertificates]:
        """The certificates of the TLS listeners; those of HTTP as their files are now."""
        own, trusted = self._host.certificates()
        found = [
            ListenerCertificates(*listener, own, trusted)
            for listener in self._host.listeners
            if listener[0] == "amqp/ssl"
        ]
        config = self._host.config
        for protocol, listening in (
            ("https", config.management.api_listeners()),
            ("https/prometheus", config.prometheus.metrics_listeners()),
        ):
            found += [
                ListenerCertificates(protocol, each.host, each.port, *certificate_texts(each.tls))
                for each in listening
                if each.tls is not None
            ]
        return found

    def variables(self) -> dict[str, str]:
        """The environment variables that set something, without secrets."""
        # Imported only here: a node starts without the views of its configuration.
        from warrenmq.server.config.effective import variables_in_force

        return variables_in_force(os.environ)

    def configuration(self) -> asyncio.Task[Configuration]:
        """The keys of the configuration with their values and sources, once those are read."""
        return self._host.loop.create_task(self._read_configuration())

    async def _read_configuration(self) -> Configuration:
        # Imported only here: a node starts without the views of its configuration.
        from warrenmq.server.configuration_report import configuration

        host = self._host
        # A disk that hangs must not delay messages.
        latest = await host.loop.run_in_executor(None, host.sources.read_again)
        return configuration(host.config, host.sources, host.broker.alarms, latest)

    def read_log(self, request: ReadLog) -> LogEntries:
        """The newest entries of the log that the request wants."""
        node, ring = self._host.config.node_name, find_ring()
        if ring is None:
            return LogEntries(node, [], False, 0, 0)
        level = LEVELS[request.level]
        found = ring.find(request.after, request.before, level, request.text, request.limit)
        entries = [_log_entry(each) for each in found.entries]
        return LogEntries(node, entries, found.has_more, found.first, found.last)

    def _set_clients(self) -> None:
        self._host.takes_clients = self._is_running and self._is_listening


def _environment(config: Config) -> dict[str, Any]:
    """The values of all settings by key of the configuration, but for secrets."""
    return {
        key.name: _plain(field_value(config, key.field))
        for key in ALL
        if key.field and not key.is_secret and not key.hides(str(field_value(config, key.field)))
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | frozenset):
        return [_plain(each) for each in value]
    return str(value)


def _log_entry(entry: Entry) -> LogEntry:
    return LogEntry(
        entry.number,
        stamp(entry.created_s),
        logging.getLevelName(entry.level).lower(),
        entry.domain,
        entry.text,
        entry.stack,
    )


def _measured(value: int) -> int | None:
    return None if value < 0 else value
