"""Sizes that the store of a vhost works with."""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.journal import BUFFER_BYTES
from warrenmq.store.queue_index import REWRITE_MIN_BYTES, SEGMENT_ENTRIES

DEAD_TAIL_BYTES: Final = 65536
# Appends that are written together.
GROUP_BYTES: Final = 4194304
# Appends that wait beyond this are a sign that the disk cannot follow.
BEHIND_BYTES: Final = 67108864
# A checkpoint is taken for the sake of this much space, or of less after a while.
DEAD_BYTES: Final = 33554432
# The disk may hold so much beyond twice what is alive before that counts as debt (G8).
GARBAGE_ALLOWANCE_BYTES: Final = 1073741824


class StoreSettings:
    """Sizes in bytes, but for the number of seq ids of a segment."""

    def __init__(
        self,
        journal_file_size_limit: i64,
        content_file_size_limit: i64 = 16777216,
        embed_below: i64 = 4096,
        segment_entries: i64 = SEGMENT_ENTRIES,
        rewrite_min_bytes: i64 = REWRITE_MIN_BYTES,
        dead_tail_bytes: i64 = DEAD_TAIL_BYTES,
        garbage_allowance_bytes: i64 = GARBAGE_ALLOWANCE_BYTES,
        buffer_bytes: i64 = BUFFER_BYTES,
        group_bytes: i64 = GROUP_BYTES,
        behind_bytes: i64 = BEHIND_BYTES,
        dead_bytes: i64 = DEAD_BYTES,
    ) -> None:
        self.journal_file_size_limit: i64 = journal_file_size_limit
        self.content_file_size_limit: i64 = content_file_size_limit
        self.embed_below: i64 = embed_below
        self.segment_entries: i64 = segment_entries
        # A segment of which little is alive is rewritten from this size on.
        self.rewrite_min_bytes: i64 = rewrite_min_bytes
        # A queue leaves the segment it appends to, with little or nothing alive in it, when it has this size.
        self.dead_tail_bytes: i64 = dead_tail_bytes
        self.garbage_allowance_bytes: i64 = garbage_allowance_bytes
        self.buffer_bytes: i64 = buffer_bytes
        self.group_bytes: i64 = group_bytes
        self.behind_bytes: i64 = behind_bytes
        self.dead_bytes: i64 = dead_bytes
