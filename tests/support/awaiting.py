"""Waiting for what another process or thread is about to do: for the thing itself, as long as a loaded machine may take."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60.0
PAUSE_S = 0.01


def eventually(is_so: Callable[[], bool], what: str, pause_s: float = PAUSE_S) -> None:
    """Return when it is so; AssertionError with `what` when it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(pause_s)


async def eventually_in_loop(is_so: Callable[[], bool], what: str) -> None:
    """The same while the running loop goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.001)
