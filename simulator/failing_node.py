"""`python -m simulator.failing_node ARGUMENTS`: `warren ARGUMENTS` with armed fail points.

WARREN_FAIL_POINTS says which, separated by commas:

| form | at the point |
|---|---|
| `name=kill` | the process dies by SIGKILL |
| `name=stop` | the process stops by SIGSTOP, until a SIGCONT |
| `name=delay:200` | the thread waits for 200 ms |
| `name=error` | FailPointError is raised |

`@3` behind a form means: only at the third hit of the point, counted from the start of the process.

WARREN_CLOCK_S is what the clock of the node's machine shows more than that of others, in seconds.

Only this program reads the variables; a node that `warren server` starts has no armed points, and
the clock of its machine.
"""

import os
import signal
import sys
import time
from typing import Final

from warrenmq.vocabulary.fail_points import FAIL_POINTS, FailAction, FailPointError

VARIABLE: Final = "WARREN_FAIL_POINTS"
CLOCK_VARIABLE: Final = "WARREN_CLOCK_S"


class SendSignal(FailAction):
    """Sends a signal to this process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def act(self, name: str) -> None:
        os.kill(os.getpid(), self._number)


class Delay(FailAction):
    """Lets the thread that passes the point wait."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_s = delay_ms / 1000

    def act(self, name: str) -> None:
        time.sleep(self._delay_s)


class Fail(FailAction):
    """Raises FailPointError."""

    def act(self, name: str) -> None:
        raise FailPointError(f"fail point {name}")


def arm_fail_points(text: str) -> None:
    """Arm the points that `text` names, in the form of WARREN_FAIL_POINTS. Raises ValueError."""
    for item in text.split(","):
        name, equals, form = item.strip().partition("=")
        form, at, hit = form.partition("@")
        if not name or not equals or (at and (not hit.isdecimal() or int(hit) == 0)):
            raise ValueError(f"{item!r} is no fail point: say name=kill, or name=kill@3")
        FAIL_POINTS.arm(name, _action(form), int(hit) if at else 0)


def _action(form: str) -> FailAction:
    kind, colon, argument = form.partition(":")
    if kind == "delay" and argument.isdecimal():
        return Delay(int(argument))
    if not colon:
        if kind == "kill":
            return SendSignal(signal.SIGKILL)
        if kind == "stop":
            return SendSignal(signal.SIGSTOP)
        if kind == "error":
            return Fail()
    raise ValueError(f"{form!r} is no action: say kill, stop, delay:MILLISECONDS or error")


def set_clock(offset_s: int) -> None:
    """Let the time of day of this process be `offset_s` later; its monotonic time stays."""
    real_ns = time.time_ns
    time.time_ns = lambda: real_ns() + offset_s * 1_000_000_000
    time.time = lambda: time.time_ns() / 1e9


if __name__ == "__main__":
    set_clock(int(os.environ.get(CLOCK_VARIABLE, "0")))
    try:
        arm_fail_points(os.environ.get(VARIABLE, ""))
    except ValueError as problem:
        sys.exit(f"{VARIABLE}: {problem}")
    from warrenmq.cli import main

    main()
