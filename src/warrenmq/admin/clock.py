"""The clock of admin sessions: timers, turns of the event loop, and the time."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending timer; asyncio.TimerHandle is one."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Timers, turns of the loop and the time, as a session needs them."""

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer: ...
    def call_soon(self, callback: Callable[[], object], /) -> object: ...
    def now_ms(self) -> int: ...


class LoopClock:
    """`Clock` on a running event loop.

    Calls `end_turn` after each callback, because the callback may have requested a commit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, end_turn: Callable[[], object]) -> None:
        self._loop = loop
        self._end_turn = end_turn

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Call `callback` once, after `delay_s` seconds."""
        return self._loop.call_later(delay_s, self._run, callback)

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call `callback` once, in the next turn of the loop."""
        return self._loop.call_soon(self._run, callback)

    def now_ms(self) -> int:
        """The time in ms since 1970."""
        return time.time_ns() // 1_000_000

    def _run(self, callback: Callable[[], object]) -> None:
        callback()
        self._end_turn()


class GuardedClock:
    """`clock`, but a callback that raises ends in a call of `on_fault` with the exception."""

    def __init__(self, clock: Clock, on_fault: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._on_fault = on_fault

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """See Clock."""
        return self._clock.call_later(delay_s, lambda: self._run(callback))

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """See Clock."""
        return self._clock.call_soon(lambda: self._run(callback))

    def now_ms(self) -> int:
        """See Clock."""
        return self._clock.now_ms()

    def _run(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:  # A bug in a callback must not end the event loop.
            self._on_fault(error)
