"""Segments whose file is gone or cannot be read at all: another file takes its place, with what is left to write there.

A file that is there is moved to lost+found first: an operator may still get something out of it. What goes into the new
one are the positions that the queue has in memory, but for those whose content was in the file only, and what was on its
way into the old one. Then the segment is counted anew like a damaged one (`index_repair.py`): what is not in the new
file is lost, counted and reported. A start that finds a checkpoint from before sees a segment that is shorter than it
should be, or one that is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from warren.store.content_records import write_publish_ref
from warren.store.index_records import first_seq
from warren.store.jobs import AppendFile, PutAside
from warren.store.message import INDEXED, Position
from warren.store.queue_index import QueueIndex, Segment
from warren.store.record import INDEX_MAGIC

if TYPE_CHECKING:
    from warren.store.index_load import IndexLoad
    from warren.store.queue_store import QueueStore


class _PutAside(PutAside):
    def __init__(self, queue: QueueStore, segment: Segment, path: str) -> None:
        super().__init__(path)
        self.queue: QueueStore = queue
        self.segment: Segment = segment
        self.load: IndexLoad | None = None
        # What was on its way into the file before, and its first seq id.
        self.kept: list[bytes] = []
        self.upto: i64 = 0

    def finished(self) -> None:
        _on_put_aside(self)


def give_up_segment(queue: QueueStore, segment: Segment, load: IndexLoad | None) -> None:
    """The file of a segment cannot be read, or is gone. Loads go on when another one is in its place; when that does not
    succeed they try to read it once more. `load` is told how many are lost."""
    store = queue.store
    index = queue.log.index
    assert index is not None
    if segment.is_rewriting:
        return
    segment.is_rewriting = True
    path = index.path_of(segment)
    job = _PutAside(queue, segment, path)
    job.load = load
    appends = store.lane.appends_of(path)
    job.upto = _first_seq_of(index, segment, appends)
    for append in appends:
        job.kept.extend(append.parts)
    store.lane.push(job)


def _on_put_aside(job: _PutAside) -> None:
    store = job.queue.store
    store.lane.on_other()
    job.segment.is_rewriting = False
    if job.error is None:
        lost = _renew(job.queue, job.segment, job.upto, job.kept)
        if job.load is not None:
            job.load.damaged_count += lost
    store.resume_loads()


def _renew(queue: QueueStore, segment: Segment, upto: i64, kept: list[bytes]) -> i64:
    """Begin the file of a segment anew: what is in memory below seq id `upto`, then `kept`, then what is to be appended.
    Returns how many messages are lost that were on disk only, or a few more."""
    store = queue.store
    index = queue.log.index
    if index is None or index.find(segment.number) is not segment:
        # It died meanwhile, or its queue.
        return 0
    path = index.path_of(segment)
    first: i64 = segment.number * index.segment_entries
    positions: list[Position] = []
    if store.owner is not None:
        positions = store.owner.indexed_in_memory(queue.log.queue_id, first, upto)
    prefix = _encode(queue, index, segment, positions)
    prefix.extend(kept)
    prefix_bytes: i64 = 0
    for part in prefix:
        prefix_bytes += len(part)
    appends = store.lane.appends_of(path)
    segment.size_bytes = 0
    segment.written_bytes = 0
    if len(appends) == 0:
        store.append_index(path, segment, prefix, True)
        segment.size_bytes = prefix_bytes
    else:
        shift = appends[0].offset - prefix_bytes
        for append in appends:
            append.offset -= shift
            segment.size_bytes += append.size_bytes
        begin = appends[0]
        begin.parts = prefix + begin.parts
        begin.offset = 0
        begin.is_new = True
        begin.size_bytes += prefix_bytes
        segment.size_bytes += prefix_bytes
        store.lane.waiting_bytes += prefix_bytes
    segment.rewrites += 1
    segment.is_new = True
    segment.is_dirty = True
    index.has_dirty = True
    index.forget_cursor()
    index.version += 1
    segment.is_lost = True
    if not segment.is_damaged:
        segment.is_damaged = True
        store.damaged_segments.append((queue, segment))
    on_their_way: i64 = max(0, queue.log.indexed_upto - upto)
    return max(0, segment.live - i64(len(positions)) - on_their_way)


def _encode(queue: QueueStore, index: QueueIndex, segment: Segment, positions: list[Position]) -> list[bytes]:
    """The beginning of a segment, with those of `positions` whose content is somewhere else."""
    writer = queue.store.index_writer
    writer.start_file(INDEX_MAGIC, index.file_number(segment.number))
    for position in positions:
        place = writer.size_bytes
        content = position.content
        if content is not None:
            write_publish_ref(writer, content, position.message, [position], 0, 1)
        elif position.has_content:
            writer.publish(position.message, [position], 0, 1)
        else:
            continue
        position.place = place
        position.journal_state = INDEXED
    return writer.take()


def _first_seq_of(index: QueueIndex, segment: Segment, appends: list[AppendFile]) -> i64:
    """Seq id of the first position that is on its way into a segment, or the segment's end."""
    if len(appends) > 0:
        return first_seq(b"".join(appends[0].parts))
    return (segment.number + 1) * index.segment_entries
