"""Flow control from the disk back to the sockets that publish.

What is published faster than the disk takes it gathers in the journal's batch, in memory. When a vhost has more than
STOP_BYTES gathered or on its way to the disk, each connection that publishes persistent messages to it is not read
any further, until no more than START_BYTES wait. Connections that consume go on, and so do publishers of transient
messages: those do not wait for the disk.

So a slow disk makes batches large and publishers slow, and a disk that hangs costs a bounded amount of memory:
STOP_BYTES and what was read of each publisher at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from warren.store.journal import Journal

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.vhost import Vhost

STOP_BYTES: Final = 33554432
START_BYTES: Final = 16777216


class DiskFlow:
    """Which connections wait for which vhost's disk."""

    def __init__(self) -> None:
        # How often a connection was stopped.
        self.stop_count: i64 = 0
        self._stopped: dict[Vhost, list[Connection]] = {}
        # The last batch that was measured: its journal, number and size.
        self._measured: Journal | None = None
        self._measured_number: i64 = 0
        self._measured_bytes: i64 = 0

    def published(self, connection: Connection, vhost: Vhost) -> None:
        """`connection` has published persistent messages in this turn."""
        if connection.throttle.is_flow_stopped or self.waiting_bytes(vhost) <= STOP_BYTES:
            return
        stopped = self._stopped.get(vhost)
        if stopped is None:
            self._stopped[vhost] = [connection]
        else:
            stopped.append(connection)
        self.stop_count += 1
        connection.throttle.stop_flow(connection)

    def look(self, now_ms: i64) -> None:
        """Let go on who may; called once a turn."""
        if len(self._stopped) == 0:
            return
        for vhost in list(self._stopped):
            if self.waiting_bytes(vhost) <= START_BYTES:
                for connection in self._stopped.pop(vhost):
                    connection.throttle.start_flow(connection, now_ms)

    def waiting_bytes(self, vhost: Vhost) -> i64:
        """Bytes of the vhost's journal that are not on disk yet."""
        journal = vhost.journal
        waiting: i64 = journal.pending_bytes
        for batch in journal.in_flight:
            if self._measured is not journal or self._measured_number != batch.number:
                size: i64 = 0
                for part in batch.parts:
                    size += len(part)
                for write in batch.content_writes:
                    size += write.size_bytes
                self._measured = journal
                self._measured_number = batch.number
                self._measured_bytes = size
            waiting += self._measured_bytes
        return waiting
