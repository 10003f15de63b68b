"""Runs of publishes that wait for their confirm, each until all of its parties are done.

A party is whatever has to make the messages of a run durable: a batch of the journal and, where a
queue has copies, each keeper of a copy. Parties finish in any order, and each knows the runs that
wait for it.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfirmWaiter:
    """Receives the outcome of its publishes: a channel in confirm mode."""

    def on_decided(self, run: ConfirmRun) -> None:
        """All parties of `run` are done; `run.ok` is True when all of them have its messages."""
        raise RuntimeError("abstract")


class ConfirmRun:
    """The publishes `first` to `last` (inclusive) of `waiter`, which wait for the same parties."""

    def __init__(self, waiter: ConfirmWaiter, seq: i64, left: i64) -> None:
        self.waiter: ConfirmWaiter = waiter
        self.first: i64 = seq
        self.last: i64 = seq
        # Parties that are not done yet.
        self.parties_left: i64 = left
        # False as soon as one party has failed.
        self.ok: bool = True
        # The run's only party, while more publishes may join the run; else None.
        self.party: ConfirmParty | None = None
        # The waiter has sent the confirm of this run already, alone, before those of older runs.
        self.is_sent: bool = False
        # Time of the first publish, by the clock of the waiter.
        self.began_ns: i64 = 0


class ConfirmParty:
    """Something that has to be done before publishes may be confirmed."""

    def __init__(self) -> None:
        self.runs: list[ConfirmRun] = []

    def finish(self, ok: bool) -> None:
        """Mark this party as done; `ok`: it has all messages that it was to make durable."""
        runs = self.runs
        self.runs = []
        for run in runs:
            # Break the reference cycle between run and party: a batch may hold megabytes.
            run.party = None
            run.parties_left -= 1
            if not ok:
                run.ok = False
            if run.parties_left == 0:
                run.waiter.on_decided(run)


def finish_together(parties: list[ConfirmParty], ok: bool) -> None:
    """Mark all of `parties` as done before any waiter hears of it: it may send one confirm for all.

    See `ConfirmParty.finish`.
    """
    decided: list[ConfirmRun] = []
    for party in parties:
        runs = party.runs
        party.runs = []
        for run in runs:
            run.party = None
            run.parties_left -= 1
            if not ok:
                run.ok = False
            if run.parties_left == 0:
                decided.append(run)
    for run in decided:
        run.waiter.on_decided(run)
