"""Flow control from the disk back to the sockets that publish.

What is published faster than the disk takes it gathers in memory, in several places:

journal     the batch that gathers and those on their way. When a vhost has more than STOP_BYTES there, each connection
            that publishes persistent messages to it is not read any further, until no more than half of it is left.
            Publishers of transient messages go on: those do not wait for the journal.
store       what queues want to move out of memory. When more than STORE_STOP_BYTES wait, queues page no further, so
            whatever is published stays in memory: each connection that publishes anything is stopped, until no
            more than half of it is left.
debt        what the store takes on disk beyond what it should, and is about to give back (`store/figures.py`). What
            the disk grows by meanwhile counts: when this is more than DEBT_STOP_BYTES, publishers are stopped like
            above. It counts as waiting bytes, in proportion, so either is enough, and some of each. Publishers of
            transient messages are no exception: theirs go to disk as well when memory is short.
paging      queues are to page more than they can in a turn, and the messages take more memory than paging was to leave
            them: each connection that publishes anything is stopped, until one of both has changed.

Connections that consume go on. So a slow disk makes batches large and publishers slow, and a disk that hangs costs a
bounded amount of memory: those bounds, and what was read of each publisher at once.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.flow.throttle import ThrottledClient
from warrenmq.store.journal import Journal

STOP_BYTES: Final = 33554432
STORE_STOP_BYTES: Final = 67108864
DEBT_STOP_BYTES: Final = 268435456

# What a connection has published in a turn.
NOTHING: Final = 0
TRANSIENT: Final = 1
PERSISTENT: Final = 2


class DiskFlow:
    """Which connections wait for which vhost's disk; a vhost is known by its journal."""

    def __init__(self) -> None:
        self.stop_bytes: i64 = STOP_BYTES
        self.store_stop_bytes: i64 = STORE_STOP_BYTES
        # Growth in debt counts as waiting bytes, divided by this.
        self.debt_share: i64 = DEBT_STOP_BYTES // STORE_STOP_BYTES
        # How often a connection was stopped.
        self.stop_count: i64 = 0
        self._stopped: dict[Journal, list[ThrottledClient]] = {}
        # Bytes that wait to be written by the stores; those of vhosts where it is little are not in here.
        self._store_bytes: dict[Journal, i64] = {}
        # The last batch that was measured: its journal, number and size.
        self._measured: Journal | None = None
        self._measured_number: i64 = 0
        self._measured_bytes: i64 = 0

    def store_waits(
        self, journal: Journal, waiting_bytes: i64, grown_bytes: i64, is_paging_late: bool
    ) -> None:
        """So much waits for the store of a vhost to be written, and so much has it grown in debt; told once a turn."""
        waiting_bytes += grown_bytes // self.debt_share
        if is_paging_late:
            waiting_bytes = max(waiting_bytes, self.store_stop_bytes + 1)
        if waiting_bytes > self.store_stop_bytes // 2:
            self._store_bytes[journal] = waiting_bytes
        elif journal in self._store_bytes:
            del self._store_bytes[journal]

    def on_publish(self, connection: ThrottledClient, journal: Journal, what: i64) -> None:
        """`connection` has published messages, TRANSIENT or PERSISTENT, in this turn."""
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
        """Does so much wait to be written that nobody should publish persistent messages to the vhost?"""
        return (
            self.waiting_bytes(journal) > self.stop_bytes
            or self._store_bytes.get(journal, 0) > self.store_stop_bytes
        )

    def release_stopped(self, now_ms: i64) -> None:
        """Let go on who may; called once a turn."""
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
