"""The figures of the node as a whole, the only object of its kind."""

from __future__ import annotations

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.admin.changes.walk import Walk
from warrenmq.admin.changes.walks import is_open, uncommitted_count, write_message_counters
from warrenmq.broker.broker import Broker


class NodeWalk(Walk):
    """Passes the node once.

    `open_files` and `open_sockets` are those of its process. Looks at all connections and channels,
    some 0.1 us each.
    """

    def __init__(self, broker: Broker, open_files: i64, open_sockets: i64) -> None:
        super().__init__()
        self._broker: Broker = broker
        self._open_files: i64 = open_files
        self._open_sockets: i64 = open_sockets
        self._is_passed: bool = False

    def next(self) -> bool:
        is_next = not self._is_passed
        self._is_passed = True
        return is_next

    def vhost_name(self) -> bytes:
        return b""

    def name(self) -> str:
        return self._broker.settings.node_name

    def write_figures(self, out: BytesWriter) -> None:
        broker = self._broker
        churn = broker.counters.churn
        uncommitted: i64 = 0
        channels: i64 = 0
        connections: i64 = 0
        received = churn.closed_received_bytes
        sent = churn.closed_sent_bytes
        for connection in broker.connections:
            received += connection.traffic.received_bytes
            sent += connection.out.sent_bytes
            if is_open(connection):
                connections += 1
            for channel in connection.channels.values():
                if not channel.is_closed:
                    channels += 1
                    uncommitted += uncommitted_count(channel)
        write_message_counters(out, broker.message_counters(), uncommitted)
        write_i64_be(out, churn.connections_opened)
        write_i64_be(out, churn.connections_closed)
        write_i64_be(out, churn.channels_opened)
        write_i64_be(out, churn.channels_closed)
        write_i64_be(out, churn.queues_declared)
        write_i64_be(out, churn.queues_created)
        write_i64_be(out, churn.queues_deleted)
        write_i64_be(out, received)
        write_i64_be(out, sent)
        read, written = broker.disk_messages()
        write_i64_be(out, read)
        write_i64_be(out, written)
        self._write_disk(out)
        alarms = broker.alarms
        write_i64_be(out, max(0, alarms.memory_used_bytes))
        write_i64_be(out, max(0, alarms.disk_free_bytes))
        write_i64_be(out, self._open_files)
        write_i64_be(out, self._open_sockets)
        write_i64_be(out, connections)
        write_i64_be(out, channels)
        write_i64_be(out, alarms.memory_limit_bytes)
        write_i64_be(out, broker.paging_limit_bytes)
        write_i64_be(out, broker.memory_account.ram_bytes)

    def _write_disk(self, out: BytesWriter) -> None:
        """Write the syncs of the journals by their durations, and the bytes by their kinds."""
        measured = self._broker.latencies
        for count in measured.syncs.counts:
            write_i64_be(out, count)
        write_i64_be(out, measured.batch_bytes.total)
        writes = self._broker.write_figures()
        write_i64_be(out, writes.published_bytes)
        write_i64_be(out, writes.journal_bytes)
        write_i64_be(out, writes.content_bytes)
        write_i64_be(out, writes.index_bytes)
        write_i64_be(out, writes.rewritten_bytes)
        write_i64_be(out, writes.compacted_bytes)
        write_i64_be(out, writes.checkpoint_bytes)
