"""Repairs after damage in a queue's index, and the account of messages that are lost.

One damaged record costs its own message only: a copy of its bytes goes to lost+found, the damage is
reported, and the segment is read once as a whole to count its live entries, so that it is still
deleted when the rest is settled. Only this count says how many messages are lost, whatever has
found the damage: a load, an append, a rewrite or a repair. Loads of the segment wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.store.index.checkpoint_needs import CheckpointNeeds
from warrenmq.store.index.losses import Losses
from warrenmq.store.index.waiting_loads import READ_TRIES, Loads
from warrenmq.store.jobs.job import KeepDamage, ReadRanges
from warrenmq.store.jobs.job_queue import JobQueue
from warrenmq.store.model.message import INDEXED, Position, QueueLedger
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.model.runs import Runs, add_run, contains, remove_run, subtract
from warrenmq.store.records.index import IndexScan, end_below
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed

# Damage that comes back after so many repairs of one segment is not repaired any more.
REPAIRS_MAX: Final = 3
# Pause after a failed read, or a repair that failed without a fault of the segment.
_RETRY_MS: Final = 250


class _Recount(ReadRanges):
    def __init__(
        self, damaged: DamagedSegments, ledger: QueueLedger, segment: Segment, path: str
    ) -> None:
        super().__init__([(path, 0, segment.written_bytes)], ledger.queue_id)
        self.damaged: DamagedSegments = damaged
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment

    def finished(self) -> None:
        self.damaged.on_read(self)


class _Keep(KeepDamage):
    def finished(self) -> None:
        """Nothing follows: a copy of the damage is all that can be saved."""


class DamagedSegments:
    """The segments of one vhost whose live entries are to be counted anew."""

    def __init__(
        self,
        store_id: bytes,
        jobs: JobQueue,
        needs: CheckpointNeeds,
        losses: Losses,
        loads: Loads,
    ) -> None:
        self._store_id: bytes = store_id
        self._jobs: JobQueue = jobs
        self._needs: CheckpointNeeds = needs
        self._losses: Losses = losses
        self._loads: Loads = loads
        # Writes the file of a segment again, with the lost entries that can be found.
        self.repair: Callable[[QueueLedger, Segment], None] | None = None
        self._waiting: list[tuple[QueueLedger, Segment]] = []
        # No segment is read before this time (ms).
        self._paused_until_ms: i64 = 0

    def pause(self) -> None:
        """Let the segments wait for a while, since the last read or repair has failed."""
        self._paused_until_ms = self._jobs.now_ms + _RETRY_MS

    def is_retrying(self) -> bool:
        """True while segments wait for the end of a pause, or for the retry after it."""
        return self._paused_until_ms > 0

    def add(self, ledger: QueueLedger, segment: Segment) -> None:
        """Add a segment, unless it waits already; `recount` has it read."""
        if not segment.is_damaged:
            segment.is_damaged = True
            self._waiting.append((ledger, segment))

    def report(self, ledger: QueueLedger, segment: Segment, offset: i64, data: bytes) -> None:
        """Keep a stretch that is no record in lost+found, report it, and count the segment anew."""
        index = ledger.index
        if index is None:
            return
        path = index.path_of(segment)
        name = path.replace("/", "-")
        self._jobs.submit(_Keep(f"{name}.{offset}-{offset + len(data)}.damaged", data))
        self._losses.add_damage(ledger.queue_id, path, offset, len(data))
        if not segment.is_damaged:
            self.add(ledger, segment)
            self.recount()

    def recount(self) -> None:
        """Read the damaged segments that are completely written; the others wait until they are."""
        if self._jobs.now_ms < self._paused_until_ms:
            return
        self._paused_until_ms = 0
        found = self._waiting
        self._waiting = []
        for ledger, segment in found:
            index = ledger.index
            if index is None:
                continue
            if segment.is_rewriting or segment.written_bytes < segment.size_bytes:
                self._waiting.append((ledger, segment))
            else:
                self._jobs.submit(_Recount(self, ledger, segment, index.path_of(segment)))

    def on_read(self, job: _Recount) -> None:
        """Count the live entries of a damaged segment that was read: valid, unsettled records."""
        ledger = job.ledger
        segment = job.segment
        index = ledger.index
        data = job.results[0] if len(job.results) == 1 else None
        if segment.is_rewriting or segment.size_bytes != job.ranges[0][2]:
            # An append or a rewrite has changed the size of the segment since the read began.
            self._waiting.append((ledger, segment))
            self.recount()
            return
        if job.error is not None:
            # The read lacked a descriptor or memory: retry, as the file may be whole.
            self._waiting.append((ledger, segment))
            self.pause()
            return
        if data is None and not job.is_missing and segment.failed_reads < READ_TRIES:
            # Loads try as often. Until the segment is counted, damage in it may be repaired yet.
            segment.failed_reads += 1
            self._waiting.append((ledger, segment))
            self.pause()
            return
        cause = "their segments cannot be read" if segment.is_lost else "their records are damaged"
        if index is None or data is None:
            segment.is_damaged = False
            segment.is_lost = False
            segment.failed_reads = 0
            self._loads.resume_waiting()
            return
        start: i64 = segment.number * index.segment_entries
        end = min(start + index.segment_entries, ledger.indexed_upto)
        seed = crc_seed(self._store_id, index.file_number(segment.number))
        if i64(len(data)) < segment.written_bytes:
            # The file is cut off. Records from `indexed_upto` on may be left from a run before a
            # crash: they do not count.
            segment.size_bytes = end_below(data, seed, end)
            segment.written_bytes = segment.size_bytes
            segment.is_dirty = True
            index.has_dirty = True
        scan = IndexScan(ledger, seed, FILE_HEADER_BYTES, start, end)
        # Positions settled since the last seal leave the counts at the next one, so they count as
        # live here.
        scan.count_unsealed()
        scan.feed(data[FILE_HEADER_BYTES:], True, index.segment_entries, 1 << 62)
        repair = self.repair
        if (
            repair is not None
            and segment.repairs < REPAIRS_MAX
            and _are_entries_missing(index, start, end, scan.found)
        ):
            segment.repairs += 1
            self._waiting.append((ledger, segment))
            repair(ledger, segment)
            return
        self._take_counts(ledger, index, segment, scan.found, cause)
        self._loads.resume_waiting()

    def _take_counts(
        self,
        ledger: QueueLedger,
        index: QueueIndex,
        segment: Segment,
        found: list[Position],
        cause: str,
    ) -> None:
        """Take `found` for all live entries of a segment; the others are lost for `cause`."""
        first: i64 = segment.number * index.segment_entries
        last = first + index.segment_entries - 1
        segment.is_damaged = False
        segment.is_lost = False
        segment.failed_reads = 0
        # Entries still missing are lost. Later damage to other entries may be repaired again.
        segment.repairs = 0
        transient: i64 = 0
        for position in found:
            if not position.persistent or (
                position.content_ref is not None and position.content_ref.transient
            ):
                transient += 1
        live = segment.live
        segment.live_transient = transient
        segment.live_persistent = len(found) - transient
        _settle_missing(ledger, first, last + 1, found)
        if live > segment.live:
            self._losses.add_messages(ledger.queue_id, live - segment.live, first, last, cause)
            index.lost_count += live - segment.live
        index.stretches.recount(index.settled)
        index.version += 1
        index.drop_dead_segments(ledger.indexed_upto)
        self._needs.take_dead_segments(index)


def _are_entries_missing(index: QueueIndex, first: i64, end: i64, found: list[Position]) -> bool:
    """Whether positions of [first, end) that the stretches count are not in `found`."""
    missing: Runs = []
    for _, part_first, part_last in index.stretches.parts_of(first, end - 1):
        missing.extend(subtract(part_first, part_last, index.settled))
    for position in found:
        remove_run(missing, position.seq, position.seq)
    return len(missing) > 0


def _settle_missing(ledger: QueueLedger, first: i64, end: i64, found: list[Position]) -> None:
    """Settle all of [first, end) in the index except `found`: the other positions are lost.

    The runs keep a lost position from being counted again when its message, which was loaded
    before, is settled later.
    """
    index = ledger.index
    if index is None:
        return
    end = min(end, ledger.indexed_upto)
    for position in found:
        if position.seq > first:
            add_run(index.settled, first, position.seq - 1)
            add_run(index.settled_transient, first, position.seq - 1)
        first = position.seq + 1
    if end > first:
        add_run(index.settled, first, end - 1)
        add_run(index.settled_transient, first, end - 1)


def is_counted_as_lost(position: Position) -> bool:
    """True when `position` was already counted as lost, together with its segment."""
    index = position.ledger.index
    return (
        index is not None
        and position.journal_state == INDEXED
        and contains(
            index.settled_transient if not position.persistent else index.settled, position.seq
        )
    )
