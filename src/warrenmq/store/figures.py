"""What a vhost's store holds, in numbers: for operators, and for the flow control that waits for it to be tidied up.

Everything is counted from what is in memory anyway; no file is looked at. It takes time in proportion to the number of
queues and segments, so it is for those who ask now and then.

Debt. A store may take twice what is alive in it and `garbage_allowance_bytes` (G8); what it takes beyond that is its debt
(W10). The part of it that the store is about to give back by itself, whatever clients do, is `payable_bytes`: files that
go with the next checkpoints, what compaction and the rewriting of segments have to do, and the journal beyond its window.
While there is some, compaction does not hold back, and segments are rewritten sooner (`queue_index.py`).

Publishers are made to wait only for what they may have caused, or have to fear: what the disk has grown by since it was
at its lowest in this debt (`debt.py`), as far as that is payable; else they might wait for ever. So a purge, which makes
debt of what was alive, stops nobody, and publishing faster than the store gives back cannot go on.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.content_store import COMPACTION_FILES_MIN, ContentStore
from warrenmq.store.message import QueueLedger
from warrenmq.store.vhost_store import VhostStore

# Less than this part of the allowance is not worth counting it exactly: 64 MiB.
_SMALL_PART: Final = 16


class ContentFigures:
    """One content store. Sizes in bytes."""

    def __init__(self, contents: ContentStore) -> None:
        self.total_bytes: i64 = contents.total_bytes
        self.valid_bytes: i64 = contents.valid_bytes
        self.garbage_bytes: i64 = contents.garbage_bytes
        self.files: i64 = contents.file_count
        self.compactions: i64 = contents.compactions


class StoreFigures:
    """One vhost's store at this moment. Sizes in bytes; counts since the start, but for the generation."""

    def __init__(self, store: VhostStore) -> None:
        self.journal_bytes: i64 = store.journal.total_bytes()
        self.journal_live_bytes: i64 = store.journal.live_bytes()
        self.journal_files: i64 = len(store.journal.files)
        # Segments of all queues, durable or not, and the share of their bytes that live positions have.
        self.index_bytes: i64 = 0
        self.index_live_bytes: i64 = 0
        self.segments: i64 = 0
        self.live_positions: i64 = 0
        self.persistent: ContentFigures = ContentFigures(store.contents.persistent)
        self.transient: ContentFigures = ContentFigures(store.contents.transient)
        # In files that nothing needs any more and that go with the next two checkpoints.
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
        """Everything the store has on disk, but checkpoints and what a backup keeps."""
        return (
            self.journal_bytes
            + self.index_bytes
            + self.persistent.total_bytes
            + self.transient.total_bytes
            + self.deletable_bytes
        )

    @property
    def live_bytes(self) -> i64:
        """What of it some queue needs."""
        return (
            self.journal_live_bytes
            + self.index_live_bytes
            + self.persistent.valid_bytes
            + self.transient.valid_bytes
        )

    @property
    def debt_bytes(self) -> i64:
        """What is on disk beyond twice what is alive and the allowance."""
        return max(0, self.disk_bytes - 2 * self.live_bytes - self._allowance_bytes)


def payable_bytes(store: VhostStore) -> i64:
    """What the store is about to give back by itself."""
    payable: i64 = store.checkpoints.deletable_bytes
    journal = store.journal
    kept: i64 = 0
    for file in journal.files:
        if file.number < store.checkpoints.first_journal_file:
            payable += file.size_bytes
        else:
            kept += file.size_bytes
    payable += max(0, kept - journal.window_bytes())
    tail_bytes = store.settings.dead_tail_bytes
    for queue in store.queues.values():
        payable += _rewritable_bytes(queue.ledger, tail_bytes)
    for queue in store.transient_queues.values():
        payable += _rewritable_bytes(queue.ledger, tail_bytes)
    return payable + (
        _compactable_bytes(store.contents.persistent) + _compactable_bytes(store.contents.transient)
    )


def update_debt(store: VhostStore) -> None:
    """Count the store's debt; takes time in proportion to the queues and segments, if it is not little."""
    payable = debt_to_pay(store)
    store.debt.update(payable, StoreFigures(store).disk_bytes if payable > 0 else 0)


def debt_to_pay(store: VhostStore) -> i64:
    """The store's debt, as far as it is payable; 0 when that is little."""
    payable = payable_bytes(store)
    if payable < store.settings.garbage_allowance_bytes // _SMALL_PART:
        return 0
    return min(payable, StoreFigures(store).debt_bytes)


def _rewritable_bytes(ledger: QueueLedger, dead_tail_bytes: i64) -> i64:
    # As soon as two checkpoints have seen the end of it; the one that is appended to ends with the next.
    index = ledger.index
    garbage: i64 = 0
    if index is not None:
        for segment in index.segments:
            is_full = (segment.number + 1) * index.segment_entries <= ledger.indexed_upto
            if is_full:
                is_payable = not segment.was_refused and index.is_worth_rewriting(segment, True)
            else:
                is_payable = index.has_wasteful_tail(dead_tail_bytes)
            if is_payable:
                garbage += segment.garbage_bytes
    return garbage


def _compactable_bytes(contents: ContentStore) -> i64:
    # Compaction ends when no more is garbage than valid; the file that is being written is none of its business.
    if contents.file_count < COMPACTION_FILES_MIN:
        return 0
    garbage: i64 = 0
    for file in contents.files:
        if contents.is_closed(file):
            garbage += file.size_bytes - file.valid_bytes
    return max(0, garbage - contents.valid_bytes)
