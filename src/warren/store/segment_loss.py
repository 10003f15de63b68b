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
from warren.store.index_records import end_below, first_seq
from warren.store.jobs import AppendFile, PutAside, ReadRanges
from warren.store.message import INDEXED, Position
from warren.store.queue_index import QueueIndex, Segment
from warren.store.record import FILE_HEADER_BYTES, INDEX_MAGIC, crc_seed

if TYPE_CHECKING:
    from warren.store.index_load import IndexLoad
    from warren.store.queue_store import QueueStore
    from warren.store.vhost_store import VhostStore


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


class _Look(ReadRanges):
    """Where does the segment end, of which some is cut off? Before `upto`, or what a life before a crash has left there."""

    def __init__(self, queue: QueueStore, segment: Segment, path: str, size: i64, upto: i64) -> None:
        super().__init__([(path, 0, size)])
        self.queue: QueueStore = queue
        self.segment: Segment = segment
        self.upto: i64 = upto

    def finished(self) -> None:
        index = self.queue.log.index
        data = self.results[0] if len(self.results) == 1 else None
        if self.error is not None or index is None:
            # Not the file's fault: the append fails once more, and it is looked at again.
            return
        self.segment.left_bytes = 0
        if data is not None:
            seed = crc_seed(self.queue.store.store_id, index.file_number(self.segment.number))
            self.segment.left_bytes = end_below(data, seed, self.upto)


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


def give_up_gone(dirty: list[tuple[QueueStore, Segment]], gone: list[str]) -> None:
    """A checkpoint has found that of the segments `dirty`, which it was to sync, the files `gone` are deleted."""
    for queue, segment in dirty:
        index = queue.log.index
        if index is None or index.find(segment.number) is not segment:
            continue
        path = index.path_of(segment)
        # What is on its way there will notice itself.
        if path in gone and len(queue.store.lane.appends_of(path)) == 0:
            give_up_segment(queue, segment, None)


def replace_gone(store: VhostStore, append: AppendFile, segment: Segment | None) -> None:
    """The file of an append that has failed is deleted, or shorter than it was. Its lane is at rest.

    What is left of a segment stays; without anything left another file takes its place. Of the transient content store,
    or of a segment that nobody needs any more, a file of zeros does: what was in it is missed content by content.
    """
    appends = store.lane.appends_of(append.path)
    begin = appends[0]
    if begin.is_new:
        # Done for another one, or all of it is to be written again anyway.
        return
    queue = store.queue_of(append.path) if segment is not None else None
    index = queue.log.index if queue is not None else None
    if queue is None or index is None or segment is None or index.find(segment.number) is not segment:
        begin.is_new = True
        begin.may_fill = True
    elif append.found_bytes < FILE_HEADER_BYTES or segment.left_bytes == 0:
        segment.left_bytes = -1
        _renew(queue, segment, _first_seq_of(index, segment, appends), [])
    elif segment.left_bytes < 0:
        # They fail once more, and then it is known.
        store.submit(
            _Look(queue, segment, append.path, append.found_bytes, _first_seq_of(index, segment, appends))
        )
    else:
        _move_appends(segment, appends, segment.left_bytes)
        segment.written_bytes = segment.left_bytes
        segment.left_bytes = -1
        _count_anew(queue, index, segment)


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
        _move_appends(segment, appends, prefix_bytes)
        begin = appends[0]
        begin.parts = prefix + begin.parts
        begin.offset = 0
        begin.is_new = True
        begin.size_bytes += prefix_bytes
        store.lane.waiting_bytes += prefix_bytes
    segment.is_new = True
    _count_anew(queue, index, segment)
    on_their_way: i64 = max(0, queue.log.indexed_upto - upto)
    return max(0, segment.live - i64(len(positions)) - on_their_way)


def _move_appends(segment: Segment, appends: list[AppendFile], offset: i64) -> None:
    """What is on its way goes to `offset` in the file."""
    shift = appends[0].offset - offset
    segment.size_bytes = offset
    for append in appends:
        append.offset -= shift
        segment.size_bytes += append.size_bytes


def _count_anew(queue: QueueStore, index: QueueIndex, segment: Segment) -> None:
    """Records are at other places, and some are not there any more."""
    store = queue.store
    segment.rewrites += 1
    segment.is_dirty = True
    index.has_dirty = True
    index.forget_cursor()
    index.version += 1
    segment.is_lost = True
    if not segment.is_damaged:
        segment.is_damaged = True
        store.damaged_segments.append((queue, segment))


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
