"""The calls of one session that look into a store: files, past compactions, a queue's segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.stores import (
    CompactionRun,
    Compactions,
    DescribeCompactions,
    DescribeFiles,
    DescribeSegments,
    QueueSegment,
    QueueSegments,
    StoreFile,
    StoreFiles,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.queue import Queue
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.jobs.job import FindContents, ReadRanges, StoreJob
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.vocabulary.error_codes import NOT_FOUND
from warrenmq.vocabulary.names import name_text

# Files of each kind in a reply.
FILES_MAX: Final = 4096


class StoreLooks:
    """Describes stores; each request is answered once, through `reply`. Opens no file."""

    def __init__(
        self,
        node: ControlHost,
        permits: Permits,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._node = node
        self._permits = permits
        self._clock = clock
        self._reply = reply

    def files(self, request: DescribeFiles) -> None:
        """Carry out `request`. Raises Refusal."""
        vhost = self._permits.expect_vhost(request.vhost)
        store = vhost.store
        use = _FileUse(vhost, self._node.jobs_of(vhost))
        journal, logs = store.journal.files, store.files.logs.retained
        contents = [store.contents.persistent, store.contents.transient]
        counts = [len(journal), len(logs), *(len(each.files) for each in contents)]
        self._reply(
            StoreFiles(
                journal=[
                    use.file(
                        each.log.path,
                        each.number,
                        each.size_bytes,
                        each.live_bytes,
                        is_current=each is journal[-1],
                    )
                    for each in journal[:FILES_MAX]
                ],
                logs=[
                    use.file(
                        each.path,
                        each.number,
                        each.size_bytes,
                        each.size_bytes - each.garbage_bytes,
                        is_copied=each.is_emptied,
                    )
                    for each in islice(logs.values(), FILES_MAX)
                ],
                persistent=_content_files(use, contents[0]),
                transient=_content_files(use, contents[1]),
                left_off=sum([max(0, count - FILES_MAX) for count in counts]),
                is_backed_up=store.backup.is_on,
                pinned=store.checkpoints.pinned_files(),
            )
        )

    def compactions(self, request: DescribeCompactions) -> None:
        """Carry out `request`. Raises Refusal."""
        store = self._permits.expect_vhost(request.vhost).store
        runs = [
            CompactionRun(
                "transient" if each.is_transient else "persistent",
                each.files,
                each.target,
                each.began_ms,
                each.ended_ms,
                each.size_bytes,
                each.freed_bytes,
                each.is_asked,
                each.is_failed,
            )
            for each in store.compaction_log.runs
        ]
        self._reply(Compactions(self._clock.now_ms(), runs))

    def segments(self, request: DescribeSegments) -> None:
        """Carry out `request`. Raises Refusal."""
        vhost = self._permits.expect_vhost(request.vhost)
        queue = vhost.queues.get(request.queue)
        if queue is None:
            raise Refusal(NOT_FOUND, f"no {vhost.queue_text(request.queue)}")
        entries = vhost.store.settings.segment_entries
        self._reply(_segments(queue, entries, request.skip, request.count))


class _FileUse:
    """Who uses the files of a vhost's store: the backup, and the loads among `jobs`."""

    def __init__(self, vhost: Vhost, jobs: Iterable[StoreJob]) -> None:
        self._pinned = vhost.store.backup.needed_paths()
        self._readers: dict[str, set[str]] = {}
        for job in jobs:
            if isinstance(job, ReadRanges):
                self._add(vhost, job.queue_id, {path for path, _, _ in job.ranges})
            elif isinstance(job, FindContents):
                self._add(vhost, job.queue_id, {job.path})

    def _add(self, vhost: Vhost, queue_id: int, paths: set[str]) -> None:
        queue = vhost.queues_by_id.get(queue_id)
        # A part of a priority queue is none by itself.
        name = "a priority queue" if queue is None else name_text(queue.name)
        for path in paths:
            self._readers.setdefault(path, set()).add(name)

    def file(
        self,
        path: str,
        number: int,
        size_bytes: int,
        valid_bytes: int,
        is_current: bool = False,
        is_copied: bool = False,
    ) -> StoreFile:
        return StoreFile(
            number,
            size_bytes,
            valid_bytes,
            is_current,
            is_copied,
            path in self._pinned,
            sorted(self._readers.get(path, ())),
        )


def _content_files(use: _FileUse, contents: ContentStore) -> list[StoreFile]:
    return [
        use.file(
            each.path,
            each.number,
            each.size_bytes,
            each.valid_bytes,
            is_current=not contents.is_closed(each),
            is_copied=each.is_compacting,
        )
        for each in contents.files[:FILES_MAX]
    ]


def _segments(queue: Queue, entries: int, skip: int, count: int) -> QueueSegments:
    total = 0
    unindexed = 0
    found: list[QueueSegment] = []
    for level in queue.backings():
        index = level.ledger.index
        unindexed += level.ready.count + level.unacked.count
        if index is None:
            continue
        unindexed -= sum([segment.live for segment in index.segments])
        first = max(0, skip - total)
        wanted = index.segments[first : first + count - len(found)]
        found += [_segment(queue, level, index, each) for each in wanted]
        total += len(index.segments)
    return QueueSegments(total, entries, found, max(0, unindexed))


def _segment(queue: Queue, level: PagedQueue, index: QueueIndex, segment: Segment) -> QueueSegment:
    end = (segment.number + 1) * index.segment_entries
    return QueueSegment(
        queue.level_of(level.ledger),
        segment.number,
        segment.entries,
        segment.live,
        segment.size_bytes,
        end <= level.ledger.indexed_upto,
        segment.is_rewriting,
    )
