"""The share of each turn that the queues of a vhost get.

A queue that has something to do which takes long, or that waits for the end of the turn, is on the list `listed` once.
`work_off` calls those on the list in turn until they have taken the steps that a turn has for them; the others, and those
that have more to do, follow in the next turn, which `wake` asks for. So no queue holds up the others (G6, W19), and a
queue without anything to do is not looked at. What is left of the steps is for the journal's old files
(`broker/vhost/queue_access.py`).

A turn has TURN_STEPS, and more when much was published in it: such a turn is long anyway, and what comes in must be able
to leave memory as fast.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

# How a slice of work ended: nothing is left to do, there is more for the next turn, more after the next seal, or more when
# the disk has caught up.
DONE: Final = 0
MORE: Final = 1
WAIT_FOR_SEAL: Final = 2
WAIT_FOR_DISK: Final = 3

# Messages of one queue that are settled in one turn; bounds how long everything else on the loop waits (W19, G6).
SLICE_MESSAGES: Final = 2048
# What a message costs that is written, in steps. A step is a move between two parts of a queue, half a microsecond or so.
WRITE_STEPS: Final = 4
# Steps that one turn has for the queues of one vhost, about a millisecond's worth; those that it has besides for each
# message that came in, twice what paging it takes; and the most it can have.
TURN_STEPS: Final = 1024
STEPS_A_MESSAGE: Final = 12
TURN_STEPS_MAX: Final = 8192


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnShares:
    """The turns of one vhost, and the queues that share them."""

    def __init__(self) -> None:
        # Queues with something to do at the end of the turn, each at most once.
        self.listed: list[TurnShare] = []
        # In the last turn there was more to do than fitted.
        self.has_more: bool = False
        # Messages that the queues have taken since the last turn's end, and the steps that this one has left.
        self.arrived_count: i64 = 0
        self.steps_left: i64 = TURN_STEPS
        # Shares that continue after the next seal of the journal.
        self._waiting_for_seal: list[TurnShare] = []

    def on_sealed(self) -> None:
        """A batch of the journal was sealed: what was PENDING may move."""
        waiting = self._waiting_for_seal
        self._waiting_for_seal = []
        for share in waiting:
            share.ask_for_turn()

    def work_off(self, now_ms: i64) -> None:
        """The end of a turn: the queues on the list work, until the steps are used up."""
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
            self.steps_left -= 1 + share.worked_count
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
        """There will be something to do at the end of this turn."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnShare:
    """A queue, as the turns of its vhost see it."""

    def __init__(self, turns: TurnShares) -> None:
        self.turns: TurnShares = turns
        self.is_listed: bool = False
        # Steps that the last `work` took.
        self.worked_count: i64 = 0
        # A load has arrived, or work was put off to the end of the turn.
        self.has_arrivals: bool = False

    def run_slice(self, now_ms: i64) -> i64:
        """Do a slice of what there is to do, count its steps in `worked_count`, and clear `is_listed`.

        DONE, MORE, WAIT_FOR_SEAL or WAIT_FOR_DISK: whether, and when, it should be called again.
        """
        raise RuntimeError("abstract")

    def is_wanted(self) -> bool:
        """Is there anybody who could take a message?"""
        raise RuntimeError("abstract")

    def ask_for_turn(self) -> None:
        """`work` is to be called at the end of this turn."""
        if not self.is_listed:
            self.is_listed = True
            self.turns.listed.append(self)
            self.turns.wake()

    def on_arrival(self) -> None:
        """Something has come from disk, or waits for the end of the turn: ask for a share of it."""
        self.has_arrivals = True
        self.ask_for_turn()
