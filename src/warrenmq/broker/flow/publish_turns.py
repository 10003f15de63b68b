"""Shares the turns of the loop among publishes that are much work: no client holds up the others.

A socket is read for up to 256 KiB a turn, which may be thousands of publishes. One of them may go
to ten thousand queues, or be compared with a hundred thousand bindings. A channel whose publish is
such work, in a turn that has had its share, is suspended: its further frames are kept. The end of
the turn resumes the channels in their order, as far as the share of the next turn goes. Channels
with cheap publishes never wait. A commit is the work of all its publishes (`channel/commit.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.flow.flow_host import FlowHost

# Steps from which on a publish is much work. A step is the arrival in one queue, a microsecond or
# two, or what takes as long. A read has at most some thousand publishes with fewer steps.
COSTLY_STEPS: Final = 16
# Steps that costly publishes have in one turn.
TURN_STEPS: Final = 16384


class PublishTurns:
    """The costly publishes of one node; `wake` asks for the end of a turn."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.turn_steps: i64 = TURN_STEPS
        # Steps that this turn has left; negative when its share is used up.
        self.steps_left: i64 = TURN_STEPS
        # Suspended channels, in the order in which they go on.
        self._waiting: deque[FlowHost] = deque()
        self._wake: Callable[[], None] = wake

    def spend(self, channel: FlowHost, steps: i64) -> None:
        """Count the steps of a costly publish; `channel` waits if this turn has none left."""
        self.steps_left -= steps
        if self.steps_left < 0:
            self.wait(channel)

    def wait(self, channel: FlowHost) -> None:
        """Suspend `channel`; the end of this turn or of a later one resumes it."""
        channel.suspend()
        self._waiting.append(channel)
        self._wake()

    def end_turn(self, now_ms: i64) -> None:
        """Resume waiting channels until they have used up the share of a turn."""
        self.steps_left = self.turn_steps
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self.steps_left < 0:
                return
            waiting.popleft().resume(now_ms)
