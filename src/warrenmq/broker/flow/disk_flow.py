"""Flow control from the disk back to the sockets that publish.

Messages that are published faster than the disk takes them gather in memory. Four limits apply:

journal     The gathering batch and the batches being written. When a vhost has more than STOP_BYTES
            there, each connection that publishes persistent messages to it is not read, until no
            more than half of STOP_BYTES is left. Publishers of transient messages continue, because
            transient messages do not wait for the journal.
store       Bytes that queues want to move out of memory. When more than STORE_STOP_BYTES wait,
            queues stop paging, so all published messages stay in memory: each connection that
            publishes anything is stopped, until no more than half of STORE_STOP_BYTES is left.
debt        Bytes that the store uses on disk beyond its target and is about to free
            (`store/figures.py`). The growth of the disk use meanwhile counts: when the growth is
            more than DEBT_STOP_BYTES, publishers are stopped as above. The growth is scaled and
            added to the waiting bytes of the store, so either alone can reach the limit, and both
            together as well. Publishers of transient messages are stopped too, because transient
            messages go to disk when memory is short.
paging      Queues must page more than one turn can, and messages take more memory than paging was
            meant to leave them: each connection that publishes anything is stopped, until one of
            these two conditions ends.

Connections that only consume continue. So a slow disk makes batches large and publishers slow, and
a disk that hangs costs a bounded amount of memory: these limits, plus one read of each publisher.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.flow.throttle import ThrottleHost
from warrenmq.store.journal.journal import Journal

STOP_BYTES: Final = 33554432
STORE_STOP_BYTES: Final = 67108864
DEBT_STOP_BYTES: Final = 268435456

# Kinds of messages that a connection has published in a turn.
NOTHING: Final = 0
TRANSIENT: Final = 1
PERSISTENT: Final = 2


class DiskFlow:
    """The connections that wait for the disk, by vhost; a vhost is identified by its journal."""

    def __init__(self) -> None:
        self.stop_bytes: i64 = STOP_BYTES
        self.store_stop_bytes: i64 = STORE_STOP_BYTES
        # Growth in debt, divided by this, counts as waiting bytes.
        self.debt_share: i64 = DEBT_STOP_BYTES // STORE_STOP_BYTES
        # Total number of stops of connections.
        self.stop_count: i64 = 0
        # Stopped connections by journal.
        self._stopped: dict[Journal, list[ThrottleHost]] = {}
        # Bytes that wait to be written by a vhost's store; only vhosts with more than half of
        # `store_stop_bytes` have an entry.
        self._store_bytes: dict[Journal, i64] = {}
        # Journal, number and size (bytes) of the batch that was measured last: sealed batches do
        # not change, so one measurement is enough.
        self._measured: Journal | None = None
        self._measured_number: i64 = 0
        self._measured_bytes: i64 = 0

    def store_waits(
        self, journal: Journal, waiting_bytes: i64, grown_bytes: i64, is_paging_late: bool
    ) -> None:
        """Take a store's bytes that wait to be written and its growth in debt; called once a turn.

        `is_paging_late`: the queues of the vhost cannot page fast enough, which stops publishers
        too.
        """
        waiting_bytes += grown_bytes // self.debt_share
        if is_paging_late:
            waiting_bytes = max(waiting_bytes, self.store_stop_bytes + 1)
        if waiting_bytes > self.store_stop_bytes // 2:
            self._store_bytes[journal] = waiting_bytes
        elif journal in self._store_bytes:
            del self._store_bytes[journal]

    def on_publish(self, connection: ThrottleHost, journal: Journal, what: i64) -> None:
        """Stop `connection`, which has published `what` in this turn, if the disk is behind.

        `what` is TRANSIENT or PERSISTENT.
        """
        if connection.throttle.is_flow_stopped:
            return
        is_journal_full = what == PERSISTENT and self.waiting_bytes(journal) > self.stop_bytes
        if not is_journal_full and self._store_bytes.get(journal, 0) <= self.store_stop_bytes:
            return
        stopped = self._stopped.get(journal)
        if stopped is None:
            self._stopped[journal] = [connection]
        else:
            stopped.append(connection)
        self.stop_count += 1
        connection.throttle.stop_flow(connection)

    def is_full(self, journal: Journal) -> bool:
        """True while publishers of persistent messages to the vhost must wait for the disk."""
        return (
            self.waiting_bytes(journal) > self.stop_bytes
            or self._store_bytes.get(journal, 0) > self.store_stop_bytes
        )

    def release_stopped(self, now_ms: i64) -> None:
        """Resume stopped connections of vhosts whose disk has caught up; called once a turn."""
        if len(self._stopped) == 0:
            return
        for journal in list(self._stopped):
            if (
                journal not in self._store_bytes
                and self.waiting_bytes(journal) <= self.stop_bytes // 2
            ):
                for connection in self._stopped.pop(journal):
                    connection.throttle.start_flow(connection, now_ms)

    def waiting_bytes(self, journal: Journal) -> i64:
        """Bytes of `journal` that are not on disk yet."""
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
