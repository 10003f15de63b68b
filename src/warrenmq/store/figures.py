"""The figures of a vhost's store: for operators, and for flow control that waits for its debt.

All figures come from accounts in memory; no file is read. Counting takes time in proportion to the
number of queues and segments, so callers should ask only now and then.

Debt. A store may take twice its live bytes plus `garbage_allowance_bytes` on disk (G8); the bytes
beyond that are its debt (W10). `payable_bytes` is the part that the store is about to free by
itself, whatever clients do: files that the next checkpoints delete, garbage that compaction and the
rewriting of segments will free, garbage of journal files that stay and are to be emptied, and the
journal beyond its window. While some debt is payable, compaction runs at a higher rate, and
segments are rewritten sooner (`model/queue_index.py`).

Publishers wait only for the debt that they may have caused, or that threatens the disk: the growth
of the store since its lowest size in this debt (`upkeep/debt.py`), as far as it is payable, since
they might wait for the rest for ever. So a purge, which turns live bytes into debt, stops no
publisher, and no publisher can go on publishing faster than the store frees space.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.contents.store import COMPACTION_FILES_MIN, ContentStore
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.journal.window import window_bytes
from warrenmq.store.model.content_log import ContentLogs
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.vhost_store import VhostStore

# Payable bytes below this part of the allowance (by default 64 MiB) count as no debt: an exact
# count is not worth its time.
_SMALL_PART: Final = 16


class ContentFigures:
    """The figures of one content store. Sizes in bytes."""

    def __init__(self, contents: ContentStore) -> None:
        self.total_bytes: i64 = contents.total_bytes
        self.valid_bytes: i64 = contents.valid_bytes
        self.garbage_bytes: i64 = contents.garbage_bytes
        self.files: i64 = contents.file_count
        self.compactions: i64 = contents.compactions
        self.is_compacting: bool = contents.compaction is not None
        # What a compaction on demand still has to copy: files, and the garbage in them.
        self.wanted_files: i64 = 0
        self.wanted_garbage_bytes: i64 = 0
        for file in contents.wanted_files():
            self.wanted_files += 1
            self.wanted_garbage_bytes += file.size_bytes - file.valid_bytes


class LogFigures:
    """The figures of the journal files that stay for their contents. Sizes in bytes."""

    def __init__(self, logs: ContentLogs) -> None:
        self.total_bytes: i64 = logs.total_bytes()
        # The share of `total_bytes` that live positions have, as if all records were of one size.
        self.live_bytes: i64 = logs.live_bytes()
        self.files: i64 = len(logs.retained)


class StoreFigures:
    """The figures of one vhost's store at this moment. Sizes in bytes; counts are since the start.

    The generation is that of the last checkpoint on disk, whenever it was taken.
    """

    def __init__(self, store: VhostStore) -> None:
        self.journal_bytes: i64 = store.journal.total_bytes()
        self.journal_live_bytes: i64 = store.journal.live_bytes()
        self.journal_files: i64 = len(store.journal.files)
        self.logs: LogFigures = LogFigures(store.files.logs)
        # Bytes of the segments of all queues, durable or not.
        self.index_bytes: i64 = 0
        # The share of `index_bytes` that live positions have, as if all entries were of one size.
        self.index_live_bytes: i64 = 0
        # Segments of all queues.
        self.segments: i64 = 0
        # Live positions in all segments.
        self.live_positions: i64 = 0
        self.persistent: ContentFigures = ContentFigures(store.contents.persistent)
        self.transient: ContentFigures = ContentFigures(store.contents.transient)
        # Bytes of files that nothing needs; the next two checkpoints delete them.
        self.deletable_bytes: i64 = store.checkpoints.deletable_bytes
        self.waiting_bytes: i64 = store.jobs.lane.waiting_bytes
        self.is_behind: bool = store.files.is_behind
        self.checkpoints: i64 = store.checkpoints.count
        self.failed_checkpoints: i64 = store.checkpoints.failures
        self.generation: i64 = store.checkpoints.generation
        self.damaged: i64 = store.files.losses.damaged_count
        self.lost: i64 = store.files.losses.lost_count
        self._allowance_bytes: i64 = store.settings.garbage_allowance_bytes
        for queue in store.queues.values():
            self._add_index(queue.ledger)
        for queue in store.transient_queues.values():
            self._add_index(queue.ledger)

    def _add_index(self, ledger: QueueLedger) -> None:
        index = ledger.index
        if index is None:
            return
        for segment in index.segments:
            self.segments += 1
            self.index_bytes += segment.size_bytes
            self.live_positions += segment.live
            if segment.entries > 0:
                self.index_live_bytes += segment.size_bytes * segment.live // segment.entries

    @property
    def disk_bytes(self) -> i64:
        """Bytes of the store on disk, without checkpoints and without files that a backup pins."""
        return (
            self.journal_bytes
            + self.logs.total_bytes
            + self.index_bytes
            + self.persistent.total_bytes
            + self.transient.total_bytes
            + self.deletable_bytes
        )

    @property
    def live_bytes(self) -> i64:
        """Bytes on disk that some queue needs."""
        return (
            self.journal_live_bytes
            + self.logs.live_bytes
            + self.index_live_bytes
            + self.persistent.valid_bytes
            + self.transient.valid_bytes
        )

    @property
    def debt_bytes(self) -> i64:
        """Bytes on disk beyond twice the live bytes plus the allowance."""
        return max(0, self.disk_bytes - 2 * self.live_bytes - self._allowance_bytes)


def payable_bytes(store: VhostStore) -> i64:
    """Bytes that the store is about to free by itself, whatever clients do."""
    payable: i64 = store.checkpoints.deletable_bytes
    journal = store.journal
    kept: i64 = 0
    for file in journal.files:
        if file.number < store.checkpoints.first_journal_file:
            payable += file.size_bytes
        else:
            kept += file.size_bytes
    payable += max(0, kept - window_bytes(journal))
    tail_bytes = store.settings.dead_tail_bytes
    refused: set[int] = set()
    for queue in store.queues.values():
        payable += _rewritable_bytes(queue, tail_bytes)
        _add_refused_logs(queue.ledger, refused)
    payable += store.files.logs.payable_bytes(store.settings.empty_garbage_percent, refused)
    for queue in store.transient_queues.values():
        payable += _rewritable_bytes(queue, tail_bytes)
    return payable + (
        _compactable_bytes(store.contents.persistent) + _compactable_bytes(store.contents.transient)
    )


def update_debt(store: VhostStore) -> None:
    """Renew `store.upkeep.debt`; takes time in proportion to the queues and segments."""
    payable = debt_to_pay(store)
    store.debt.update(payable, StoreFigures(store).disk_bytes if payable > 0 else 0)


def debt_to_pay(store: VhostStore) -> i64:
    """Bytes of its debt that the store is about to free; 0 when they are few (`_SMALL_PART`).

    While a backup is being taken, no file is deleted, so the store is about to free nothing.
    """
    if store.backup.is_on:
        return 0
    payable = payable_bytes(store)
    if payable < store.settings.garbage_allowance_bytes // _SMALL_PART:
        return 0
    return min(payable, StoreFigures(store).debt_bytes)


def _rewritable_bytes(queue: QueueStore, dead_tail_bytes: i64) -> i64:
    # A full segment is rewritten as soon as two checkpoints cover its end. The next checkpoint ends
    # the segment that is still appended to, except in a copy, which waits for its master.
    ledger = queue.ledger
    index = ledger.index
    garbage: i64 = 0
    if index is not None:
        for segment in index.segments:
            is_full = (segment.number + 1) * index.segment_entries <= ledger.indexed_upto
            if is_full:
                is_payable = not segment.was_refused and index.is_worth_rewriting(segment, True)
            else:
                is_payable = not queue.is_copy and index.has_wasteful_tail(dead_tail_bytes)
            if is_payable:
                garbage += segment.garbage_bytes
    return garbage


def _add_refused_logs(ledger: QueueLedger, refused: set[int]) -> None:
    # A file is emptied by rewriting all segments that need it: not while one of them fails.
    index = ledger.index
    if index is None:
        return
    for segment in index.segments:
        if segment.was_refused and segment.has_places:
            first: i64 = segment.number * index.segment_entries
            for log in index.stretches.logs_of(first, first + index.segment_entries - 1):
                refused.add(log.number)


def _compactable_bytes(contents: ContentStore) -> i64:
    # Compaction stops when the garbage is no more than the valid bytes; it leaves out the files
    # that are still written.
    if contents.file_count < COMPACTION_FILES_MIN:
        return 0
    garbage: i64 = 0
    for file in contents.files:
        if contents.is_closed(file):
            garbage += file.size_bytes - file.valid_bytes
    return max(0, garbage - contents.valid_bytes)
