"""The window of a vhost's journal: which files have to retire, and where contents may stay.

A file of the journal retires when nothing in it is needed any more (`journal.py`). When the journal
outgrows its window, `store/vhost_store.py` makes the oldest files retire: their live positions move
to the queues' indexes. A content is copied to its queue's segment if most of its file is dead, and
stays where it is if most of the file is not.

Files in which nothing is needed leave with two checkpoints. The window asks for these while clients
publish; `DeadFiles` asks for them when they do not. While disk space is short, files of which most
is dead retire whatever the window is: what is alive in them moves.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import JournalFile

# The window is this many files, plus WINDOW_BYTES_PER_QUEUE for each durable queue: moving a
# queue's messages to its index costs the same whether they are few or many.
WINDOW_FILES: Final = 4
WINDOW_BYTES_PER_QUEUE: Final = 16384
# Dead files of less than a file's largest size divided by this are not worth a checkpoint.
_WORTH_PART: Final = 8
# Dead files wait so long (ms) for each of their checkpoints, which traffic may bring sooner.
PATIENCE_MS: Final = 15_000
# Dead files wait so long (ms) for a checkpoint while disk space is short.
_LOW_PATIENCE_MS: Final = 2_000


def window_bytes(journal: Journal) -> i64:
    """Size in bytes above which the journal's oldest files are made to retire."""
    queues: i64 = len(journal.ledgers)
    return WINDOW_FILES * journal.file_size_limit + WINDOW_BYTES_PER_QUEUE * queues


def files_to_retire(journal: Journal, first_needed: i64, is_disk_low: bool) -> list[JournalFile]:
    """The closed files at or above `first_needed` that must retire, oldest first.

    Files below `first_needed` are retired already. When the journal has outgrown its window, the
    list has so many files that the rest fills at most half of the window. The list always has the
    files up to the last one that someone has deleted: their messages have no other place on the
    disk. If `is_disk_low`, it has those up to the last one of which most is dead.
    """
    window = window_bytes(journal)
    total: i64 = 0
    for file in journal.files:
        if file.number >= first_needed:
            total += file.size_bytes
    found: list[JournalFile] = []
    upto = journal.gone_upto
    if is_disk_low:
        for file in journal.files[:-1]:
            if not _is_mostly_alive(file):
                upto = max(upto, file.number)
    is_too_large = total > window
    for file in journal.files[:-1]:
        if file.number < first_needed:
            continue
        if file.number > upto and (not is_too_large or total <= window // 2):
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
    return _is_mostly_alive(file)


def _is_mostly_alive(file: JournalFile) -> bool:
    return (file.live_bytes + file.moved_bytes) * 2 >= file.size_bytes


class DeadFiles:
    """When a checkpoint is due because journal files have died that the window has room for."""

    def __init__(self) -> None:
        # Disk space is short: a disk alarm is on.
        self.is_disk_low: bool = False
        # Since when dead files wait (ms); 0: none wait.
        self._since_ms: i64 = 0

    def is_due(self, journal: Journal, now_ms: i64) -> bool:
        """Whether enough dead bytes have waited for long enough; the first call begins the wait."""
        first_needed = journal.first_needed_file()
        dead_bytes: i64 = journal.files[-1].size_bytes if self.ends_file(journal) else 0
        for file in journal.files:
            if file.number >= first_needed:
                break
            dead_bytes += file.size_bytes
        if dead_bytes < journal.file_size_limit // _WORTH_PART:
            self._since_ms = 0
            return False
        if self._since_ms == 0:
            self._since_ms = now_ms
        return now_ms - self._since_ms >= (_LOW_PATIENCE_MS if self.is_disk_low else PATIENCE_MS)

    def ends_file(self, journal: Journal) -> bool:
        """Whether the file that is written has to end, so that it can leave as well.

        Not behind the mark of a clean stop, which counts at the journal's end only.
        """
        if len(journal.files) == 0 or journal.is_marked_clean:
            return False
        last = journal.files[-1]
        if last.size_bytes < journal.file_size_limit // _WORTH_PART:
            return False
        if self.is_disk_low and not _is_mostly_alive(last):
            return True
        is_first = journal.first_needed_file() == last.number
        return is_first and last.live_bytes == 0 and last.pins == 0

    def on_checkpoint(self) -> None:
        """Restart the wait for a checkpoint, as one is being taken."""
        self._since_ms = 0
