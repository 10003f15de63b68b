"""What this process waits for now, and for how long already, in words.

A wait is announced nowhere by itself: `Retry` logs that a broker is away, and the progress of a job
shows the most telling wait, second by second.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Final

# A wait that lasts this long is worth a word (s).
ANNOUNCE_S: Final = 2.0


class Wait:
    """A wait for `what`, which begins now; `reason` says why it lasts, "" while nobody knows."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since_s = time.monotonic()
        self.reason = ""
        # Other threads read the waits: each change is one operation of the dictionary.
        _waits[id(self)] = self

    def end(self) -> None:
        """Forget the wait; may be repeated."""
        _waits.pop(id(self), None)

    @property
    def lasts_s(self) -> float:
        """How long the wait has lasted (s)."""
        return time.monotonic() - self._since_s

    def words(self) -> str:
        """What is waited for, for how long already, and why."""
        because = f": {self.reason}" if self.reason else ""
        return f"waiting for {self._what}, {self.lasts_s:.0f} s{because}"


# The waits of this process, by identity.
_waits: Final[dict[int, Wait]] = {}


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Wait]:
    """A wait as long as the block."""
    wait = Wait(what)
    try:
        yield wait
    finally:
        wait.end()


def wait_in_words(least_s: float = ANNOUNCE_S) -> str:
    """The longest wait of this process, one with a reason first; "" if none lasts `least_s`."""
    long = [wait for wait in list(_waits.values()) if wait.lasts_s >= least_s]
    if not long:
        return ""
    return max(long, key=lambda wait: (bool(wait.reason), wait.lasts_s)).words()
