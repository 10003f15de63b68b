"""The broker of one node: its vhosts, users and connections, and the timers that drive them.

This module does no I/O: the shell (`server/node.py`) feeds the connections, asks `take_dirty` which
of them have output, runs group commits for the vhosts' journals and calls `tick` with the time.
Randomness is an argument too, so that a simulation can repeat itself.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.connection.connection import Connection, ConnectionHost
from warrenmq.broker.connection.heartbeat_timers import HeartbeatTimers
from warrenmq.broker.connection.peer_certificate import NO_CERTIFICATE, PeerCertificate
from warrenmq.broker.connection.stuck_sockets import scan_sockets
from warrenmq.broker.counters import MessageCounters
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.event_listener import EventListener
from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.broker.flow.alarms import Alarms
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.memory.monitor import MemoryMonitor
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.upkeep.write_figures import WriteFigures, write_figures_of

logger = logging.getLogger("warrenmq.broker")

_RANDOM_NAME_BYTES: Final = 16


@final
@mypyc_attr(native_class=True)
class _FreeIds:
    """The next ids of queues and vhosts, and the number of the last connection."""

    def __init__(self) -> None:
        self.queue: i64 = 1
        self.vhost: i64 = 1
        self.connection: i64 = 0


class Broker(ConnectionHost):
    """A node without its I/O.

    The broker calls `wake` when it has something to write or to commit; the call may come outside
    any event that the shell knows of.
    """

    def __init__(
        self, settings: Settings, random_bytes: Callable[[int], bytes], wake: Callable[[], None]
    ) -> None:
        # In the order of their arrival.
        self.connections: dict[Connection, None] = {}
        alarms = Alarms(
            settings.total_memory_bytes,
            settings.max_unfinished_size or 2 * settings.max_message_size,
            self.connections,
            wake,
        )
        super().__init__(settings, alarms, wake)
        self.memory_monitor: MemoryMonitor = MemoryMonitor(
            self.memory_account,
            settings.vm_memory_high_watermark_paging_ratio,
            settings.memory_monitor_interval_ms,
        )
        # The values (JSON) of all parameters, by vhost, component and name; global ones have an
        # empty vhost and component.
        self.parameters: dict[tuple[bytes, str, str], str] = {}
        self._random_bytes: Callable[[int], bytes] = random_bytes
        self._heartbeats: HeartbeatTimers = HeartbeatTimers()
        self._ids: _FreeIds = _FreeIds()

    # -- definitions -------------------------------------------------------------------------------

    def load_users(self, definitions: Definitions) -> None:
        """Load users, permissions, parameters and the next free ids from the definitions."""
        self.access.load(definitions)
        for parameter in definitions.parameters:
            key = (parameter.vhost, parameter.component, parameter.name)
            self.parameters[key] = parameter.value
        self._ids.queue = definitions.next_queue_id
        self._ids.vhost = definitions.next_vhost_id

    def cluster_name(self) -> str:
        """The name that the global parameter `cluster_name` gives, or else the configuration."""
        value = self.parameters.get((b"", "", "cluster_name"))
        # Any JSON value may be set.
        named = None if value is None else json.loads(value)
        return named if isinstance(named, str) else self.settings.cluster_name

    def next_vhost_id(self) -> i64:
        """An id that no vhost of this node ever had."""
        vhost_id = self._ids.vhost
        self._ids.vhost = vhost_id + 1
        return vhost_id

    def remove_vhost(self, vhost: Vhost) -> None:
        """Forget a vhost that is deleted."""
        del self.vhosts[vhost.name]
        churn = self.counters.churn
        churn.deleted_read_messages += vhost.host.read_messages
        churn.deleted_written_messages += vhost.journal.written_messages
        self.counters.deleted_writes.add(write_figures_of(vhost.journal, vhost.store.files))

    def next_queue_id(self) -> i64:
        queue_id = self._ids.queue
        self._ids.queue = queue_id + 1
        return queue_id

    def reserve_queue_ids(self, upto: i64) -> None:
        """Give no queue an id up to `upto`: a journal uses them, whatever the metadata says."""
        self._ids.queue = max(self._ids.queue, upto + 1)

    def random_bytes(self, size: int) -> bytes:
        return self._random_bytes(size)

    def random_name(self) -> bytes:
        return base64.urlsafe_b64encode(self._random_bytes(_RANDOM_NAME_BYTES)).rstrip(b"=")

    def set_events(self, listener: EventListener | None) -> None:
        """Tell `listener` of all events from now on, or nobody."""
        self.events = listener
        self.alarms.events = listener

    # -- connections -------------------------------------------------------------------------------

    def connect(
        self,
        peer: str,
        is_loopback: bool,
        now_ms: i64,
        certificate: PeerCertificate = NO_CERTIFICATE,
        tls: str = "",
        cipher: str = "",
        local: str = "",
    ) -> Connection:
        """Create the connection of a client that has sent the protocol header.

        See the attributes of `Connection` for the last four.
        """
        connection = Connection(self, peer, is_loopback, now_ms, certificate, tls, cipher, local)
        self.connections[connection] = None
        connection.touch()
        return connection

    def next_connection_number(self) -> i64:
        self._ids.connection += 1
        return self._ids.connection

    def start_heartbeats(self, connection: Connection, interval_ms: i64) -> None:
        self._heartbeats.start(connection, interval_ms)

    def disconnect(self, connection: Connection, now_ms: i64) -> None:
        """Remove `connection`, whose socket is gone."""
        connection.lost(now_ms)
        if connection in self.connections:
            del self.connections[connection]
            churn = self.counters.churn
            churn.closed_received_bytes += connection.traffic.received_bytes
            churn.closed_sent_bytes += connection.out.sent_bytes
            if connection.vhost is not None:
                churn.connections_closed += 1

    def message_counters(self) -> MessageCounters:
        """What all channels, open and closed, have done with messages."""
        total = MessageCounters()
        total.add(self.counters.closed_channels)
        for connection in self.connections:
            for channel in connection.channels.values():
                if not channel.is_closed:
                    total.add(channel.counters)
        return total

    def disk_messages(self) -> tuple[i64, i64]:
        """How many messages all queues, deleted ones too, have read from disk and written."""
        churn = self.counters.churn
        read = churn.deleted_read_messages
        written = churn.deleted_written_messages
        for vhost in self.vhosts.values():
            read += vhost.host.read_messages
            written += vhost.journal.written_messages
        return read, written

    @property
    def paging_limit_bytes(self) -> i64:
        """Used memory from which on messages leave it."""
        return int(float(self.alarms.memory_limit_bytes) * self.memory_monitor.paging_ratio)

    def write_figures(self) -> WriteFigures:
        """What all stores, those of deleted vhosts too, have written."""
        total = WriteFigures()
        total.add(self.counters.deleted_writes)
        for vhost in self.vhosts.values():
            total.add(write_figures_of(vhost.journal, vhost.store.files))
        return total

    def take_dirty(self) -> list[Connection]:
        """Return the connections that have something to write or to change, and clear the list."""
        dirty = self.dirty_connections
        self.dirty_connections = []
        return dirty

    def end_turn(self, now_ms: i64) -> None:
        """Resume stopped publishers, page queues, send to nodes; call it once a turn.

        It comes before `take_dirty`: what goes to other nodes leaves before what goes to clients.

        Publishers resume that an alarm, the disk or the work of their publishes had stopped. Queues
        page when they use too much memory.
        """
        self.alarms.release_some(now_ms)
        self.disk_flow.release_stopped(now_ms)
        self.publish_turns.end_turn(now_ms)
        self.memory_monitor.end_turn(now_ms)
        self.remote_nodes.end_turn(now_ms)

    # -- limits ------------------------------------------------------------------------------------

    def set_limits(self, now_ms: i64) -> None:
        """Set the memory and disk limits from the settings; called at the start."""
        settings = self.settings
        self.set_vm_memory_high_watermark(
            settings.vm_memory_high_watermark_absolute,
            settings.vm_memory_high_watermark_relative,
            now_ms,
        )
        self.set_disk_free_limit(
            settings.disk_free_limit_absolute, settings.disk_free_limit_relative, now_ms
        )

    def set_vm_memory_high_watermark(
        self, absolute_bytes: i64, relative: float, now_ms: i64
    ) -> None:
        """Set the memory limit in bytes, or to a share of all memory if `absolute_bytes` < 0."""
        self.alarms.set_memory_limit(absolute_bytes, relative, now_ms)
        self.memory_monitor.set_limit(self.alarms.memory_limit_bytes)

    def set_disk_free_limit(self, absolute_bytes: i64, relative: float, now_ms: i64) -> None:
        """Set the disk limit in bytes, or to a multiple of all memory if `absolute_bytes` < 0."""
        self.alarms.set_disk_limit(absolute_bytes, relative, now_ms)
        self.memory_monitor.set_disk_low(self.alarms.disk_since_ms != OFF, now_ms)

    def memory_used(self, used_bytes: i64, now_ms: i64) -> None:
        """Take a new measurement of the node's memory (bytes)."""
        self.alarms.memory_used(used_bytes, now_ms)
        self.memory_monitor.set_resident(used_bytes)

    def disk_free(self, free_bytes: i64, now_ms: i64) -> None:
        """Take a new measurement of the free disk space for the data directory (bytes)."""
        self.alarms.disk_free(free_bytes, now_ms)
        self.memory_monitor.set_disk_low(self.alarms.disk_since_ms != OFF, now_ms)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now_ms: i64) -> None:
        """Expire messages at queue heads and unused queues (protocol 7.2); run the memory monitor.

        Called about every 50 ms.
        """
        self._heartbeats.tick(now_ms)
        for queue in list(self.timed_queues):
            if queue.has_expiring:
                queue.drop_expired_head(now_ms)
            expires_ms = queue.settings.expires_ms
            if expires_ms == NO_LIMIT:
                if queue.settings.message_ttl_ms == NO_LIMIT and not queue.has_expiring:
                    del self.timed_queues[queue]
            elif len(queue.consumers) == 0 and now_ms - queue.last_used_ms >= expires_ms:
                self._vhost_of(queue).delete_queue(queue, now_ms)
        for vhost in self.vhosts.values():
            vhost.delayed.tick(now_ms)
        self.remote_nodes.tick(now_ms)
        self.memory_monitor.tick(now_ms)

    def tick_connections(self, now_ms: i64) -> list[Connection]:
        """Check unfinished messages, waiting logins, paused clients and stuck sockets.

        Called about twice a second. Returns the connections that the shell must look at, too: a
        call of each shell would cost more than all else that an idle connection does.
        """
        self.alarms.shed(now_ms)
        connections = list(self.connections)
        for connection in connections:
            connection.tick(now_ms)
        for text in self.access.guard.summaries(now_ms):
            logger.warning("%s", text)
        scan_sockets(connections, self.memory_account.transit, now_ms)
        return [connection for connection in connections if connection.needs_look()]

    def _vhost_of(self, queue: Queue) -> Vhost:
        for vhost in self.vhosts.values():
            if vhost.queues.get(queue.name) is queue:
                return vhost
        raise KeyError(queue.name)

    # -- logs --------------------------------------------------------------------------------------

    def log_crash(self, peer: str, error: Exception) -> None:
        logger.error("%s: internal error", peer, exc_info=error)

    def log_refused(self, peer: str, text: str) -> None:
        """Log a failed login."""
        logger.warning("%s: %s", peer, text)
