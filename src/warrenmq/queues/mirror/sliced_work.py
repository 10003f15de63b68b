"""Long work beside the queues of a vhost, done a slice in each turn, so that no turn gets long.

The work is a generator. It yields after each small piece, with the steps that the piece took (see
`queues/turn.py`). Between two pieces queues may change, so a piece finds out anew what it relies
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.turn import DONE, MORE, TurnShare, TurnShares

# Steps of one slice: one to three milliseconds, also when it is interpreted.
SLICE_STEPS: Final = 1024
# Steps of a run of seq ids that is compared or copied.
RUN_STEPS: Final = 2
# Steps after which a piece of work ends.
PIECE_STEPS: Final = 256


class SlicedWork(TurnShare):
    """Work that shares `turns` with queues; `pieces` yields the steps of each piece, above 0."""

    def __init__(self, turns: TurnShares, pieces: Iterator[int]) -> None:
        super().__init__(turns)
        self._pieces: Iterator[int] = pieces

    def start(self) -> None:
        """Do the first slice now, which is all of short work, and the others in later turns."""
        if self._work_off():
            self.ask_for_turn()

    def run_slice(self, now_ms: i64) -> i64:
        self.is_listed = False
        return MORE if self._work_off() else DONE

    def is_wanted(self) -> bool:
        return False

    def _work_off(self) -> bool:
        """Do one slice; returns whether there is more to do."""
        self.steps_used = 0
        while self.steps_used < SLICE_STEPS:
            steps = next(self._pieces, 0)
            if steps == 0:
                return False
            self.steps_used += steps
        return True
