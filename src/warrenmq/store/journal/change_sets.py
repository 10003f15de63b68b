"""Changes of definitions on their way to the metadata, in order, beside the journal's records.

A *change set* is stored whole or not at all. There are two kinds:

refusable   It makes something new. When it cannot be stored its author is notified and takes back
            what it made in memory; nobody else notices.
kept        It records what has happened already (a deletion), so it cannot be refused: the store
            retries it until it is stored. Sets behind it in the line wait or are refused
            meanwhile, since an older change must not overwrite a newer one.

The engine does not know what a change means; the flusher hands it to the metadata
(`store/disk/flusher.py`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

# Pause between two attempts to store kept sets when nothing else is to be stored (ms).
RETRY_MS: Final = 250


@mypyc_attr(allow_interpreted_subclasses=True)
class DefinitionsError(Exception):
    """Changes could not be stored; the error's text is one line.

    `may_be_full`: the disk may be full, so that more space helps. `is_locked`: another process has
    locked the metadata, so that no other change can be stored either.
    """

    def __init__(self, text: str, may_be_full: bool = False, is_locked: bool = False) -> None:
        super().__init__(text)
        self.may_be_full: bool = may_be_full
        self.is_locked: bool = is_locked


class ChangeSet:
    """Changes that are stored together; `callbacks` are called as `callback(is_stored, now_ms)`.

    The flusher refuses a set when it has refused one of its `needs`, which are older sets: a
    binding without its exchange is worth nothing.

    The callbacks of a kept set are called at its first failure, although the set will be retried;
    with `is_patient` they are called only when the set is stored.
    """

    def __init__(self, changes: list[object], is_kept: bool, is_patient: bool = False) -> None:
        self.changes: list[object] = changes
        self.is_kept: bool = is_kept
        self.is_patient: bool = is_patient
        self.callbacks: list[Callable[[bool, int], None]] = []
        self.needs: list[ChangeSet] = []
        # Records of this batch, and of later ones, are worth nothing without the changes: no batch
        # counts as durable before they are stored.
        self.is_needed_by_records: bool = False
        # Set by the flusher when the changes are in the metadata.
        self.is_stored: bool = False


class ChangeLine:
    """The change sets of one vhost that are not stored yet, in order.

    Kept sets that failed stand in front of the sets that gather for the next batch.
    """

    def __init__(self) -> None:
        self._gathered: list[ChangeSet] = []
        # Kept sets that could not be stored, oldest first.
        self._failed: list[ChangeSet] = []
        # Time at which `_failed` is due for a retry (ms).
        self._retry_at_ms: i64 = 0
        # Number of kept sets in batches on their way to the disk.
        self._kept_in_flight: i64 = 0

    def add(self, changes: list[object], is_kept: bool, is_patient: bool = False) -> ChangeSet:
        """Add a new set at the end of the line and return it."""
        change_set = ChangeSet(changes, is_kept, is_patient)
        self._gathered.append(change_set)
        return change_set

    def is_due(self, now_ms: i64) -> bool:
        """True while change sets, new or due for a retry, need a batch."""
        return len(self._gathered) > 0 or (len(self._failed) > 0 and now_ms >= self._retry_at_ms)

    def is_empty(self) -> bool:
        """True when no set is left for a later batch."""
        return len(self._gathered) == 0 and len(self._failed) == 0

    def has_kept(self) -> bool:
        """True while a kept set is not stored: the metadata does not know what has happened."""
        if len(self._failed) > 0 or self._kept_in_flight > 0:
            return True
        for change_set in self._gathered:  # noqa: SIM110  # a generator is slower, compiled
            if change_set.is_kept:
                return True
        return False

    def take(self) -> list[ChangeSet]:
        """All sets, in order, for the batch that is being sealed, failed kept ones included."""
        taken = self._failed + self._gathered
        self._failed = []
        self._gathered = []
        for change_set in taken:
            if change_set.is_kept:
                self._kept_in_flight += 1
        return taken

    def on_done(self, taken: list[ChangeSet], now_ms: i64) -> None:
        """Call the callbacks of `taken`, the sets of the oldest batch under way, which were tried.

        Kept sets that could not be stored return to the line.
        """
        failed: list[ChangeSet] = []
        for change_set in taken:
            if change_set.is_kept:
                self._kept_in_flight -= 1
                if not change_set.is_stored:
                    failed.append(change_set)
        if len(failed) > 0:
            self._failed.extend(failed)
            self._retry_at_ms = now_ms + RETRY_MS
        for change_set in taken:
            is_stored = change_set.is_stored
            if is_stored or not change_set.is_patient:
                callbacks = change_set.callbacks
                change_set.callbacks = []
                for callback in callbacks:
                    callback(is_stored, now_ms)
