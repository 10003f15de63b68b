"""Up to which message of the ring a mirror has everything on disk.

After a mirror has applied a message, whatever that message put in the journal is in the batch that
gathers, or in an earlier one. Batches become durable in order, so one number says it all.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.store.journal.journal import Journal


@mypyc_attr(allow_interpreted_subclasses=True)
class MarkHost:
    """Reports to the master what a mirror has on disk."""

    def mark_raised(self, upto: i64) -> None:
        """All messages of the ring up to number `upto` are durable; higher than all before."""
        raise RuntimeError("abstract")

    def mark_failed(self) -> None:
        """A batch has failed: the mark never rises again, and the mirror has to begin anew."""
        raise RuntimeError("abstract")


class DurableMarks(ConfirmWaiter):
    """The mark of one mirror, whose vhost has `journal`.

    `before`: the marks of the mirror that had the same copy before. What that one applied is part
    of the copy: the new mark waits for it, and fails with it.
    """

    def __init__(
        self, journal: Journal, host: MarkHost, before: DurableMarks | None = None
    ) -> None:
        # Number of the last message of the ring that is durable here with all before it.
        self.durable_upto: i64 = 0
        self.has_failed: bool = before is not None and before.has_failed
        self._journal: Journal = journal
        self._host: MarkHost = host
        # Number of the last message that was applied.
        self._applied: i64 = 0
        # Runs that wait for their batches, the oldest first.
        self._waiting: list[ConfirmRun] = []
        # The mirror holds messages that are not in the journal yet.
        self._is_paused: bool = False
        if before is not None:
            for run in before._waiting:
                if run.party is not None:
                    self._add_run(run.party, 0)

    def note(self, number: i64, is_for_disk: bool) -> None:
        """Note that the mirror has applied message `number`, higher than all before.

        `is_for_disk`: the message has put something in the gathering batch that must be durable
        (`MirrorApplier.apply`).
        """
        self._applied = number
        if self.has_failed:
            return
        if not self._is_paused:
            # While the disk fails nothing counts as durable, acks included.
            self._wait(is_for_disk or self._journal.repeating > 0)
        elif is_for_disk:
            self.watch()

    def watch(self) -> None:
        """Fail if the gathering batch does; the mark does not rise with it."""
        newest = self._newest()
        batch: ConfirmParty = self._journal.batch
        if not self.has_failed and (newest is None or newest.party is not batch):
            self._add_run(batch, 0)

    def check_disk(self) -> None:
        """Wait for the batch that repeats the acks of a failed one: the mark has risen with them.

        Acks wait for no disk, but a copy that may bring them back must not count as in sync.
        """
        if self._journal.repeating > 0:
            self.watch()

    def pause(self) -> None:
        """Let the mark stay where it is, while the mirror is synchronised: it holds messages."""
        self._is_paused = True

    def resume(self) -> None:
        """Let the mark rise again; what was held is in the gathering batch, or in none."""
        self._is_paused = False
        if not self.has_failed:
            self._wait(True)

    def on_decided(self, run: ConfirmRun) -> None:
        # Batches end in order.
        self._waiting.pop(0)
        if self.has_failed:
            return
        if run.ok:
            self._raise(run.last)
        else:
            self.has_failed = True
            self._host.mark_failed()

    def _wait(self, is_for_disk: bool) -> None:
        newest = self._newest()
        batch: ConfirmParty = self._journal.batch
        if newest is not None and (not is_for_disk or newest.party is batch):
            newest.last = self._applied
        elif is_for_disk:
            self._add_run(batch, self._applied)
        else:
            self._raise(self._applied)

    def _newest(self) -> ConfirmRun | None:
        """The youngest run that waits for its batch."""
        return self._waiting[-1] if len(self._waiting) > 0 else None

    def _add_run(self, batch: ConfirmParty, upto: i64) -> None:
        """Wait for a batch, which makes everything up to message `upto` durable."""
        run = ConfirmRun(self, upto, 1)
        run.party = batch
        batch.runs.append(run)
        self._waiting.append(run)

    def _raise(self, upto: i64) -> None:
        if upto > self.durable_upto:
            self.durable_upto = upto
            self._host.mark_raised(upto)
