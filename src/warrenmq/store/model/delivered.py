"""The messages of a queue that were handed out: to a consumer, or reserved for a reader group.

Consumers get the oldest ready message, so one number says nearly everything: the *mark*
(`QueueLedger.delivered_upto`). Below the message that a consumer gets, every other one is gone or
was handed out before. This module has the exceptions, as runs of seq ids:

* above the mark, the messages that reader groups reserved, or that a mirror's master handed out;
* at or below the mark, the messages that nobody has had: a dead letter on its way, which expired or
  had no room, and is in its queue again if the node stops before it is handed over; and a message
  that returned before it, or a later one, had reached a consumer.

Seq ids of settled messages may be on either side: nobody asks for them.
"""

from mypy_extensions import i64

from warrenmq.store.model.runs import (
    Runs,
    add_run,
    contains,
    index_of_run,
    merge_runs,
    remove_run,
    subtract,
)


class DeliveredRuns:
    """The exceptions to the mark of one queue; each method gets the mark as `upto`."""

    def __init__(self) -> None:
        # Seq ids above the mark that were handed out. Runs that the mark has passed may still be
        # there.
        self.above: Runs = []
        # Seq ids that were not handed out, although the mark may have passed them.
        self.spared: Runs = []

    def contains(self, seq: i64, upto: i64) -> bool:
        """Whether the message `seq` was handed out."""
        if seq > upto and (len(self.above) == 0 or not contains(self.above, seq)):
            return False
        return not self.is_spared(seq)

    def add(self, first: i64, last: i64, upto: i64) -> i64:
        """Note that the messages of [first, last] were handed out; returns the new mark."""
        if first <= upto + 1:
            upto = max(upto, last)
        else:
            add_run(self.above, first, last)
        return self._join(upto)

    def close_gap(self, first: i64, last: i64, upto: i64) -> i64:
        """Note that no message of [first, last] is alive; returns the new mark.

        The range then separates no runs, so there are never more runs than live messages.
        """
        above = self.above
        if first <= upto + 1:
            upto = max(upto, last)
        else:
            place = index_of_run(above, first - 1)
            if place < len(above) and above[place][0] <= last + 1:
                add_run(above, first, last)
        return self._join(upto)

    def spare(self, seq: i64) -> None:
        """Note that `seq` was not handed out, although the mark may have passed it, or will."""
        add_run(self.spared, seq, seq)

    def forget_spared(self, first: i64, last: i64) -> None:
        """Note that those of [first, last] that were spared are handed out or settled."""
        if len(self.spared) > 0:
            remove_run(self.spared, first, last)

    def forget_from(self, first: i64, upto: i64) -> i64:
        """Forget what was noted of `first` and all seq ids behind it; returns the new mark."""
        if len(self.above) > 0:
            remove_run(self.above, first, max(first, self.above[-1][1]))
        if len(self.spared) > 0:
            remove_run(self.spared, first, max(first, self.spared[-1][1]))
        return min(upto, first - 1)

    def is_spared(self, seq: i64) -> bool:
        """Whether it was noted that nobody has had `seq`."""
        return len(self.spared) > 0 and contains(self.spared, seq)

    def without_spared(self, upto: i64) -> tuple[i64, Runs]:
        """This set as a mark and the runs above it alone, as the store writes it."""
        handed_out: Runs = [(1, upto)] if upto > 0 else []
        for first, last in self.above:
            # The mark may have passed the run.
            if last > upto:
                handed_out.append((first, last))
        runs: Runs = []
        for first, last in merge_runs(handed_out):
            runs.extend(subtract(first, last, self.spared))
        mark: i64 = 0
        if len(runs) > 0 and runs[0][0] == 1:
            mark = runs.pop(0)[1]
        return mark, runs

    def last(self, upto: i64) -> i64:
        """The highest seq id that was handed out; 0: none."""
        mark, runs = self.without_spared(upto)
        return runs[-1][1] if len(runs) > 0 else mark

    def _join(self, upto: i64) -> i64:
        above = self.above
        while len(above) > 0 and above[0][0] <= upto + 1:
            upto = max(upto, above.pop(0)[1])
        return upto
