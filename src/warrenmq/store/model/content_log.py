"""A journal file as a file of contents: what the queues' indexes need of it."""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.model.layout import JOURNAL_NAME, PERSISTENT_NAME

# Files that are emptied at the same time: a rewrite has them all in memory.
EMPTIED_MAX: Final = 2


class ContentLog:
    """The file `<number>.wal`, in the journal or behind it. Sizes in bytes.

    A file that leaves the journal while an index needs it moves to the content store's directory.
    """

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # Set when the file leaves the journal.
        self.size_bytes: i64 = 0
        # Stretches of queues' indexes that need contents in the file (`stretches.py`).
        self.stretches: i64 = 0
        # Positions that ever were in these stretches.
        self.entries: i64 = 0
        # Positions of these stretches that are not settled.
        self.live_entries: i64 = 0
        # Generation of the last checkpoint that names the file in a stretch; 0: none does.
        self.named_in: i64 = 0
        # Bytes of the records of these positions; of a checkpoint's positions, an estimate.
        self.referred_bytes: i64 = 0
        # The file has left the journal.
        self.is_retained: bool = False
        # The file has been moved.
        self.is_moved: bool = False
        # Few of its contents are needed: segments are rewritten so that none of them is.
        self.is_emptied: bool = False
        # A segment that needs the file could not be rewritten: other files come first.
        self.was_refused: bool = False

    @property
    def garbage_bytes(self) -> i64:
        """Estimated bytes of settled entries, as if all records were of one size."""
        if self.entries == 0:
            return self.size_bytes
        return self.size_bytes * (self.entries - self.live_entries) // self.entries

    def is_worth_emptying(self, garbage_percent: i64) -> bool:
        """Whether more than `garbage_percent` of the file is garbage."""
        return 100 * self.garbage_bytes > garbage_percent * self.size_bytes

    def estimate_entries(self) -> None:
        """Have `garbage_bytes` count what no stretch of the file has ever had.

        That is what was consumed or copied to segments before the file left the journal, and what
        was settled before a start. The sizes of the file and of the records that the stretches had
        say how many entries the file would have in all.
        """
        if 0 < self.referred_bytes < self.size_bytes:
            self.entries = self.entries * self.size_bytes // self.referred_bytes

    @property
    def journal_path(self) -> str:
        """Where the file is before it is moved."""
        return f"{JOURNAL_NAME}/{self.number}.wal"

    @property
    def moved_path(self) -> str:
        """Where the file is after it was moved."""
        return f"{PERSISTENT_NAME}/{self.number}.wal"

    @property
    def path(self) -> str:
        """Where the file is, as far as it is known."""
        return self.moved_path if self.is_moved else self.journal_path


class ContentLogs:
    """The logs that have left the journal of one vhost, by number."""

    def __init__(self) -> None:
        self.retained: dict[int, ContentLog] = {}
        # Whether some of the retained logs are to be emptied.
        self.has_emptied: bool = False

    def retain(self, log: ContentLog, size_bytes: i64) -> None:
        """Keep a file that leaves the journal with `size_bytes`."""
        log.is_retained = True
        log.size_bytes = size_bytes
        log.estimate_entries()
        self.retained[log.number] = log

    def forget(self, log: ContentLog) -> None:
        """Forget a log that nothing needs."""
        self.retained.pop(log.number, None)

    def choose_emptied(self, files_min: i64, garbage_percent: i64, is_in_debt: bool) -> bool:
        """Choose the files to empty if too much of all these files is garbage.

        Returns whether there is any to empty. Too much: more than `garbage_percent` of the bytes,
        in at least `files_min` files (S34); while the store is in debt, in any file.
        """
        total: i64 = 0
        garbage: i64 = 0
        count: i64 = 0
        emptied: i64 = 0
        worst: ContentLog | None = None
        for log in self.retained.values():
            if log.stretches == 0 or log.entries == 0:
                continue
            count += 1
            total += log.size_bytes
            garbage += log.garbage_bytes
            if log.is_emptied:
                emptied += 1
            elif (
                not log.was_refused
                and log.is_worth_emptying(garbage_percent)
                and (worst is None or log.garbage_bytes > worst.garbage_bytes)
            ):
                worst = log
        is_due = is_in_debt or (count >= files_min and 100 * garbage > garbage_percent * total)
        if is_due and worst is not None and emptied < EMPTIED_MAX:
            worst.is_emptied = True
            emptied += 1
        self.has_emptied = emptied > 0
        if not self.has_emptied:
            # Files that could not be emptied get another try after the next checkpoint.
            for log in self.retained.values():
                log.was_refused = False
        return self.has_emptied

    def refuse(self, logs: list[ContentLog]) -> None:
        """Do not empty `logs` now, since a segment that needs them could not be rewritten."""
        for log in logs:
            log.is_emptied = False
            log.was_refused = True

    def payable_bytes(self, garbage_percent: i64, refused: set[int]) -> i64:
        """Garbage of the files that a store in debt empties, except those numbered in `refused`."""
        payable: i64 = 0
        for log in self.retained.values():
            is_refused = log.was_refused or log.number in refused
            if not is_refused and log.is_worth_emptying(garbage_percent):
                payable += log.garbage_bytes
        return payable

    def path_of(self, number: i64) -> str:
        """The path of file `number`, in the journal or behind it."""
        log = self.retained.get(number)
        return log.path if log is not None else f"{JOURNAL_NAME}/{number}.wal"

    def total_bytes(self) -> i64:
        """Bytes of all these files."""
        total: i64 = 0
        for log in self.retained.values():
            total += log.size_bytes
        return total

    def live_bytes(self) -> i64:
        """The share of these bytes that is not settled, as if all records were of one size."""
        live: i64 = 0
        for log in self.retained.values():
            live += log.size_bytes - log.garbage_bytes
        return live
