"""The sizes that a vhost's store works with, and their defaults."""

from dataclasses import dataclass
from typing import Final

from mypy_extensions import i64

from warrenmq.store.journal.journal import BUFFER_BYTES
from warrenmq.store.model.queue_index import REWRITE_MIN_BYTES, SEGMENT_ENTRIES

# A queue may leave its last segment from this size on (`StoreSettings.dead_tail_bytes`).
DEAD_TAIL_BYTES: Final = 65536
# Size of the groups in which appends are written.
GROUP_BYTES: Final = 4194304
# A node lets appends wait for others up to this many bytes (`StoreSettings.hold_bytes`).
HOLD_BYTES: Final = 262144
# More waiting bytes of appends than this mean that the disk cannot keep up.
BEHIND_BYTES: Final = 67108864
# Bytes of dead space that are worth a checkpoint at once; less is worth one after a while.
DEAD_BYTES: Final = 33554432
# The store may take twice its live bytes plus this on disk before it is in debt (G8).
GARBAGE_ALLOWANCE_BYTES: Final = 1073741824
# A stretch takes memory as long as it lives, and a sparse file takes work: fewer messages of a
# queue in one journal file are copied to the queue's index.
REFER_ENTRIES: Final = 16
REFER_BYTES: Final = 16384
# The rule of content files (S34).
EMPTY_FILES_MIN: Final = 3
EMPTY_GARBAGE_PERCENT: Final = 50


@dataclass(eq=False)
class StoreSettings:
    """The settings of one vhost's store: sizes in bytes, `segment_entries` in seq ids."""

    journal_file_size_limit: i64
    content_file_size_limit: i64 = 16777216
    embed_below: i64 = 4096
    segment_entries: i64 = SEGMENT_ENTRIES
    # A segment with few live entries is rewritten from this size on.
    rewrite_min_bytes: i64 = REWRITE_MIN_BYTES
    # A queue leaves the segment it appends to from this size on, when few of its entries are
    # alive.
    dead_tail_bytes: i64 = DEAD_TAIL_BYTES
    garbage_allowance_bytes: i64 = GARBAGE_ALLOWANCE_BYTES
    buffer_bytes: i64 = BUFFER_BYTES
    group_bytes: i64 = GROUP_BYTES
    behind_bytes: i64 = BEHIND_BYTES
    dead_bytes: i64 = DEAD_BYTES
    # A queue's index refers to a journal file only for at least so many messages in a row
    # (`refer_entries`) whose records have at least so many bytes (`refer_bytes`).
    refer_entries: i64 = REFER_ENTRIES
    refer_bytes: i64 = REFER_BYTES
    # Files that have left the journal are emptied when there are at least `empty_files_min` of
    # them, and more than `empty_garbage_percent` of their bytes are garbage.
    empty_files_min: i64 = EMPTY_FILES_MIN
    empty_garbage_percent: i64 = EMPTY_GARBAGE_PERCENT
    # Appends that nothing waits for gather up to so many bytes, for HOLD_MS at most
    # (`jobs/write_lane.py`); 0: each is written at once. Only a caller that comes back by
    # itself, as a node does, may let them gather.
    hold_bytes: i64 = 0
