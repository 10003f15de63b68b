"""The pause in which single acks gather, so that a turn of the loop takes many of them.

Most clients send each ack with a write of its own. A node that is faster than such a client would
wake up, read and write for every message, which costs several times what the message itself does.
So a turn that has read nothing but a few single acks, of clients that hold plenty of messages, is
followed by a short sleep; the next turn finds what has come meanwhile. Nobody waits for the pause:
a client that is nearly out of work, a publish or any other method ends the turn without one, and
so does a pace at which the turns are further apart anyway.
"""

import time
from collections.abc import Callable
from typing import Final

# How long the loop sleeps (s). The system makes about 0.1 ms of it.
_PAUSE_S: Final = 0.00005
# Turns that begin later than this after the last one (ns) gather nothing: at such a pace the node
# has time enough, and a message that comes meanwhile would wait for nothing.
_APART_NS: Final = 150_000


class AckPause:
    """Decides after each turn whether to sleep. `sleep` and `clock_ns` are those of `time`."""

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._sleep = sleep
        self._clock_ns = clock_ns
        self._gathers = False
        self._is_pressing = False
        self._ended_ns = 0

    def read(self, is_at_ease: bool) -> None:
        """Note a read of a socket; `is_at_ease`: see `Connection.is_at_ease`."""
        if is_at_ease:
            self._gathers = True
        else:
            self._is_pressing = True

    def end_turn(self, now_ns: int) -> None:
        """Sleep if all that the turn has read can wait. `now_ns`: when the turn began to end."""
        if self._gathers and not self._is_pressing and now_ns - self._ended_ns < _APART_NS:
            self._sleep(_PAUSE_S)
            now_ns = self._clock_ns()
        self._ended_ns = now_ns
        self._gathers = self._is_pressing = False
