"""Runs a call in a process that dies, as by SIGKILL, just before its n-th change of file names."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator

_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")
_KILLED = 77


def _is_change(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0
    return event in _EVENTS


def dies_before_change(number: int, call: Callable[[], object]) -> bool:
    """Run `call` in a child; True when the child was killed, AssertionError when `call` failed."""
    child = os.fork()
    if child == 0:
        _run(number, call)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _KILLED), status
    return status == _KILLED


def _run(number: int, call: Callable[[], object]) -> None:
    left = number

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if _is_change(event, arguments):
            left -= 1
            if left < 0:
                os._exit(_KILLED)

    status = 1
    try:
        sys.addaudithook(count)
        call()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def deaths(call: Callable[[], object], step: int = 1) -> Iterator[int]:
    """Kill `call` before its first change, then before the one `step` later, until it completes.

    The caller inspects what is left after each death; the value is the number of changes made
    before it.
    """
    number = 0
    while dies_before_change(number, call):
        yield number
        number += step
