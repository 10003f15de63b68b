"""The bytes that a vhost's store has written, by kind, beside those that clients have published.

Definitions, and files that no restart reads, do not count.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.journal.journal import Journal


class WriteFigures:
    """Bytes that one vhost's clients published and its store wrote since the start of the node."""

    def __init__(self, journal: Journal, files: SegmentFiles) -> None:
        lane = files.jobs.lane
        # Bytes of address, properties and body of messages that were journaled or settled before.
        self.published_bytes: i64 = journal.published_bytes
        self.journal_bytes: i64 = journal.written_bytes
        self.content_bytes: i64 = journal.content_bytes
        self.index_bytes: i64 = lane.appended_bytes
        # Bytes of segments that were replaced by a copy of their live entries.
        self.rewritten_bytes: i64 = lane.rewritten_bytes
        # Bytes of large contents that compaction has copied.
        self.compacted_bytes: i64 = files.contents.persistent.compacted_bytes
        self.checkpoint_bytes: i64 = lane.checkpoint_bytes

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


def amplification(written_bytes: i64, published_bytes: i64) -> float:
    """Bytes written for each byte published; 0 before the first message."""
    return float(written_bytes) / float(published_bytes) if published_bytes > 0 else 0.0
