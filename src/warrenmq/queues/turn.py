"""The share of each turn that the queues of a vhost get.

A queue with long work, or with work for the end of the turn, is on the list `listed`, once.
`run_slices` runs a slice of each listed queue until the steps of the turn are used up. The other
queues, and those with more to do, follow in the next turn, which `wake` asks for. So no queue holds
up the others (G6, W19), and a queue without work costs nothing. The steps that are left go to the
journal's old files (`broker/vhost/store_host.py`).

A turn has TURN_STEPS, and more when many messages were published in it: such a turn is long anyway,
and messages must be able to leave memory as fast as they come in.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

# How a slice of work ended. DONE: nothing is left to do.
DONE: Final = 0
# There is more to do in the next turn.
MORE: Final = 1
# There is more to do after the next seal.
WAIT_FOR_SEAL: Final = 2
# There is more to do when the disk has caught up.
WAIT_FOR_DISK: Final = 3

# Messages of one queue that are settled in one turn; the bound limits how long other work on the
# loop waits (W19, G6).
SLICE_MESSAGES: Final = 2048
# Steps of a message that is written. One step is a move between two parts of a queue, half a
# microsecond or so.
WRITE_STEPS: Final = 4
# Steps that one turn has for the queues of one vhost, about a millisecond's worth.
TURN_STEPS: Final = 1024
# Additional steps for each message published in the turn: twice what paging the message takes.
STEPS_A_MESSAGE: Final = 12
# The most steps that a turn can have.
TURN_STEPS_MAX: Final = 8192


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnShares:
    """The turns of one vhost, and the queues that share them."""

    def __init__(self) -> None:
        # Queues with something to do at the end of the turn, each at most once.
        self.listed: list[TurnShare] = []
        # Whether the last turn had more work than steps.
        self.has_more: bool = False
        # Messages published since the end of the last turn.
        self.arrived_count: i64 = 0
        # Steps that this turn has left.
        self.steps_left: i64 = TURN_STEPS
        # Shares that continue after the next seal of the journal.
        self._waiting_for_seal: list[TurnShare] = []

    def on_sealed(self) -> None:
        """Resume the queues that waited for the seal of a journal batch.

        Positions that were PENDING may move.
        """
        waiting = self._waiting_for_seal
        self._waiting_for_seal = []
        for share in waiting:
            share.ask_for_turn()

    def run_slices(self, now_ms: i64) -> None:
        """Run slices of the listed queues, at the end of a turn, until the steps are used up."""
        listed = self.listed
        self.listed = []
        self.steps_left = min(
            TURN_STEPS + STEPS_A_MESSAGE * self.arrived_count, i64(TURN_STEPS_MAX)
        )
        self.arrived_count = 0
        index: i64 = 0
        is_more = False
        waiting: list[TurnShare] = []
        while index < len(listed) and self.steps_left > 0:
            share = listed[index]
            index += 1
            outcome = share.run_slice(now_ms)
            self.steps_left -= 1 + share.steps_used
            if outcome == MORE:
                is_more = True
                waiting.append(share)
            elif outcome == WAIT_FOR_DISK:
                waiting.append(share)
            elif outcome == WAIT_FOR_SEAL and not share.is_listed:
                self._waiting_for_seal.append(share)
        rest = listed[index:]
        for share in waiting:
            if not share.is_listed:
                share.is_listed = True
                rest.append(share)
        self.listed = rest + self.listed
        self.has_more = is_more or index < len(listed)
        if self.has_more:
            self.wake()

    def wake(self) -> None:
        """Make the loop run the end of this turn, which has work."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnShare:
    """A queue, as the turns of its vhost see it."""

    def __init__(self, turns: TurnShares) -> None:
        self.turns: TurnShares = turns
        self.is_listed: bool = False
        # Steps that the last `run_slice` took.
        self.steps_used: i64 = 0
        # A load has arrived, or work was deferred to the end of the turn.
        self.has_arrivals: bool = False

    def run_slice(self, now_ms: i64) -> i64:
        """Run one slice of work, count its steps in `steps_used`, and clear `is_listed`.

        Returns whether, and when, to call it again: DONE, MORE, WAIT_FOR_SEAL or WAIT_FOR_DISK.
        """
        raise RuntimeError("abstract")

    def is_wanted(self) -> bool:
        """Whether a consumer or waiter could take a message at this moment."""
        raise RuntimeError("abstract")

    def ask_for_turn(self) -> None:
        """Have `run_slice` called at the end of this turn."""
        if not self.is_listed:
            self.is_listed = True
            self.turns.listed.append(self)
            self.turns.wake()

    def on_arrival(self) -> None:
        """Ask for a share of this turn, as a load has arrived or work waits for the turn's end."""
        self.has_arrivals = True
        self.ask_for_turn()
