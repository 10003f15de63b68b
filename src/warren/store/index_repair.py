"""What the store does about damage in a queue's index, and about messages that cannot be had any more.

One damaged record costs its own message only: it is stepped over, a copy of its bytes goes to lost+found, it is counted
and reported, and the segment is read once as a whole to know how much in it is alive, so that it is still deleted when
the rest is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from warren.store.index_records import IndexScan, end_below
from warren.store.jobs import KeepDamage, ReadRanges
from warren.store.message import INDEXED, Position, QueueLog
from warren.store.queue_index import Segment
from warren.store.record import FILE_HEADER_BYTES, crc_seed
from warren.store.runs import add_run, contains

if TYPE_CHECKING:
    from warren.store.queue_store import QueueStore
    from warren.store.vhost_store import VhostStore


class _Recount(ReadRanges):
    def __init__(self, queue: QueueStore, segment: Segment, path: str) -> None:
        super().__init__([(path, 0, segment.written_bytes)])
        self.queue: QueueStore = queue
        self.segment: Segment = segment

    def finished(self) -> None:
        _recount(self)


class _Keep(KeepDamage):
    def finished(self) -> None:
        """Keeping a copy is all that could be done."""


def report_damage(queue: QueueStore, segment: Segment, offset: i64, data: bytes) -> None:
    """A stretch of a segment is no record: kept in lost+found, reported, and the segment counted anew."""
    store = queue.store
    index = queue.log.index
    if index is None:
        return
    store.damaged_count += 1
    path = index.path_of(segment)
    name = path.replace("/", "-")
    store.submit(_Keep(f"{name}.{offset}-{offset + len(data)}.damaged", data))
    if store.owner is not None:
        store.owner.on_damage(queue.log.queue_id, path, offset, len(data))
    if not segment.is_damaged:
        segment.is_damaged = True
        store.damaged_segments.append((queue, segment))
        recount_segments(store)


def recount_segments(store: VhostStore) -> None:
    """Read damaged segments, those of which all is written; the others wait until more is."""
    waiting: list[tuple[QueueStore, Segment]] = []
    for queue, segment in store.damaged_segments:
        index = queue.log.index
        if index is None:
            continue
        if segment.is_rewriting or segment.written_bytes < segment.size_bytes:
            waiting.append((queue, segment))
        else:
            store.submit(_Recount(queue, segment, index.path_of(segment)))
    store.damaged_segments = waiting


def _recount(job: _Recount) -> None:
    """All that is left of a damaged segment was read: what is alive in it is what is there and not settled."""
    store = job.queue.store
    segment = job.segment
    index = job.queue.log.index
    data = job.results[0] if len(job.results) == 1 else None
    if segment.is_rewriting or segment.size_bytes != job.ranges[0][2]:
        # There is more in it by now, or less.
        store.damaged_segments.append((job.queue, segment))
        recount_segments(store)
        return
    if job.error is not None:
        # Not the file's fault: no descriptor, no memory. The next look at loads has it tried again.
        store.damaged_segments.append((job.queue, segment))
        return
    segment.is_damaged = False
    cause = "their segments cannot be read" if segment.is_lost else "their records are damaged"
    segment.is_lost = False
    if index is None or data is None:
        return
    start: i64 = segment.number * index.segment_entries
    end = min(start + index.segment_entries, job.queue.log.indexed_upto)
    seed = crc_seed(store.store_id, index.file_number(segment.number))
    if i64(len(data)) < segment.written_bytes:
        # Cut off. What may be there of a life before a crash, behind what this one knows of, does not count.
        segment.size_bytes = end_below(data, seed, end)
        segment.written_bytes = segment.size_bytes
        segment.is_dirty = True
        index.has_dirty = True
    scan = IndexScan(job.queue.log, seed, FILE_HEADER_BYTES, start, end)
    # What was settled since the seal leaves the accounts with the next one.
    scan.count_unsealed()
    scan.feed(data[FILE_HEADER_BYTES:], True, index.segment_entries, 1 << 62)
    transient: i64 = 0
    for position in scan.found:
        if not position.persistent or (position.content is not None and position.content.transient):
            transient += 1
    live = segment.live
    segment.live_transient = transient
    segment.live_persistent = len(scan.found) - transient
    _settle_missing(job.queue.log, start, start + index.segment_entries, scan.found)
    if store.owner is not None and live > segment.live:
        store.lost_count += live - segment.live
        last = start + index.segment_entries - 1
        store.owner.on_lost(job.queue.log.queue_id, live - segment.live, start, last, cause)
    index.version += 1
    index.drop_dead_segments(job.queue.log.indexed_upto)
    store.take_dead_segments(index)


def _settle_missing(log: QueueLog, first: i64, end: i64, found: list[Position]) -> None:
    """What is in the index in [first, end) and is none of `found` does not count, also when its message, which was loaded
    before, is settled later on."""
    index = log.index
    if index is None:
        return
    end = min(end, log.indexed_upto)
    for position in found:
        if position.seq > first:
            add_run(index.settled, first, position.seq - 1)
            add_run(index.settled_transient, first, position.seq - 1)
        first = position.seq + 1
    if end > first:
        add_run(index.settled, first, end - 1)
        add_run(index.settled_transient, first, end - 1)


def lose_position(queue: QueueStore, position: Position) -> None:
    """The content of a position cannot be had any more."""
    store = queue.store
    index = queue.log.index
    if (
        index is not None
        and position.journal_state == INDEXED
        and contains(index.settled_transient if not position.persistent else index.settled, position.seq)
    ):
        # It was counted with its segment.
        queue.settle(position, store.now_ms)
        return
    store.lost_count += 1
    if store.owner is not None:
        seq = position.seq
        store.owner.on_lost(queue.log.queue_id, 1, seq, seq, "their contents cannot be read")
    queue.settle(position, store.now_ms)
