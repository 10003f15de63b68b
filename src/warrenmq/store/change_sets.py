"""Changes of definitions on their way to the metadata, in order, beside the records of the journal.

A *change set* is stored whole or not at all. There are two kinds:

refusable   it makes something new. When it cannot be stored its author is told, takes back what it made in memory, and
            nobody else notices.
kept        it says what has happened already (a deletion), so it cannot be refused: it is tried again until it is
            stored. Sets behind it in the line wait or are refused meanwhile, since an older change must not
            overwrite a newer one.

The engine knows nothing of what a change is; the flusher hands it to the metadata (`store/disk/flusher.py`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

# Between two attempts at kept sets, when nothing else is to be stored (ms).
RETRY_MS: Final = 250


class DefinitionsError(Exception):
    """Changes could not be stored; one line of text.

    `may_be_full`: the disk may be full, so that more space helps. `is_locked`: somebody else has the metadata locked, so
    that no other change can be stored either.
    """

    def __init__(self, text: str, may_be_full: bool = False, is_locked: bool = False) -> None:
        super().__init__(text)
        self.may_be_full: bool = may_be_full
        self.is_locked: bool = is_locked


class ChangeSet:
    """Changes that are stored together. `callbacks` are called as `callback(is_stored, now_ms)`.

    A set is refused when one of its `needs`, older sets, was: a binding without its exchange is worth nothing.

    Those of a kept set learn of its first failure, although it will be tried again; with `is_patient` they are called
    when it is stored, and not before.
    """

    def __init__(self, changes: list[object], is_kept: bool, is_patient: bool = False) -> None:
        self.changes: list[object] = changes
        self.is_kept: bool = is_kept
        self.is_patient: bool = is_patient
        self.callbacks: list[Callable[[bool, int], None]] = []
        self.needs: list[ChangeSet] = []
        # Set by the flusher.
        self.is_stored: bool = False


class ChangeLine:
    """The change sets of one vhost that are not stored yet: those of the next batch, behind kept ones that failed."""

    def __init__(self) -> None:
        self._gathered: list[ChangeSet] = []
        # Kept sets that could not be stored, oldest first, and when they are due again (ms).
        self._failed: list[ChangeSet] = []
        self._retry_at_ms: i64 = 0
        # Kept sets in batches on their way to the disk.
        self._kept_in_flight: i64 = 0

    def add(self, changes: list[object], is_kept: bool, is_patient: bool = False) -> ChangeSet:
        """A new set at the end of the line."""
        change_set = ChangeSet(changes, is_kept, is_patient)
        self._gathered.append(change_set)
        return change_set

    def is_due(self, now_ms: i64) -> bool:
        """Do change sets, new or due for a retry, need a batch?"""
        return len(self._gathered) > 0 or (len(self._failed) > 0 and now_ms >= self._retry_at_ms)

    def is_empty(self) -> bool:
        """Is no set left for a later batch?"""
        return len(self._gathered) == 0 and len(self._failed) == 0

    def has_kept(self) -> bool:
        """Has something happened that is not stored yet?"""
        if len(self._failed) > 0 or self._kept_in_flight > 0:
            return True
        for change_set in self._gathered:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if change_set.is_kept:
                return True
        return False

    def take(self) -> list[ChangeSet]:
        """All sets, in order, for the batch that is being sealed; kept ones that have failed are tried again with it."""
        taken = self._failed + self._gathered
        self._failed = []
        self._gathered = []
        for change_set in taken:
            if change_set.is_kept:
                self._kept_in_flight += 1
        return taken

    def on_done(self, taken: list[ChangeSet], now_ms: i64) -> None:
        """The flusher has tried to store the sets of the oldest batch under way: tell who waits."""
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
