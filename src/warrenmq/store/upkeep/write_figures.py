"""The bytes that stores have written, by kind, beside those that clients have published.

Definitions, and files that no restart reads, do not count.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.journal.journal import Journal


class WriteFigures:
    """Bytes that clients published and stores wrote since the start of the node."""

    def __init__(self) -> None:
        # Bytes of address, properties and body of messages that were journaled or settled before.
        self.published_bytes: i64 = 0
        self.journal_bytes: i64 = 0
        self.content_bytes: i64 = 0
        self.index_bytes: i64 = 0
        # Bytes of segments that were replaced by a copy of their live entries.
        self.rewritten_bytes: i64 = 0
        # Bytes of large contents that compaction has copied.
        self.compacted_bytes: i64 = 0
        self.checkpoint_bytes: i64 = 0

    def add(self, other: WriteFigures) -> None:
        """Add the figures of other stores."""
        self.published_bytes += other.published_bytes
        self.journal_bytes += other.journal_bytes
        self.content_bytes += other.content_bytes
        self.index_bytes += other.index_bytes
        self.rewritten_bytes += other.rewritten_bytes
        self.compacted_bytes += other.compacted_bytes
        self.checkpoint_bytes += other.checkpoint_bytes

    @property
    def total_bytes(self) -> i64:
        """Sum of the bytes written, over all kinds."""
        return (
            self.journal_bytes
            + self.content_bytes
            + self.index_bytes
            + self.rewritten_bytes
            + self.compacted_bytes
            + self.checkpoint_bytes
        )


def write_figures_of(journal: Journal, files: SegmentFiles) -> WriteFigures:
    """The figures of one vhost's store."""
    lane = files.jobs.lane
    found = WriteFigures()
    found.published_bytes = journal.published_bytes
    found.journal_bytes = journal.written_bytes
    found.content_bytes = journal.content_bytes
    found.index_bytes = lane.appended_bytes
    found.rewritten_bytes = lane.rewritten_bytes
    found.compacted_bytes = files.contents.persistent.compacted_bytes
    found.checkpoint_bytes = lane.checkpoint_bytes
    return found


def amplification(written_bytes: i64, published_bytes: i64) -> float:
    """Bytes written for each byte published; 0 before the first message."""
    return float(written_bytes) / float(published_bytes) if published_bytes > 0 else 0.0
