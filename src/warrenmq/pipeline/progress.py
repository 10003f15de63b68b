"""How far a job is: the protocol between jobs and whoever looks at them.

A job calls `show` whenever it knows more, as often as it likes; who shows it decides how often that is seen. The command
line draws a bar or writes a line of JSON for each step; a program that calls a job gets nothing unless it passes a
`Progress` of its own.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Protocol

_EVENT_PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Step:
    """So far it is: `done` of `total` in `unit` (messages, bytes, files); `total` None: nobody knows.

    `note` is what else there is to say, in a few words.
    """

    name: str
    done: int = 0
    total: int | None = None
    unit: str = "messages"
    note: str = ""


class Progress(Protocol):
    """Who is told how far a job is. May be called from several threads."""

    def show(self, step: Step) -> None:
        """So far it is."""


class Silent:
    """Tells nobody."""

    def show(self, step: Step) -> None:
        """Nobody looks."""


class JsonProgress:
    """A line of JSON each time the step changes, and else not more than one a second; none twice."""

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._last: Step | None = None
        self._due_s = 0.0

    def show(self, step: Step) -> None:
        """Write it, when it is time to."""
        now = self._clock()
        last = self._last
        if step == last or (last is not None and step.name == last.name and now < self._due_s):
            return
        self._last = step
        self._due_s = now + _EVENT_PAUSE_S
        self._write(json.dumps(asdict(step)) + "\n")
