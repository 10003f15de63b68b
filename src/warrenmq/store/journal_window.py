"""The window of a vhost's journal: which files have to retire, and where contents may stay.

A file of the journal retires when nothing in it is needed any more (`journal.py`). When the journal
outgrows its window, `vhost_store.py` makes the oldest files retire: their live positions move to
the queues' indexes. A content is copied to its queue's segment if most of its file is dead, and
stays where it is if most of the file is not.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.journal import Journal
from warrenmq.store.message import JournalFile

# The window is this many files, plus WINDOW_BYTES_PER_QUEUE for each durable queue: moving a
# queue's messages to its index costs the same whether they are few or many.
WINDOW_FILES: Final = 4
WINDOW_BYTES_PER_QUEUE: Final = 16384


def window_bytes(journal: Journal) -> i64:
    """Size in bytes above which the journal's oldest files are made to retire."""
    queues: i64 = len(journal.ledgers)
    return WINDOW_FILES * journal.file_size_limit + WINDOW_BYTES_PER_QUEUE * queues


def files_to_retire(journal: Journal, first_needed: i64) -> list[JournalFile]:
    """The closed files at or above `first_needed` that must retire, oldest first.

    Files below `first_needed` are retired already. When the journal has outgrown its window, the
    list has so many files that the rest fills at most half of the window. The list always has the
    files up to the last one that someone has deleted: their messages have no other place on the
    disk.
    """
    window = window_bytes(journal)
    total: i64 = 0
    for file in journal.files:
        if file.number >= first_needed:
            total += file.size_bytes
    found: list[JournalFile] = []
    is_too_large = total > window
    for file in journal.files[:-1]:
        if file.number < first_needed:
            continue
        if file.number > journal.gone_upto and (not is_too_large or total <= window // 2):
            break
        found.append(file)
        total -= file.size_bytes
    return found


def may_refer(journal: Journal, file: JournalFile) -> bool:
    """Whether indexes should refer to contents in `file`: most of its bytes stay for long.

    A file that is still written to is judged by its predecessor at first.
    """
    if file.number <= journal.gone_upto:
        # Somebody has deleted it.
        return False
    last = journal.files[-1]
    if file is last and file.size_bytes * 2 < journal.file_size_limit:
        if len(journal.files) < 2:
            return False
        file = journal.files[-2]
    return (file.live_bytes + file.moved_bytes) * 2 >= file.size_bytes
