"""What a publisher waits for: runs of publishes, each until all of its parties are done.

A party is whatever has to keep the messages of a run: a batch of the journal, and where a queue has copies, whoever keeps
these. Parties finish in any order, and each knows the runs that wait for it.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfirmWaiter:
    """Whose publishes they are: a channel in confirm mode."""

    def on_decided(self, run: ConfirmRun) -> None:
        """All parties of `run` are done; `run.ok` says whether all of them have its messages."""
        raise RuntimeError("abstract")


class ConfirmRun:
    """The publishes `first` to `last` of `waiter`, which have the same parties. `left`: parties that are not done."""

    def __init__(self, waiter: ConfirmWaiter, seq: i64, left: i64) -> None:
        self.waiter: ConfirmWaiter = waiter
        self.first: i64 = seq
        self.last: i64 = seq
        self.left: i64 = left
        self.ok: bool = True
        # Its only party, while more publishes may join the run; else None.
        self.party: ConfirmParty | None = None
        # The publisher knows: it was told out of turn.
        self.is_told: bool = False


class ConfirmParty:
    """Something that has to be done before publishes may be confirmed."""

    def __init__(self) -> None:
        self.runs: list[ConfirmRun] = []

    def finish(self, ok: bool) -> None:
        """It is done; with `ok` what it had to keep is kept."""
        runs = self.runs
        self.runs = []
        for run in runs:
            # Nothing is left of the cycle between the two: a batch may hold megabytes.
            run.party = None
            run.left -= 1
            if not ok:
                run.ok = False
            if run.left == 0:
                run.waiter.on_decided(run)
