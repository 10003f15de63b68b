"""What receipts wait for: the journal, rows of the definitions, copies of mirrored queues.

These are classes and no closures for the reason in `MoveSlice`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.vhost.sinks.receipt_book import ReceiptBook
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import JournalFile


@mypyc_attr(allow_interpreted_subclasses=True)
class TakeWaiter:
    """Waits until messages that came are here for good."""

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        """All are durable, on all copies in sync too; `failure`: why not all, "" if they are.

        `may_be_known`: a consumer may have had those that are not.
        """
        raise RuntimeError("abstract")


@final
class GatheredReceipts:
    """The messages with receipts in a batch of the journal: books, and positions.

    `done` is called when they are durable. After a failure the next batch has their MOVEs.
    """

    def __init__(
        self, journal: Journal, done: Callable[[list[tuple[ReceiptBook, i64]]], None]
    ) -> None:
        self.expected: list[tuple[ReceiptBook, i64]] = []
        self._done: Callable[[list[tuple[ReceiptBook, i64]]], None] = done
        self._journal: Journal = journal
        self._batch: ConfirmParty | None = None

    def is_sealed(self) -> bool:
        """Whether the journal gathers another batch by now."""
        return self._batch is not self._journal.batch

    def watch(self) -> None:
        """Wait for the batch that gathers."""
        self._batch = self._journal.batch
        self._journal.when_durable(self.on_batch)

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """The batch is written, or has failed."""
        if ok:
            self._done(self.expected)
        else:
            self.watch()


@final
class UnpinnedFiles:
    """Files of the journal that a row of the definitions makes needless."""

    def __init__(self, journal: Journal, files: list[JournalFile]) -> None:
        self._journal: Journal = journal
        self._files: list[JournalFile] = files

    def on_stored(self, _ok: bool, _now_ms: int) -> None:
        """The row is stored."""
        for file in self._files:
            self._journal.moves.settled(file)


@final
class TakenSlice(ConfirmWaiter):
    """Messages that came together; they wait for the journal and for copies of mirrored queues.

    `is_handed_out`: consumers may get them before the copies confirm.
    """

    def __init__(
        self,
        journal: Journal,
        sources: list[ConfirmSource],
        is_handed_out: bool,
        waiter: TakeWaiter,
        failure: str,
    ) -> None:
        self._journal: Journal = journal
        self._is_handed_out: bool = is_handed_out
        self._waiter: TakeWaiter = waiter
        self._failure: str = failure
        # This node's journal is a party of its own.
        self._run: ConfirmRun = ConfirmRun(self, 0, 1 + len(sources))
        for source in sources:
            source.party().runs.append(self._run)

    def watch(self) -> None:
        """Wait for the journal, which has got all of the messages."""
        self._journal.when_durable(self.on_batch)

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """Count the journal as done; after a failure the next batch has the MOVEs again."""
        if not ok:
            self.watch()
            return
        self._run.parties_left -= 1
        if self._run.parties_left == 0:
            self.on_decided(self._run)

    def on_decided(self, run: ConfirmRun) -> None:
        failure = self._failure
        if not run.ok:
            failure = failure or "the copies of a mirrored queue have not confirmed the messages"
        self._waiter.on_taken(failure, self._is_handed_out and not run.ok)
