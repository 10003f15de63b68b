"""Work of a reader group that takes several turns, a slice in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from warrenmq.queues.turn import DONE, MORE, TurnShare, TurnShares


@final
class SlicedTurns(TurnShare):
    """Calls `run` in each turn from `ask_for_turn` on until it returns 0.

    `run` does a slice, and returns the steps that it took (see `queues/turn.py`).
    """

    def __init__(self, turns: TurnShares, run: Callable[[], int]) -> None:
        super().__init__(turns)
        self._run: Callable[[], int] = run

    def run_slice(self, now_ms: i64) -> i64:
        self.is_listed = False
        self.steps_used = self._run()
        return MORE if self.steps_used > 0 else DONE

    def is_wanted(self) -> bool:
        return False
