"""Counts the lines that the engine runs: how its work grows with the number of messages."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.support.skips import does_not_apply
from warrenmq.queues.backing import entry_deque


def lines_run(work: Callable[[], object]) -> int:
    """Run `work` and return the number of lines of warren's modules that it takes.

    Skips the test if they are compiled.
    """
    if not entry_deque.__file__.endswith(".py"):
        does_not_apply("counts interpreted lines")
    count = 0

    def on_line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return on_line

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return on_line if frame.f_globals.get("__name__", "").startswith("warrenmq.") else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
