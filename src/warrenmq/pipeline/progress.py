"""Progress of a job: the protocol between a job and the code that shows how far it is.

A job calls `show` whenever it knows more, as often as it likes; the receiver decides how often to
display it. The command line draws a bar or writes a line of JSON for each step. A program that
calls a job sees no progress unless it passes its own `Progress`.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Protocol

_EVENT_PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Step:
    """Progress within one step of a job: `done` of `total` in `unit`.

    `unit` is messages, bytes, files, figures or parts. `total` is None while unknown. `note` is a
    short remark for people.
    """

    name: str
    done: int = 0
    total: int | None = None
    unit: str = "messages"
    note: str = ""


class Progress(Protocol):
    """Receives the progress of a job. `show` may be called from several threads."""

    def show(self, step: Step) -> None:
        """Take the latest progress."""


class Silent:
    """Ignores all progress."""

    def show(self, step: Step) -> None:
        """See Progress."""


class JsonProgress:
    """Writes progress as lines of JSON: at most one a second within a step.

    A new step and a finished one are written at once; a step that equals the last one is skipped.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._last: Step | None = None
        self._due_s = 0.0

    def show(self, step: Step) -> None:
        """Write the step as a line if it differs from the last one and is due."""
        now = self._clock()
        last = self._last
        is_inside = last is not None and step.name == last.name and step.done != step.total
        if step == last or (is_inside and now < self._due_s):
            return
        self._last = step
        self._due_s = now + _EVENT_PAUSE_S
        self._write(json.dumps(asdict(step)) + "\n")
